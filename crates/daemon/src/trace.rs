//! The id that follows an acquire through the logs of all daemons.

use std::fmt::Write;

/// A trace, as W3C's `traceparent` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    trace: u128,
    sampled: bool,
}

impl Trace {
    /// The caller's trace if it has one, or a new one.
    pub fn of(traceparent: Option<&str>) -> Self {
        traceparent.and_then(Self::parse).unwrap_or_else(Self::new)
    }

    fn new() -> Self {
        let (high, low) = (getrandom::u64().unwrap_or_default(), getrandom::u64().unwrap_or_default());
        // An id of zeros is none.
        Self { trace: (u128::from(high) << 64 | u128::from(low)).max(1), sampled: true }
    }

    /// `00-<32 digits>-<16 digits>-<2 digits>`; later versions may go on after that.
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

    /// The id alone.
    pub fn id(self) -> String {
        format!("{:032x}", self.trace)
    }

    /// For the answer: the trace, with a number for what was done here.
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
    fn a_trace_is_taken_over_or_made() {
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
}
