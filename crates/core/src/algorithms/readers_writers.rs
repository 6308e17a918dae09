//! # Readers and writers by permission
//!
//! P. J. Courtois, F. Heymans, D. L. Parnas: *Concurrent Control with "Readers" and "Writers"*. Communications of the
//! ACM 14(10), 1971, pages 667–668, states the problem. The protocol is Ricart and Agrawala's of 1981, in which only
//! requests that conflict are deferred.
//!
//! **Idea.** A site sends its request to all others, with its mode (read or write), and enters with the permission of
//! all. A reader never delays another reader: it replies at once, even from inside. In all other cases the older
//! request goes first. So a waiting writer defers the readers that request after it: readers cannot pass it one by one
//! for ever, nor can writers pass a reader.
//!
//! **Assumes** reliable channels in any order; no crashes.
//!
//! **Cost.** REQUEST to and REPLY from each other site: 2(N−1) messages per entry, for any share of readers; T from the
//! exit of a writer or of the last reader to the next entry. All readers between two writers are inside together.
//!
//! **Pitfalls.** A waiting writer must not let later readers pass, although they would only share: it would give its
//! permission to a reader whose permission it may have already, and both would enter. A reader inside that replies to a
//! writer admits it too early. A request carries its mode, because the receiver cannot know it otherwise. Ties and
//! clocks are as in Ricart and Agrawala's algorithm. Fences rise from a writer to the next entry and from any entry to
//! the next writer; readers between two writers may have the same.

