//! Traces of runs: every event with its Lamport and vector time, in several formats.
//!
//! | format | file name | for |
//! |---|---|---|
//! | JSON lines | `.jsonl` | programs |
//! | ShiViz log | `.shiviz` | the ShiViz page, with the parser expression in its first line |
//! | Chrome trace | `.perfetto.json` | Perfetto, or a Chromium browser's tracing page |
//! | Mermaid | `.mmd` | a sequence diagram in a document |
//! | SVG | `.svg` | a space-time diagram for a slide |
//!
//! A [`recording`] has every site's state at every step.

pub mod clocks;
mod columns;
mod jsonl;
mod mermaid;
mod perfetto;
pub mod recording;
mod shiviz;
mod stage;
mod story;
pub(crate) mod svg;

pub use columns::Columns;
pub use stage::{Held, SiteState, Stage};
pub use story::{Story, sentence};

use crate::property::{Name, Names};
use crate::simulator::time::Time;
use clocks::{ClockUpdate, Clocks};
use lockkeeper_core::{Mode, SiteId};
use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// One event of a run.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// Its number, from 1.
    pub number: u64,
    /// The time of the event.
    pub at: Time,
    /// The process at which it happened.
    pub site: SiteId,
    /// The kind of event.
    pub what: EventKind<'a>,
    /// The site's Lamport clock.
    pub lamport: u64,
    /// The site's vector clock.
    pub vector: &'a [u32],
    /// The rules of the algorithm that fired, each the rest of a sentence.
    pub why: &'a [&'static str],
    /// The messages that the site sent in the same step.
    pub sends: &'a [Sent<'a>],
    /// The number of the first message sent in this step; the others have the following numbers.
    pub first_id: u64,
    /// The display names of the processes.
    pub names: Names,
}

impl Record<'_> {
    /// The name of the process at which it happened.
    pub fn name(&self) -> Name {
        self.names.of(self.site)
    }
}

/// A message that is sent.
#[derive(Clone, Copy)]
pub struct Sent<'a> {
    /// The receiver.
    pub to: SiteId,
    /// The text of the message.
    pub message: &'a dyn Display,
}

/// The kind of an event.
#[derive(Clone, Copy)]
pub enum EventKind<'a> {
    /// The site sends a message at the start of the system.
    Start,
    /// The site requests.
    Request {
        /// The mode of the request.
        mode: Mode,
    },
    /// The site enters.
    Enter {
        /// The fence of the hold.
        fence: u64,
        /// The mode of the hold.
        mode: Mode,
    },
    /// The site leaves.
    Exit,
    /// The site starts an election.
    Campaign,
    /// The site learns the leader.
    Elected {
        /// The leader.
        leader: SiteId,
    },
    /// The site receives a message.
    Receive {
        /// The sender.
        from: SiteId,
        /// The message's number.
        id: u64,
        /// The text of the message.
        message: &'a dyn Display,
        /// The time of sending.
        sent: Time,
    },
    /// A message to the site is lost.
    Lost {
        /// The sender.
        from: SiteId,
        /// The message's number.
        id: u64,
        /// The text of the message.
        message: &'a dyn Display,
        /// The time of sending.
        sent: Time,
    },
    /// The site crashes.
    Crash,
    /// The site starts again with an initial state.
    Recover,
    /// The site pauses.
    Pause,
    /// The site resumes.
    Resume,
    /// The site suspects another.
    Suspect {
        /// The suspected site.
        suspect: SiteId,
    },
    /// A timer expires.
    Timer,
    /// A remark, or a change of the network.
    Remark {
        /// The text of the remark.
        text: &'a str,
    },
}

/// A consumer of the events of a run.
pub trait Sink {
    /// Receives the command that reproduces this trace. Called before all other methods.
    fn command(&mut self, _command: &str) -> io::Result<()> {
        Ok(())
    }

    /// Receives one event.
    fn record(&mut self, record: &Record<'_>) -> io::Result<()>;

    /// Called before the first event and after each event with the state of the sites. Returning `false` ends
    /// the run.
    fn look(&mut self, _stage: &dyn Stage) -> bool {
        true
    }

    /// Called at the end of the run.
    fn finish(&mut self, end: Time) -> io::Result<()>;
}

/// The file name of a trace names no known format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the form of a trace follows its file's name: .jsonl, .shiviz, .perfetto.json, .mmd or .svg, and '{}' has none of \
     these",
    path.display()
)]
pub struct UnknownFormat {
    /// The file name.
    pub path: PathBuf,
}

