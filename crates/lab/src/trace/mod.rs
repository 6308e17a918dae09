//! The story of a run: every event with its Lamport and vector time, in several forms.
//!
//! | form | file name | for |
//! |---|---|---|
//! | JSON lines | `.jsonl` | programs |
//! | ShiViz log | `.shiviz` | the ShiViz page, with the parser expression in its first line |
//! | Chrome trace | `.perfetto.json` | Perfetto, or a Chromium browser's tracing page |
//! | Mermaid | `.mmd` | a sequence diagram in a document |
//! | SVG | `.svg` | a space-time diagram for a slide |

mod columns;
mod jsonl;
mod mermaid;
mod perfetto;
mod shiviz;
mod stage;
mod story;
mod svg;

pub use columns::Columns;
pub use stage::{Held, SiteState, Stage};
pub use story::{Story, sentence};

use crate::property::{Name, Names};
use crate::time::Time;
use lockkeeper_core::{Mode, SiteId};
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

/// One event of a run.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// Its number, from 1.
    pub number: u64,
    /// When it happened.
    pub at: Time,
    /// Where.
    pub site: SiteId,
    /// What.
    pub what: What<'a>,
    /// The site's Lamport clock.
    pub lamport: u64,
    /// The site's vector clock.
    pub vector: &'a [u32],
    /// Which rules of the algorithm the site followed, each the rest of a sentence.
    pub why: &'a [&'static str],
    /// What the site sent in the same step.
    pub sends: &'a [Sent<'a>],
    /// The number of the first message sent in this step; the others follow.
    pub first_id: u64,
    /// What the processes are called.
    pub names: Names,
}

impl Record<'_> {
    /// The name of the site it happened at.
    pub fn name(&self) -> Name {
        self.names.of(self.site)
    }
}

/// A message as it is sent.
#[derive(Clone, Copy)]
pub struct Sent<'a> {
    /// To whom.
    pub to: SiteId,
    /// What it says.
    pub message: &'a dyn Display,
}

/// What happened.
#[derive(Clone, Copy)]
pub enum What<'a> {
    /// The site sends something of its own accord when the system starts.
    Start,
    /// The site asks.
    Request {
        /// In this mode.
        mode: Mode,
    },
    /// The site enters.
    Enter {
        /// With this fence.
        fence: u64,
        /// In this mode.
        mode: Mode,
    },
    /// The site leaves.
    Exit,
    /// The site starts an election.
    Campaign,
    /// The site learns who leads.
    Elected {
        /// Who.
        leader: SiteId,
    },
    /// The site receives a message.
    Receive {
        /// From whom.
        from: SiteId,
        /// The message's number.
        id: u64,
        /// What it says.
        message: &'a dyn Display,
        /// When it was sent.
        sent: Time,
    },
    /// A message to the site is lost.
    Lost {
        /// From whom.
        from: SiteId,
        /// The message's number.
        id: u64,
        /// What it said.
        message: &'a dyn Display,
        /// When it was sent.
        sent: Time,
    },
    /// The site crashes.
    Crash,
    /// The site starts again from scratch.
    Recover,
    /// The site stops for a while.
    Pause,
    /// The site goes on.
    Resume,
    /// The site suspects another.
    Suspect {
        /// Whom.
        suspect: SiteId,
    },
    /// A timer runs out.
    Timer,
    /// A remark, or a change of the network.
    Say {
        /// What there is to say.
        text: &'a str,
    },
}

/// Where the events of a run go.
pub trait Sink {
    /// Learns the command that makes this very trace again. Comes before everything else.
    fn command(&mut self, _command: &str) -> io::Result<()> {
        Ok(())
    }

    /// Takes one event.
    fn record(&mut self, record: &Record<'_>) -> io::Result<()>;

    /// Sees the sites before the first event, and after each one. Ends the run by answering `false`.
    fn look(&mut self, _stage: &dyn Stage) -> bool {
        true
    }

    /// The run is over.
    fn finish(&mut self, end: Time) -> io::Result<()>;
}

/// A form of trace that fits a file's name, writing to `out`.
pub fn sink_for(
    path: &Path,
    title: &str,
    names: Names,
    processes: usize,
    out: Box<dyn Write>,
) -> Result<Box<dyn Sink>, String> {
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
        return Err(format!(
            "the form of a trace follows its file's name: .jsonl, .shiviz, .perfetto.json, .mmd or .svg, \
             and '{}' has none of these",
            path.display()
        ));
    })
}

