//! The events of a run, and which of them happened before which.

use crate::simulator::run_spec::RunSpec;
use crate::simulator::runner::{Error, Progress};
use crate::simulator::time::Time;
use crate::trace::clocks::{ClockUpdate, Clocks};
use crate::trace::{Columns, EventKind, Record, Sink, Stage, sentence};
use lockkeeper_core::SiteId;
use std::collections::BTreeMap;
use std::fmt;
use std::io;

/// The most events of a history.
pub const MOST_EVENTS: usize = 1_000;

/// Two events, by their places in [`History::events`].
pub type Pair = (usize, usize);

/// An event of a run.
#[derive(Clone, Debug)]
pub struct Event {
    /// The process at which it happened.
    pub site: SiteId,
    /// Its number among the events of its process, from 1.
    pub number: usize,
    /// The time.
    pub at: Time,
    /// The event in a sentence.
    pub say: String,
    /// The message that it receives, by its place in [`History::messages`].
    pub receives: Option<usize>,
}

/// A message of a run.
#[derive(Clone, Debug)]
pub struct Message {
    /// The text of the message.
    pub text: String,
    /// The receiver.
    pub to: SiteId,
    /// The event that sends it.
    pub sent: usize,
    /// The events that receive it: none if it is lost or under way, several if it is duplicated.
    pub received: Vec<usize>,
}

/// The clocks of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The Lamport clock.
    pub lamport: u64,
    /// The vector clock.
    pub vector: Vec<u32>,
}

impl Stamp {
    /// Whether the vector of this stamp is smaller than that of another: no component is larger, and one is smaller.
    pub fn is_before(&self, other: &Self) -> bool {
        let mut pairs = self.vector.iter().zip(&other.vector);
        self.vector != other.vector && pairs.all(|(mine, theirs)| mine <= theirs)
    }
}

/// How an event is related to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It is the event itself.
    Same,
    /// It happened before the other.
    Before,
    /// The other happened before it.
    After,
    /// Neither happened before the other.
    Concurrent,
}

/// An event that the history does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The text names no event.
    #[error("'{text}' names no event: write S2:3 for the third event of S2")]
    Text {
        /// The text.
        text: String,
    },
    /// The process does not exist.
    #[error("there is no process '{text}' in this run: it has {}", names.join(", "))]
    Process {
        /// The name as given.
        text: String,
        /// The names of the processes.
        names: Vec<String>,
    },
    /// The process has fewer events.
    #[error("{name} has {events} events in this run, and no event {number}")]
    Number {
        /// The name of the process.
        name: String,
        /// The number of its events.
        events: usize,
        /// The number as given.
        number: usize,
    },
}

/// The events and messages of a run, in the order in which they happened.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The display names of the processes.
    pub names: Vec<String>,
    /// The events; every event comes after those that happened before it.
    pub events: Vec<Event>,
    /// The messages.
    pub messages: Vec<Message>,
    /// Lines of the diagram in text, each with the event that it shows; the names of the processes, remarks and losses
    /// have none.
    pub rows: Vec<(Option<usize>, String)>,
    /// Whether the run is longer.
    pub cut_off: bool,
    /// For each event, the events that happened before it, one bit each.
    past: Vec<Vec<u64>>,
}

impl History {
    /// The history of one run.
    pub fn of_run(run: &RunSpec, seed: u64) -> Result<Self, Error> {
        let names = run.names();
        let processes = run.processes()?;
        let mut recorder = Recorder {
            history: Self::new(SiteId::all(processes).map(|site| names.of(site).to_string()).collect()),
            columns: Columns::new(names, processes),
            sent: BTreeMap::new(),
        };
        let header = recorder.columns.lines[0][5..].to_string();
        recorder.history.rows.push((None, header));
        match run.trace(seed, &mut recorder, &Progress::default()) {
            Err(Error::Interrupted) if recorder.history.cut_off => {}
            ended => drop(ended?),
        }
        Ok(recorder.history)
    }

    /// A history without events.
    pub fn new(names: Vec<String>) -> Self {
        Self { names, ..Self::default() }
    }

    /// Adds an event that receives a message or none. Returns its place.
    pub fn add(&mut self, site: SiteId, at: Time, say: String, receives: Option<usize>) -> usize {
        let place = self.events.len();
        let before = self.events.iter().rposition(|event| event.site == site);
        let number = before.map_or(1, |before| self.events[before].number + 1);
        let mut past = vec![0; place.div_ceil(64)];
        let causes = before.into_iter().chain(receives.map(|message| self.messages[message].sent));
        for cause in causes {
            past[cause / 64] |= 1 << (cause % 64);
            for (mine, theirs) in past.iter_mut().zip(&self.past[cause]) {
                *mine |= theirs;
            }
        }
        self.past.push(past);
        if let Some(message) = receives {
            self.messages[message].received.push(place);
        }
        self.events.push(Event { site, number, at, say, receives });
        place
    }