/// The sink whose format matches the file name; it writes to `out`.
pub fn sink_for(
    path: &Path,
    title: &str,
    names: Names,
    processes: usize,
    out: Box<dyn Write>,
) -> Result<Box<dyn Sink>, UnknownFormat> {
    let name = path.to_string_lossy().to_lowercase();
    Ok(if name.ends_with(".jsonl") {
        Box::new(jsonl::JsonLines::new(out, processes))
    } else if name.ends_with(".shiviz") {
        Box::new(shiviz::ShiViz::new(out))
    } else if name.ends_with(".perfetto.json") {
        Box::new(perfetto::Perfetto::new(out, names, processes))
    } else if name.ends_with(".mmd") {
        Box::new(mermaid::Mermaid::new(out, names, processes))
    } else if name.ends_with(".svg") {
        Box::new(svg::Svg::new(out, title, names, processes))
    } else {
        return Err(UnknownFormat { path: path.into() });
    })
}

/// The clocks that the tracer attaches to a message.
#[derive(Clone, Debug)]
pub struct Stamp {
    id: u64,
    lamport: u64,
    vector: Rc<[u32]>,
}

/// A message that arrives, with its stamp.
#[derive(Clone, Copy)]
pub struct Arrival<'a> {
    /// The sender.
    pub from: SiteId,
    /// The stamp of the message.
    pub stamp: &'a Stamp,
    /// The text of the message.
    pub message: &'a dyn Display,
    /// The time of sending.
    pub sent: Time,
}

/// Maintains the clocks of all processes and passes each event to a sink. A step of a site with all messages
/// that it sends is one event; an entry is another.
pub struct Tracer<'a> {
    sink: &'a mut dyn Sink,
    names: Names,
    events: u64,
    messages: u64,
    clocks: Clocks,
    error: Option<io::Error>,
}

impl<'a> Tracer<'a> {
    /// A tracer for `processes` processes.
    pub fn new(sink: &'a mut dyn Sink, names: Names, processes: usize) -> Self {
        Self {
            sink,
            names,
            events: 0,
            messages: 0,
            clocks: Clocks::new(processes, ClockUpdate::Maximum),
            error: None,
        }
    }

    /// Records an event that is not caused by a message. The messages that it sends must be stamped next.
    pub fn local(
        &mut self,
        at: Time,
        site: SiteId,
        what: EventKind<'_>,
        why: &[&'static str],
        sends: &[Sent<'_>],
    ) {
        self.clocks.tick(site);
        self.emit(at, site, what, why, sends);
    }

    /// Records the receipt of a message. The messages that the site sends in reaction must be stamped next.
    pub fn receive(
        &mut self,
        at: Time,
        site: SiteId,
        arrival: Arrival<'_>,
        why: &[&'static str],
        sends: &[Sent<'_>],
    ) {
        let Arrival { from, stamp, message, sent } = arrival;
        self.clocks.receive(site, stamp.lamport, &stamp.vector);
        self.emit(at, site, EventKind::Receive { from, id: stamp.id, message, sent }, why, sends);
    }

    /// The stamp of the next message of the site's last event. `previous` is the stamp of the message before,
    /// if the same event sent it; its vector is reused.
    pub fn stamp(&mut self, site: SiteId, previous: Option<Stamp>) -> Stamp {
        self.messages += 1;
        let vector = previous.map_or_else(|| self.clocks.vector(site).into(), |stamp| stamp.vector);
        Stamp { id: self.messages, lamport: self.clocks.lamport(site), vector }
    }

    /// Records the loss of a message. No process observes it, so no clock advances.
    pub fn lost(&mut self, at: Time, to: SiteId, arrival: Arrival<'_>) {
        let Arrival { from, stamp, message, sent } = arrival;
        self.emit(at, to, EventKind::Lost { from, id: stamp.id, message, sent }, &[], &[]);
    }

    /// Records a remark.
    pub fn say(&mut self, at: Time, text: &str) {
        self.emit(at, SiteId(0), EventKind::Remark { text }, &[], &[]);
    }

    /// Passes the state of the sites to the sink; `false` if the sink ends the run.
    pub fn look(&mut self, stage: &dyn Stage) -> bool {
        self.sink.look(stage)
    }

    /// Ends the trace; returns the first error of the sink.
    pub fn finish(mut self, end: Time) -> io::Result<()> {
        let finished = self.sink.finish(end);
        self.error.take().map_or(finished, Err)
    }

    fn emit(
        &mut self,
        at: Time,
        site: SiteId,
        what: EventKind<'_>,
        why: &[&'static str],
        sends: &[Sent<'_>],
    ) {
        self.events += 1;
        let record = Record {
            number: self.events,
            at,
            site,
            what,
            lamport: self.clocks.lamport(site),
            vector: self.clocks.vector(site),
            why,
            sends,
            first_id: self.messages + 1,
            names: self.names,
        };
        // Only the first error is kept; the run continues without its trace.
        if self.error.is_none()
            && let Err(error) = self.sink.record(&record)
        {
            self.error = Some(error);
        }
    }
}