/// What the tracer sends along with a message.
#[derive(Clone, Debug)]
pub struct Stamp {
    id: u64,
    lamport: u64,
    vector: Rc<[u32]>,
}

/// A message that arrives, with what travelled along.
#[derive(Clone, Copy)]
pub struct Arrival<'a> {
    /// From whom.
    pub from: SiteId,
    /// What the tracer sent along.
    pub stamp: &'a Stamp,
    /// What it says.
    pub message: &'a dyn Display,
    /// When it was sent.
    pub sent: Time,
}

/// Keeps the clocks of all processes and hands each event to a sink. A step of a site, with all that it sends, is
/// one event; so is an entry.
pub struct Tracer<'a> {
    sink: &'a mut dyn Sink,
    names: Names,
    events: u64,
    messages: u64,
    lamport: Vec<u64>,
    vector: Vec<Vec<u32>>,
    error: Option<io::Error>,
}

impl<'a> Tracer<'a> {
    /// A tracer for so many processes.
    pub fn new(sink: &'a mut dyn Sink, names: Names, processes: usize) -> Self {
        Self {
            sink,
            names,
            events: 0,
            messages: 0,
            lamport: vec![0; processes],
            vector: vec![vec![0; processes]; processes],
            error: None,
        }
    }

    /// Something happens at a site that does not come from a message. What it sends must be stamped next.
    pub fn local(
        &mut self,
        at: Time,
        site: SiteId,
        what: What<'_>,
        why: &[&'static str],
        sends: &[Sent<'_>],
    ) {
        self.tick(site);
        self.emit(at, site, what, why, sends);
    }

    /// A message is received. What the site sends in return must be stamped next.
    pub fn receive(
        &mut self,
        at: Time,
        site: SiteId,
        arrival: Arrival<'_>,
        why: &[&'static str],
        sends: &[Sent<'_>],
    ) {
        let Arrival { from, stamp, message, sent } = arrival;
        let lamport = &mut self.lamport[site.index()];
        *lamport = stamp.lamport.max(*lamport);
        for (mine, theirs) in self.vector[site.index()].iter_mut().zip(stamp.vector.iter()) {
            *mine = theirs.max(mine).to_owned();
        }
        self.tick(site);
        self.emit(at, site, What::Receive { from, id: stamp.id, message, sent }, why, sends);
    }

    /// What travels along with the next message that the site's last event sent. `previous` is what travels along
    /// with the one before, if that was sent by the same event.
    pub fn stamp(&mut self, site: SiteId, previous: Option<Stamp>) -> Stamp {
        self.messages += 1;
        let vector =
            previous.map_or_else(|| self.vector[site.index()].as_slice().into(), |stamp| stamp.vector);
        Stamp { id: self.messages, lamport: self.lamport[site.index()], vector }
    }

    /// A message is lost. Nobody notices, so no clock ticks.
    pub fn lost(&mut self, at: Time, to: SiteId, arrival: Arrival<'_>) {
        let Arrival { from, stamp, message, sent } = arrival;
        self.emit(at, to, What::Lost { from, id: stamp.id, message, sent }, &[], &[]);
    }

    /// A remark.
    pub fn say(&mut self, at: Time, text: &str) {
        self.emit(at, SiteId(0), What::Say { text }, &[], &[]);
    }

    /// Shows the sites to the sink; `false` if it has seen enough.
    pub fn look(&mut self, stage: &dyn Stage) -> bool {
        self.sink.look(stage)
    }

    /// The run is over.
    pub fn finish(mut self, end: Time) -> io::Result<()> {
        let finished = self.sink.finish(end);
        self.error.take().map_or(finished, Err)
    }

    fn tick(&mut self, site: SiteId) {
        self.lamport[site.index()] += 1;
        self.vector[site.index()][site.index()] += 1;
    }

    fn emit(&mut self, at: Time, site: SiteId, what: What<'_>, why: &[&'static str], sends: &[Sent<'_>]) {
        self.events += 1;
        let record = Record {
            number: self.events,
            at,
            site,
            what,
            lamport: self.lamport[site.index()],
            vector: &self.vector[site.index()],
            why,
            sends,
            first_id: self.messages + 1,
            names: self.names,
        };
        // The first error is the one worth telling; a run goes on without its trace.
        if self.error.is_none()
            && let Err(error) = self.sink.record(&record)
        {
            self.error = Some(error);
        }
    }
}
