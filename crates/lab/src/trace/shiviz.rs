//! The log format of ShiViz, a web page that draws logs with vector clocks.

use super::{EventKind, Record, Sink, sentence};
use crate::simulator::time::Time;
use std::io::{self, Write};

/// The parser expression that ShiViz needs; it is the first line of the log.
const EXPRESSION: &str = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})";

/// Writes two lines per event: the sentence, then the host with its vector clock.
pub struct ShiViz {
    out: Box<dyn Write>,
    started: bool,
}

impl ShiViz {
    pub fn new(out: Box<dyn Write>) -> Self {
        Self { out, started: false }
    }
}

impl Sink for ShiViz {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        if !self.started {
            self.started = true;
            writeln!(self.out, "{EXPRESSION}\n")?;
        }
        // Losses and remarks are not events of a process, so they have no vector clock.
        if matches!(record.what, EventKind::Lost { .. } | EventKind::Remark { .. }) {
            return Ok(());
        }
        writeln!(self.out, "{}", sentence(record))?;
        write!(self.out, "{} {{", record.name())?;
        let known = record.vector.iter().enumerate().filter(|(_, component)| **component > 0);
        for (position, (index, component)) in known.enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            let name = record.names.of(lockkeeper_core::SiteId::new(index));
            write!(self.out, r#"{comma}"{name}": {component}"#)?;
        }
        writeln!(self.out, "}}")
    }

    fn finish(&mut self, _end: Time) -> io::Result<()> {
        self.out.flush()
    }
}
