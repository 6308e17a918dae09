//! One JSON object per line.

use super::{EventKind, Record, Sink};
use crate::simulator::time::Time;
use lockkeeper_core::SiteId;
use std::io::{self, Write};

/// The maximum number of processes for which every line contains the complete vector.
const WHOLE_VECTORS: usize = 16;

/// Writes each event as a line of JSON: time, site, kind, Lamport time, vector time, rules, and messages
/// sent.
pub struct JsonLines {
    out: Box<dyn Write>,
    line: Vec<u8>,
    vectors: Vectors,
}

impl JsonLines {
    pub fn new(out: Box<dyn Write>, processes: usize) -> Self {
        let written =
            if processes > WHOLE_VECTORS { vec![vec![0; processes]; processes] } else { Vec::new() };
        Self { out, line: Vec::with_capacity(512), vectors: Vectors { written } }
    }
}

/// Writes vector times. For few processes the vector is complete: `"vector":[2,0,1]`. For many, only the
/// components are written that changed since the site's previous line: `"vector_changes":{"S1":2,"S3":1}`.
struct Vectors {
    /// The vector of each site's last line.
    written: Vec<Vec<u32>>,
}

impl Vectors {
    fn write(&mut self, line: &mut Vec<u8>, record: &Record<'_>) -> io::Result<()> {
        let Some(written) = self.written.get_mut(record.site.index()) else {
            line.extend_from_slice(br#","vector":"#);
            return Ok(serde_json::to_writer(line, record.vector)?);
        };
        line.extend_from_slice(br#","vector_changes":{"#);
        let mut comma = "";
        for (index, (old, &new)) in
            written.iter_mut().zip(record.vector).enumerate().filter(|(_, (old, new))| **old != **new)
        {
            *old = new;
            write!(line, r#"{comma}"{}":{new}"#, record.names.of(SiteId::new(index)))?;
            comma = ",";
        }
        line.push(b'}');
        Ok(())
    }
}

impl Sink for JsonLines {
    fn command(&mut self, command: &str) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, &serde_json::json!({ "command": command }))?;
        self.out.write_all(b"\n")
    }

    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let line = &mut self.line;
        line.clear();
        write!(line, r#"{{"n":{},"t":{},"site":"{}""#, record.number, record.at, record.name())?;
        let names = record.names;
        // All strings written here come from the protocols and need no escaping, except remarks.
        match record.what {
            EventKind::Start => write!(line, r#","event":"start""#)?,
            EventKind::Request { mode } => write!(line, r#","event":"request","mode":"{mode}""#)?,
            EventKind::Enter { fence, mode } => {
                write!(line, r#","event":"enter","fence":{fence},"mode":"{mode}""#)?;
            }
            EventKind::Exit => write!(line, r#","event":"exit""#)?,
            EventKind::Campaign => write!(line, r#","event":"campaign""#)?,
            EventKind::Elected { leader } => {
                write!(line, r#","event":"elected","leader":"{}""#, names.of(leader))?;
            }
            EventKind::Receive { from, id, message, .. } => {
                write!(
                    line,
                    r#","event":"receive","from":"{}","id":{id},"message":"{message}""#,
                    names.of(from)
                )?;
            }
            EventKind::Lost { from, id, message, .. } => {
                write!(
                    line,
                    r#","event":"lost","from":"{}","id":{id},"message":"{message}""#,
                    names.of(from)
                )?;
            }
            EventKind::Crash => write!(line, r#","event":"crash""#)?,
            EventKind::Recover => write!(line, r#","event":"recover""#)?,
            EventKind::Pause => write!(line, r#","event":"pause""#)?,
            EventKind::Resume => write!(line, r#","event":"resume""#)?,
            EventKind::Suspect { suspect } => {
                write!(line, r#","event":"suspect","suspect":"{}""#, names.of(suspect))?;
            }
            EventKind::Timer => write!(line, r#","event":"timer""#)?,
            EventKind::Remark { text } => {
                write!(line, r#","event":"say","text":"#)?;
                serde_json::to_writer(&mut *line, text)?;
            }
        }
        write!(line, r#","lamport":{}"#, record.lamport)?;
        self.vectors.write(line, record)?;
        if !record.why.is_empty() {
            write!(line, r#","why":"#)?;
            serde_json::to_writer(&mut *line, record.why)?;
        }
        if !record.sends.is_empty() {
            line.extend_from_slice(br#","sends":["#);
            for (id, sent) in (record.first_id..).zip(record.sends) {
                let comma = if id == record.first_id { "" } else { "," };
                write!(
                    line,
                    r#"{comma}{{"id":{id},"to":"{}","message":"{}"}}"#,
                    names.of(sent.to),
                    sent.message
                )?;
            }
            line.push(b']');
        }
        line.extend_from_slice(b"}\n");
        self.out.write_all(line)
    }

    fn finish(&mut self, _end: Time) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::Names;
    use crate::trace::Sent;
    use lockkeeper_core::Mode;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The events of a trace, in the order of `trace.jsonl`. A new kind of event does not compile before it has an example.
    fn events() -> [EventKind<'static>; 15] {
        let of_each_kind = |kind: &EventKind<'_>| match kind {
            EventKind::Start | EventKind::Request { .. } | EventKind::Enter { .. } | EventKind::Exit => {}
            EventKind::Campaign | EventKind::Elected { .. } => {}
            EventKind::Receive { .. } | EventKind::Lost { .. } => {}
            EventKind::Crash | EventKind::Recover | EventKind::Pause | EventKind::Resume => {}
            EventKind::Suspect { .. } | EventKind::Timer | EventKind::Remark { .. } => {}
        };
        let (from, sent) = (SiteId::new(1), Time::ZERO);
        let events = [
            EventKind::Start,
            EventKind::Request { mode: Mode::Exclusive },
            EventKind::Enter { fence: 2, mode: Mode::Shared },
            EventKind::Exit,
            EventKind::Campaign,
            EventKind::Elected { leader: SiteId::new(1) },
            EventKind::Receive { from, id: 3, message: &"REQUEST(4)", sent },
            EventKind::Lost { from, id: 5, message: &"REPLY", sent },
            EventKind::Crash,
            EventKind::Recover,
            EventKind::Pause,
            EventKind::Resume,
            EventKind::Suspect { suspect: SiteId::new(1) },
            EventKind::Timer,
            EventKind::Remark { text: "a \"remark\"" },
        ];
        events.iter().for_each(of_each_kind);
        events
    }

    /// The lines of a trace. `lockkeeper replay` compares them with those of a saved one, and other programs read them.
    #[test]
    fn lines_of_a_trace_do_not_change() {
        let out = Shared::default();
        for (processes, vector) in [(3, vec![6, 0, 7]), (WHOLE_VECTORS + 1, vec![6; WHOLE_VECTORS + 1])] {
            let mut lines = JsonLines::new(Box::new(out.clone()), processes);
            lines.command("lockkeeper sim --sites 2").unwrap();
            let sends = [
                Sent { to: SiteId::new(1), message: &"REQUEST(8)" },
                Sent { to: SiteId::new(2), message: &"TOKEN" },
            ];
            let shown = if processes == 3 { events().to_vec() } else { vec![EventKind::Start; 2] };
            for (number, what) in (1..).zip(shown) {
                let (why, sends): (&[_], &[_]) = match what {
                    EventKind::Start => (&["starts", "and sends"], &sends),
                    _ => (&[], &[]),
                };
                let record = Record {
                    number,
                    at: Time::from_ticks(1_500_000_000),
                    site: SiteId::new(0),
                    what,
                    lamport: 9,
                    vector: &vector,
                    why,
                    sends,
                    first_id: 10,
                    names: Names { sites: processes - 1 },
                };
                lines.record(&record).unwrap();
            }
            lines.finish(Time::ZERO).unwrap();
        }
        let written = String::from_utf8(out.0.borrow().clone()).unwrap();
        let expected = include_str!("../../tests/golden/trace.jsonl");
        for (written, expected) in written.lines().zip(expected.lines()) {
            assert_eq!(written, expected);
        }
        assert_eq!(written.lines().count(), expected.lines().count());
    }
}
