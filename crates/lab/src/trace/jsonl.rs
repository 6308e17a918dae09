//! One JSON object per line.

use super::{Record, Sink, What};
use crate::time::Time;
use std::io::{self, Write};

/// Writes each event as a line of JSON: when, where, what, Lamport time, vector time, and why.
pub struct JsonLines {
    out: Box<dyn Write>,
    line: Vec<u8>,
}

impl JsonLines {
    pub fn new(out: Box<dyn Write>) -> Self {
        Self { out, line: Vec::with_capacity(512) }
    }
}

impl Sink for JsonLines {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let line = &mut self.line;
        line.clear();
        write!(line, r#"{{"n":{},"t":{},"site":"{}""#, record.number, record.at, record.name())?;
        let names = record.names;
        // Every string written here comes from the protocols' own words, except remarks, which are escaped.
        match record.what {
            What::Request => write!(line, r#","event":"request""#)?,
            What::Enter { fence } => write!(line, r#","event":"enter","fence":{fence}"#)?,
            What::Exit => write!(line, r#","event":"exit""#)?,
            What::Send { to, id, message, .. } => {
                write!(line, r#","event":"send","to":"{}","id":{id},"message":"{message}""#, names.of(to))?;
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
        write!(line, r#","lamport":{},"vector":["#, record.lamport)?;
        let mut digits = itoa::Buffer::new();
        for (position, &component) in record.vector.iter().enumerate() {
            if position > 0 {
                line.push(b',');
            }
            line.extend_from_slice(digits.format(component).as_bytes());
        }
        line.push(b']');
        if !record.why.is_empty() {
            write!(line, r#","why":"#)?;
            serde_json::to_writer(&mut *line, record.why)?;
        }
        line.extend_from_slice(b"}\n");
        self.out.write_all(line)
    }

    fn finish(&mut self, _end: Time) -> io::Result<()> {
        self.out.flush()
    }
}
