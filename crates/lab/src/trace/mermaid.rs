//! A Mermaid sequence diagram.

use super::{EventKind, Record, Sink};
use crate::property::Names;
use crate::simulator::time::Time;
use lockkeeper_core::{Mode, SiteId};
use std::io::{self, Write};

/// Writes messages as arrows when they arrive, critical sections as activations.
pub struct Mermaid {
    out: Box<dyn Write>,
    names: Names,
    processes: usize,
    started: bool,
}

impl Mermaid {
    pub fn new(out: Box<dyn Write>, names: Names, processes: usize) -> Self {
        Self { out, names, processes, started: false }
    }

    fn start(&mut self) -> io::Result<()> {
        if !self.started {
            self.started = true;
            writeln!(self.out, "sequenceDiagram")?;
            for site in SiteId::all(self.processes) {
                writeln!(self.out, "    participant {}", self.names.of(site))?;
            }
        }
        Ok(())
    }
}

impl Sink for Mermaid {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.start()?;
        let (name, names) = (record.name(), record.names);
        let mut note = |text: &str| writeln!(self.out, "    Note over {name}: {} T: {text}", record.at);
        match record.what {
            EventKind::Start => Ok(()),
            EventKind::Request { mode: Mode::Exclusive } => note("wants to enter"),
            EventKind::Request { mode: Mode::Shared } => note("wants to share"),
            EventKind::Enter { fence, mode } => {
                let sharing = if mode == Mode::Shared { " to share" } else { "" };
                note(&format!("enters{sharing}, fence {fence}"))?;
                writeln!(self.out, "    activate {name}")
            }
            EventKind::Exit => {
                writeln!(self.out, "    deactivate {name}")?;
                writeln!(self.out, "    Note over {name}: {} T: leaves", record.at)
            }
            EventKind::Campaign => note("misses the leader"),
            EventKind::Elected { leader } if leader == record.site => note("leads"),
            EventKind::Elected { leader } => note(&format!("follows {}", names.of(leader))),
            // Semicolons and hash signs are syntax in Mermaid.
            EventKind::Receive { from, message, .. } => {
                let message = message.to_string().replace([';', '#'], ",");
                writeln!(self.out, "    {}->>{name}: {message}", names.of(from))
            }
            EventKind::Lost { from, message, .. } => {
                let message = message.to_string().replace([';', '#'], ",");
                writeln!(self.out, "    {}-x{name}: {message}", names.of(from))
            }
            EventKind::Crash => note("crashes"),
            EventKind::Recover => note("starts again"),
            EventKind::Pause => note("stops"),
            EventKind::Resume => note("goes on"),
            EventKind::Suspect { suspect } => note(&format!("suspects {}", names.of(suspect))),
            EventKind::Timer => note("timer"),
            EventKind::Remark { text } => note(&text.replace([';', '#'], ",")),
        }
    }

    fn finish(&mut self, _end: Time) -> io::Result<()> {
        self.start()?;
        self.out.flush()
    }
}