use crate::mutex::{Channels, Cost, Family, LARGEST_NUMBER};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, LamportClock,
    Load, MessageKind, MessageKinds, Mode, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup,
    Sharing, SiteId, SiteSet, Timestamp, Validate,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The sender requests to read. The value is the time of the request.
    Read(u64),
    /// The sender requests to write. The value is the time of the request.
    Write(u64),
    /// The sender permits the receiver to enter.
    Reply,
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] =
        &[MessageKind::enter("READ"), MessageKind::enter("WRITE"), MessageKind::enter("REPLY")];

    fn kind(&self) -> usize {
        match self {
            Self::Read(_) => 0,
            Self::Write(_) => 1,
            Self::Reply => 2,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(time) => write!(f, "READ({time})"),
            Self::Write(time) => write!(f, "WRITE({time})"),
            Self::Reply => f.write_str("REPLY"),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// A reader requests.
        AsksToRead: "asks all other sites for permission to read",
        /// A writer requests.
        AsksToWrite: "asks all other sites for permission to write",
        /// A request arrives.
        RepliesIdle: "does not request: it replies at once",
        /// A reader's request arrives at a reader that waits or is inside.
        RepliesReader: "reads too, or waits to read: it replies at once",
        /// A request arrives that conflicts; by the timestamps.
        RepliesYounger: "requests too, but the other request comes first: it replies at once",
        /// A request arrives that conflicts; by the timestamps.
        DefersOlder: "requests too, and its own request comes first: it defers its reply",
        /// A request arrives that conflicts.
        DefersInside: "is inside: it defers its reply",
        /// A REPLY arrives.
        Collects: "has one more permission",
        /// The last REPLY is in.
        Enters: "has the permission of all sites: it enters",
        /// The site leaves.
        Leaves: "sends the replies that it deferred, if any",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadersWriters {
    me: SiteId,
    /// The highest time seen in a request.
    clock: LamportClock,
    phase: Phase,
    /// The mode of the site's own request, pending or being served.
    mode: Mode,
    /// The time of the site's own request.
    requested: u64,
    /// The sites whose reply is missing.
    missing: SiteSet,
    deferred: SiteSet,
}

impl ReadersWriters {
    fn own_request(&self) -> Timestamp {
        Timestamp { time: self.requested, site: self.me }
    }

    fn enter_if_possible(&mut self, out: &mut Out<Self>) {
        if self.missing.is_empty() {
            out.rule(Rule::Enters);
            self.phase = Phase::Inside;
            out.output(Entered);
        }
    }

    fn ask(&mut self, mode: Mode, out: &mut Out<Self>) {
        self.phase = Phase::Waiting;
        self.mode = mode;
        self.requested = self.clock.tick();
        self.missing.extend(out.others());
        let (rule, request) = match mode {
            Mode::Shared => (Rule::AsksToRead, Message::Read(self.requested)),
            Mode::Exclusive => (Rule::AsksToWrite, Message::Write(self.requested)),
        };
        out.rule(rule);
        out.broadcast(request);
        self.enter_if_possible(out);
    }

    fn request(&mut self, request: Timestamp, mode: Mode, out: &mut Out<Self>) {
        self.clock.observe(request.time);
        let conflict = Sharing::ReadersWriters.conflict(self.mode, mode);
        let (rule, defer) = match self.phase {
            Phase::Idle => (Rule::RepliesIdle, false),
            _ if !conflict => (Rule::RepliesReader, false),
            Phase::Waiting if request < self.own_request() => (Rule::RepliesYounger, false),
            Phase::Waiting => (Rule::DefersOlder, true),
            Phase::Inside => (Rule::DefersInside, true),
        };
        out.rule(rule);
        if defer {
            self.deferred.insert(request.site);
        } else {
            out.send(request.site, Message::Reply);
        }
    }
}

impl Protocol for ReadersWriters {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(mode) => self.ask(mode, out),
            ApplicationInput::Release => {
                out.rule(Rule::Leaves);
                self.phase = Phase::Idle;
                for site in self.deferred.iter() {
                    out.send(site, Message::Reply);
                }
                self.deferred.clear();
            }
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Read(time) => self.request(Timestamp { time, site: from }, Mode::Shared, out),
            Message::Write(time) => self.request(Timestamp { time, site: from }, Mode::Exclusive, out),
            Message::Reply => {
                if self.missing.remove(from) {
                    out.rule(Rule::Collects);
                    self.enter_if_possible(out);
                }
            }
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![
            Field::new("state", self.phase),
            Field::new("highest time seen", self.clock.now()),
            Field::new("replies deferred", &self.deferred),
        ];
        if self.phase != Phase::Idle {
            fields.push(Field::new("mode", self.mode));
        }
        if self.phase == Phase::Waiting {
            fields.push(Field::new("own request", self.own_request()));
            fields.push(Field::new("replies missing", &self.missing));
        }
        fields
    }

    fn waits_for(&self) -> Vec<SiteId> {
        self.missing.iter().collect()
    }
}

impl MutualExclusion for ReadersWriters {
    const ABOUT: About = About {
        slug: "readers-writers",
        title: "Readers and writers by permission",
        family: Family::Permission,
        paper: "Courtois, Heymans and Parnas, Concurrent Control with \"Readers\" and \"Writers\", CACM 1971; \
                after Ricart and Agrawala, CACM 1981",
        idea: "A site enters with the permission of all others; readers never wait for readers, and otherwise \
               the older request goes first.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost { low: "2(N−1)", high: "2(N−1)", sync_delay: "T", client_delay: "2T" },
        crash: "of any site: all sites wait for its reply for ever",
        settings: &[],
    };
    const HAS_CLOCKS: bool = true;

    fn sharing(_options: &()) -> Sharing {
        Sharing::ReadersWriters
    }

    fn start(me: SiteId, setup: &Setup<()>, _out: &mut Out<Self>) -> Self {
        Self {
            me,
            clock: setup.clock_of(me),
            phase: setup.phase_of(me),
            mode: setup.mode_of(me).unwrap_or_default(),
            requested: 0,
            missing: SiteSet::none(setup.sites),
            deferred: SiteSet::none(setup.sites),
        }
    }
}

impl Configure for ReadersWriters {
    type Options = ();
}

impl PaperFigures for ReadersWriters {
    fn in_timestamp_order() -> bool {
        true
    }

    fn most_messages(sites: usize, _options: &()) -> Option<usize> {
        Some(2 * (sites - 1))
    }

    fn expected(_load: Load, sites: usize, _options: &()) -> Expected {
        let alone = sites == 1;
        Expected {
            messages_per_entry: Some(2.0 * (sites as f64 - 1.0)),
            sync_delay: (!alone).then_some(1.0),
            client_delay: Some(if alone { 0.0 } else { 2.0 }),
            ..Expected::default()
        }
    }
}

impl Inspect for ReadersWriters {
    fn scales(_sites: usize) -> usize {
        1
    }

    fn numbers(&mut self, visit: &mut dyn FnMut(usize, &mut u64)) {
        visit(0, self.clock.reading());
        match self.phase {
            Phase::Idle => self.requested = 0,
            _ => visit(0, &mut self.requested),
        }
    }

    fn numbers_in(_from: SiteId, message: &mut Message, visit: &mut dyn FnMut(usize, &mut u64)) {
        if let Message::Read(time) | Message::Write(time) = message {
            visit(0, time);
        }
    }

    fn timestamp(&self) -> Option<Timestamp> {
        (self.phase != Phase::Idle).then(|| self.own_request())
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        if self.phase == Phase::Inside && !self.missing.is_empty() {
            return Err(InvariantViolated("inside without the permission of all sites"));
        }
        if self.phase == Phase::Idle && !self.deferred.is_empty() {
            return Err(InvariantViolated("outside although it has deferred replies"));
        }
        Ok(())
    }
}

impl Validate for ReadersWriters {
    fn is_well_formed(message: &Message, _sites: usize) -> bool {
        !matches!(message, Message::Read(time) | Message::Write(time) if *time > LARGEST_NUMBER)
    }
}