    /// Adds a message that an event sends. Returns its place.
    pub fn send(&mut self, sent: usize, to: SiteId, text: String) -> usize {
        self.messages.push(Message { text, to, sent, received: Vec::new() });
        self.messages.len() - 1
    }

    /// Whether an event happened before another: there is a path of events of one process and of messages.
    pub fn happened_before(&self, one: usize, other: usize) -> bool {
        self.past[other].get(one / 64).is_some_and(|bits| bits & 1 << (one % 64) != 0)
    }

    /// How an event is related to another.
    pub fn relation(&self, one: usize, other: usize) -> Relation {
        if one == other {
            Relation::Same
        } else if self.happened_before(one, other) {
            Relation::Before
        } else if self.happened_before(other, one) {
            Relation::After
        } else {
            Relation::Concurrent
        }
    }

    /// The clocks of all events, updated by this rule.
    pub fn stamps(&self, update: ClockUpdate) -> Vec<Stamp> {
        let mut clocks = Clocks::new(self.names.len(), update);
        let mut stamps: Vec<Stamp> = Vec::with_capacity(self.events.len());
        for event in &self.events {
            match event.receives.map(|message| &stamps[self.messages[message].sent]) {
                Some(sent) => clocks.receive(event.site, sent.lamport, &sent.vector),
                None => clocks.tick(event.site),
            }
            stamps.push(Stamp {
                lamport: clocks.lamport(event.site),
                vector: clocks.vector(event.site).to_vec(),
            });
        }
        stamps
    }

    /// The first pair of events for which the clocks do not fit happened-before: the vector of one has to be smaller
    /// than that of the other exactly if it happened before, and its Lamport clock has to be smaller if it did.
    pub fn misfit(&self, stamps: &[Stamp]) -> Option<(usize, usize)> {
        let pairs =
            (0..self.events.len()).flat_map(|one| (0..self.events.len()).map(move |other| (one, other)));
        pairs.into_iter().find(|&(one, other)| {
            let before = self.happened_before(one, other);
            before != stamps[one].is_before(&stamps[other])
                || (before && stamps[one].lamport >= stamps[other].lamport)
        })
    }

    /// The pairs of events that are ordered, and those that are concurrent; each pair once, the first event first.
    pub fn pairs(&self) -> (Vec<Pair>, Vec<Pair>) {
        let all = (0..self.events.len()).flat_map(|other| (0..other).map(move |one| (one, other)));
        all.partition(|&(one, other)| self.happened_before(one, other))
    }

    /// The name of an event: `S2:3`.
    pub fn name(&self, event: usize) -> String {
        let Event { site, number, .. } = &self.events[event];
        format!("{}:{number}", self.names[site.index()])
    }

    /// The number of events of a process.
    pub fn events_of(&self, site: SiteId) -> usize {
        self.events.iter().filter(|event| event.site == site).count()
    }

    /// The process of this name.
    pub fn process(&self, text: &str) -> Result<SiteId, HistoryError> {
        let found = self.names.iter().position(|name| name == text);
        found
            .map(SiteId::new)
            .ok_or_else(|| HistoryError::Process { text: text.into(), names: self.names.clone() })
    }

    /// The event of this name.
    pub fn find(&self, text: &str) -> Result<usize, HistoryError> {
        let wrong = || HistoryError::Text { text: text.into() };
        let (name, number) = text.split_once(':').ok_or_else(wrong)?;
        let number: usize = number.parse().map_err(|_| wrong())?;
        let site = self.process(name)?;
        let found = self.events.iter().position(|event| event.site == site && event.number == number);
        found.ok_or_else(|| HistoryError::Number { name: name.into(), events: self.events_of(site), number })
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vector: Vec<String> = self.vector.iter().map(ToString::to_string).collect();
        write!(f, "L {}  V ({})", self.lamport, vector.join(","))
    }
}

/// A sink that makes a history of a run.
struct Recorder {
    history: History,
    columns: Columns,
    /// The places of the messages, by their numbers in the trace.
    sent: BTreeMap<u64, usize>,
}

impl Sink for Recorder {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let rows = self.columns.lines.len();
        self.columns.record(record)?;
        let row = self.columns.lines.get(rows).map_or_else(|| sentence(record), |row| row[5..].to_string());
        let history = &mut self.history;
        let receives = match record.what {
            EventKind::Lost { .. } | EventKind::Remark { .. } => {
                history.rows.push((None, row));
                return Ok(());
            }
            EventKind::Receive { id, .. } => self.sent.get(&id).copied(),
            _ => None,
        };
        let place = history.add(record.site, record.at, sentence(record), receives);
        history.rows.push((Some(place), row));
        for (id, sent) in (record.first_id..).zip(record.sends) {
            self.sent.insert(id, history.send(place, sent.to, sent.message.to_string()));
        }
        Ok(())
    }

    fn look(&mut self, _stage: &dyn Stage) -> bool {
        self.history.cut_off = self.history.events.len() >= MOST_EVENTS;
        !self.history.cut_off
    }

    fn finish(&mut self, _end: Time) -> io::Result<()> {
        Ok(())
    }
}
