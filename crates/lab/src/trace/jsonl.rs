//! One JSON object per line.

use super::{Record, Sink, What};
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
            What::Start => write!(line, r#","event":"start""#)?,
            What::Request { mode } => write!(line, r#","event":"request","mode":"{mode}""#)?,
            What::Enter { fence, mode } => {
                write!(line, r#","event":"enter","fence":{fence},"mode":"{mode}""#)?;
            }
            What::Exit => write!(line, r#","event":"exit""#)?,
            What::Campaign => write!(line, r#","event":"campaign""#)?,
            What::Elected { leader } => {
                write!(line, r#","event":"elected","leader":"{}""#, names.of(leader))?;
            }
            What::Receive { from, id, message, .. } => {
                write!(
                    line,
                    r#","event":"receive","from":"{}","id":{id},"message":"{message}""#,
                    names.of(from)
                )?;
            }
            What::Lost { from, id, message, .. } => {
                write!(
                    line,
                    r#","event":"lost","from":"{}","id":{id},"message":"{message}""#,
                    names.of(from)
                )?;
            }
            What::Crash => write!(line, r#","event":"crash""#)?,
            What::Recover => write!(line, r#","event":"recover""#)?,
            What::Pause => write!(line, r#","event":"pause""#)?,
            What::Resume => write!(line, r#","event":"resume""#)?,
            What::Suspect { suspect } => {
                write!(line, r#","event":"suspect","suspect":"{}""#, names.of(suspect))?;
            }
            What::Timer => write!(line, r#","event":"timer""#)?,
            What::Say { text } => {
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
