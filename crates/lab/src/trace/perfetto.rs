//! A Chrome trace for Perfetto: one row per process, slices for waiting and critical sections, arrows for
//! messages.

use super::{EventKind, Record, Sink, sentence};
use crate::property::Names;
use crate::simulator::time::Time;
use lockkeeper_core::{Mode, SiteId};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Writes one JSON document. One T is shown as one millisecond.
pub struct Perfetto {
    out: Box<dyn Write>,
    names: Names,
    processes: usize,
    /// The current slice of each process: its name and start.
    doing: Vec<Option<(&'static str, Time)>>,
    started: bool,
}

/// Chrome traces count in microseconds.
fn micros(time: Time) -> f64 {
    time.as_t() * 1000.0
}

impl Perfetto {
    pub fn new(out: Box<dyn Write>, names: Names, processes: usize) -> Self {
        Self { out, names, processes, doing: vec![None; processes], started: false }
    }

    fn start(&mut self) -> io::Result<()> {
        if self.started {
            return Ok(());
        }
        self.started = true;
        write!(self.out, r#"{{"displayTimeUnit":"ms","traceEvents":["#)?;
        write!(
            self.out,
            "{}",
            json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "sites"}})
        )?;
        for site in SiteId::all(self.processes) {
            let name = self.names.of(site).to_string();
            self.event(json!({"ph": "M", "pid": 1, "tid": site.number(), "name": "thread_name", "args": {"name": name}}))?;
        }
        Ok(())
    }

    fn event(&mut self, event: Value) -> io::Result<()> {
        write!(self.out, ",\n{event}")
    }

    fn change(&mut self, site: SiteId, doing: Option<&'static str>, now: Time) -> io::Result<()> {
        if let Some((name, since)) = self.doing[site.index()].take() {
            let lasted = micros(now - since);
            self.event(json!({"ph": "X", "pid": 1, "tid": site.number(), "name": name, "ts": micros(since), "dur": lasted}))?;
        }
        self.doing[site.index()] = doing.map(|name| (name, now));
        Ok(())
    }

    fn instant(&mut self, record: &Record<'_>, name: &str) -> io::Result<()> {
        let args = json!({"what": sentence(record), "lamport": record.lamport, "vector": record.vector});
        let at = micros(record.at);
        self.event(json!({"ph": "i", "s": "t", "pid": 1, "tid": record.site.number(), "name": name, "ts": at, "args": args}))
    }

    fn flow(&mut self, record: &Record<'_>, phase: &str, id: u64, message: &str) -> io::Result<()> {
        // Perfetto draws arrows between slices, so each end of a message gets a thin slice.
        let (at, tid) = (micros(record.at), record.site.number());
        let args = json!({"what": sentence(record), "lamport": record.lamport, "vector": record.vector});
        self.event(
            json!({"ph": "X", "pid": 1, "tid": tid, "name": message, "ts": at, "dur": 1, "args": args}),
        )?;
        self.event(json!({"ph": phase, "bp": "e", "pid": 1, "tid": tid, "name": message, "cat": "message", "id": id, "ts": at}))
    }
}

impl Sink for Perfetto {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.start()?;
        let (site, now) = (record.site, record.at);
        match record.what {
            EventKind::Start => self.instant(record, "start"),
            EventKind::Request { mode: Mode::Exclusive } => self.change(site, Some("waiting"), now),
            EventKind::Request { mode: Mode::Shared } => self.change(site, Some("waiting to share"), now),
            EventKind::Enter { mode: Mode::Exclusive, .. } => self.change(site, Some("inside"), now),
            EventKind::Enter { mode: Mode::Shared, .. } => self.change(site, Some("sharing"), now),
            EventKind::Exit | EventKind::Recover => self.change(site, None, now),
            EventKind::Campaign => self.change(site, Some("campaigning"), now),
            EventKind::Elected { leader } => self.change(site, (leader == site).then_some("leading"), now),
            EventKind::Crash => self.change(site, Some("crashed"), now),
            EventKind::Receive { id, message, .. } => self.flow(record, "f", id, &message.to_string()),
            EventKind::Lost { .. } => self.instant(record, "lost"),
            EventKind::Pause => self.instant(record, "pause"),
            EventKind::Resume => self.instant(record, "resume"),
            EventKind::Suspect { .. } => self.instant(record, "suspect"),
            EventKind::Timer => self.instant(record, "timer"),
            EventKind::Remark { .. } => self.instant(record, "note"),
        }?;
        for (id, sent) in (record.first_id..).zip(record.sends) {
            self.flow(record, "s", id, &sent.message.to_string())?;
        }
        Ok(())
    }

    fn finish(&mut self, end: Time) -> io::Result<()> {
        self.start()?;
        for site in SiteId::all(self.processes) {
            self.change(site, None, end)?;
        }
        writeln!(self.out, "\n]}}")?;
        self.out.flush()
    }
}
