//! The trace id that follows an acquire through the logs of all daemons.

use crate::access::hash;
use serde::Deserialize;
use std::borrow::Cow;
use std::fmt::Write;

/// A trace context, as in W3C's `traceparent` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    trace: u128,
    sampled: bool,
}

impl Trace {
    /// The caller's trace if `traceparent` is valid, or else a new one.
    pub fn of(traceparent: Option<&str>) -> Self {
        traceparent.and_then(Self::parse).unwrap_or_else(Self::new)
    }

    /// The trace of a request of the native protocol: the `traceparent` of its metadata, or else an id derived from
    /// the owner name that the Rust library gives to every request. A request that the client repeats at another
    /// daemon keeps its trace.
    pub fn of_tag(owner: &str, purpose: &str) -> Self {
        #[derive(Deserialize)]
        struct Tag<'a> {
            #[serde(borrow)]
            holder: Cow<'a, str>,
            #[serde(default, borrow)]
            metadata: Metadata<'a>,
        }
        #[derive(Default, Deserialize)]
        struct Metadata<'a> {
            #[serde(borrow)]
            traceparent: Option<Cow<'a, str>>,
        }
        let Ok(tag) = serde_json::from_str::<Tag<'_>>(purpose) else { return Self::new() };
        let given = tag.metadata.traceparent.and_then(|given| Self::parse(&given));
        given.unwrap_or_else(|| {
            if tag.holder != owner || owner.is_empty() {
                return Self::new();
            }
            let digits = hash(owner);
            let trace = digits.iter().take(16).fold(0, |all: u128, &byte| all << 8 | u128::from(byte));
            Self { trace: trace.max(1), sampled: true }
        })
    }

    fn new() -> Self {
        let (high, low) = (getrandom::u64().unwrap_or_default(), getrandom::u64().unwrap_or_default());
        // W3C reserves the id 0 for "no trace".
        Self { trace: (u128::from(high) << 64 | u128::from(low)).max(1), sampled: true }
    }

    /// Parses `00-<32 digits>-<16 digits>-<2 digits>`. Later versions may have further fields.
    fn parse(text: &str) -> Option<Self> {
        let digits = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let mut parts = text.split('-');
        let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let lengths = (version.len(), trace.len(), parent.len(), flags.len()) == (2, 32, 16, 2);
        let ended = version != "00" || parts.next().is_none();
        let all = [version, trace, parent, flags].into_iter().all(digits);
        if !lengths || !ended || !all || version == "ff" {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        Some(Self { trace, sampled })
    }

    /// The trace id, as 32 hexadecimal digits.
    pub fn id(self) -> String {
        format!("{:032x}", self.trace)
    }

    /// The `traceparent` of the response, with a new span id.
    pub fn parent(self) -> String {
        let mut text = String::with_capacity(55);
        let span = getrandom::u64().unwrap_or_default().max(1);
        let _ = write!(text, "00-{:032x}-{span:016x}-{:02x}", self.trace, u8::from(self.sampled));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_of_the_caller_is_adopted_or_a_new_one_created() {
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = Trace::of(Some(given));
        assert_eq!(trace.id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(trace.parent().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
        assert_eq!(Trace::of(Some(&trace.parent())), trace);
        let bad = [
            "",
            "00",
            "00-0-0-0",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            &format!("{given}-x"),
        ];
        for text in bad {
            assert_eq!(Trace::parse(text), None, "{text}");
        }
        assert_ne!(Trace::of(None), Trace::of(None));
    }

    #[test]
    fn request_has_the_same_trace_at_every_daemon() {
        let tag = |metadata: &str| format!(r#"{{"holder":"a/1/f.0","pid":1,"metadata":{{{metadata}}}}}"#);
        let plain = tag("");
        assert_eq!(Trace::of_tag("a/1/f.0", &plain), Trace::of_tag("a/1/f.0", &plain));
        let given = tag(r#""traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01""#);
        assert_eq!(Trace::of_tag("a/1/f.0", &given).id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        // Invalid tags, and those of other libraries, get a new trace each time.
        for (owner, purpose) in [("ci", "backup"), ("ci", "{}"), ("ci", plain.as_str()), ("", "")] {
            assert_ne!(Trace::of_tag(owner, purpose), Trace::of_tag(owner, purpose), "{owner} {purpose}");
        }
    }
}
