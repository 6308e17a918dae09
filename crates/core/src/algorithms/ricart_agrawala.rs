//! # Ricart and Agrawala's algorithm
//!
//! Glenn Ricart, Ashok K. Agrawala: *An Optimal Algorithm for Mutual Exclusion in Computer Networks*.
//! Communications of the ACM 24(1), 1981, pages 9–17; the algorithm is in section 2.
//!
//! **Idea.** A reply is a permission. A site sends its request to all others. A site that has no request, or a later
//! one, replies at once; a site that is inside, or has an earlier request, defers its reply until it leaves. The
//! deferred reply makes Lamport's RELEASE unnecessary.
//!
//! **Assumes** reliable channels in any order; no crashes.
//!
//! **Cost.** REQUEST to and REPLY from each other site: 2(N−1) messages per entry; T from an exit to the next entry.
//! A deferred REPLY is sent at the exit of one site, but it permits the entry of another: it is counted there.
//!
//! **Pitfalls.** Ties are broken by the site's number, or two sites defer each other for ever. The clock must advance
//! to the time of every request received, or a late requester overtakes earlier ones. A site inside defers every
//! request. A REPLY carries no time, so the order is that of the timestamps, but not always that of causality: a site
//! can learn of a request through the REPLY of a third site, request with a smaller time, and go first (seen under
//! random delays).
//!
//! With `timeout=D` a site that has waited for D enters with the replies that it has. That helps when the silent sites
//! are dead, and admits two sites when they are slow, cut off, or inside for longer than D.

use crate::mutex::{Channels, Cost, Family, LARGEST_NUMBER};
use crate::settings::{OptionsError, Setting, Settings, TIMEOUT_VALUES};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, LamportClock,
    Load, MessageKind, MessageKinds, MutualExclusion, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    SiteSet, Timeout, Timestamp, Validate,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The sender requests to enter. The value is the time of the request.
    Request(u64),
    /// The sender permits the receiver to enter.
    Reply,
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[MessageKind::enter("REQUEST"), MessageKind::enter("REPLY")];

    fn kind(&self) -> usize {
        match self {
            Self::Request(_) => 0,
            Self::Reply => 1,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(time) => write!(f, "REQUEST({time})"),
            Self::Reply => f.write_str("REPLY"),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// Section 2: the process that invokes mutual exclusion.
        Asks: "asks all other sites for permission",
        /// Section 2: the process that receives REQUEST messages.
        RepliesIdle: "does not request: it replies at once",
        /// Section 2, by the timestamps.
        RepliesYounger: "requests too, but the other request comes first: it replies at once",
        /// Section 2, by the timestamps.
        DefersOlder: "requests too, and its own request comes first: it defers its reply",
        /// Section 2.
        DefersInside: "is inside: it defers its reply",
        /// Section 2: the process that receives REPLY messages.
        Collects: "has one more permission",
        /// The last REPLY is in.
        Enters: "has the permission of all sites: it enters",
        /// No rule of the paper: the setting `timeout`.
        GoesOn: "has waited long enough: it enters without the permission of the silent sites",
        /// Section 2: release of the critical section.
        Leaves: "sends the replies that it deferred, if any",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RicartAgrawala {
    me: SiteId,
    /// The paper's `Highest_Sequence_Number`.
    clock: LamportClock,
    phase: Phase,
    /// The paper's `Our_Sequence_Number`.
    requested: u64,
    /// The sites whose reply is missing. The paper keeps only their number, `Outstanding_Reply_Count`.
    missing: SiteSet,
    /// The paper's `Reply_Deferred`.
    deferred: SiteSet,
    /// How long the site waits before it enters without the missing replies, in thousandths of T.
    timeout: Option<u64>,
}

/// The timeout of a site that waits for replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The timeout in thousandths of T; `None` for no timeout, as in the paper.
    pub timeout: Option<u64>,
}

impl RicartAgrawala {
    fn own_request(&self) -> Timestamp {
        Timestamp { time: self.requested, site: self.me }
    }

    fn enter_if_possible(&mut self, out: &mut Out<Self>) {
        if self.missing.is_empty() {
            out.rule(Rule::Enters);
            self.enter(out);
        }
    }

    fn enter(&mut self, out: &mut Out<Self>) {
        self.phase = Phase::Inside;
        out.output(Entered);
        if self.timeout.is_some() {
            out.disarm(Timeout);
        }
    }

    fn request(&mut self, request: Timestamp, out: &mut Out<Self>) {
        self.clock.observe(request.time);
        // Example: both sites are waiting, S1 with (4, S1) and S2 with (4, S2). The times are equal and S1 is lower, so
        // S1 defers its reply to S2, and S2 replies to S1 at once.
        let defer = match self.phase {
            Phase::Idle => false,
            Phase::Waiting => self.own_request() < request,
            Phase::Inside => true,
        };
        out.rule(match (self.phase, defer) {
            (Phase::Idle, _) => Rule::RepliesIdle,
            (Phase::Waiting, false) => Rule::RepliesYounger,
            (Phase::Waiting, true) => Rule::DefersOlder,
            (Phase::Inside, _) => Rule::DefersInside,
        });
        if defer {
            self.deferred.insert(request.site);
        } else {
            out.send(request.site, Message::Reply);
        }
    }
}

impl Protocol for RicartAgrawala {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Timeout;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) => {
                out.rule(Rule::Asks);
                self.phase = Phase::Waiting;
                self.requested = self.clock.tick();
                self.missing.extend(out.others());
                out.broadcast(Message::Request(self.requested));
                if let Some(timeout) = self.timeout {
                    out.arm(Timeout, timeout);
                }
                self.enter_if_possible(out);
            }
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
            Message::Request(time) => self.request(Timestamp { time, site: from }, out),
            Message::Reply => {
                if self.missing.remove(from) {
                    out.rule(Rule::Collects);
                    self.enter_if_possible(out);
                }
            }
        }
    }

    fn timer(&mut self, _timeout: Timeout, out: &mut Out<Self>) {
        if self.phase == Phase::Waiting {
            out.rule(Rule::GoesOn);
            self.missing.clear();
            self.enter(out);
        }
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![
            Field::new("state", self.phase),
            Field::new("highest time seen", self.clock.now()),
            Field::new("replies deferred", &self.deferred),
        ];
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

impl MutualExclusion for RicartAgrawala {
    const ABOUT: About = About {
        slug: "ricart-agrawala",
        title: "Ricart and Agrawala's algorithm",
        family: Family::Permission,
        paper: "Ricart and Agrawala, An Optimal Algorithm for Mutual Exclusion in Computer Networks, CACM 1981",
        idea: "A site enters with the permission of all others; one that is inside or requested earlier \
               gives it on leaving.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost { low: "2(N−1)", high: "2(N−1)", sync_delay: "T", client_delay: "2T" },
        crash: "of any site: all sites wait for its reply for ever",
        settings: &[Setting {
            name: "timeout",
            values: TIMEOUT_VALUES,
            default: "none",
            help: "how long a site waits before it enters without the missing replies: unsafe if their sites are alive",
        }],
    };
    const HAS_CLOCKS: bool = true;

    fn start(me: SiteId, setup: &Setup<Options>, _out: &mut Out<Self>) -> Self {
        Self {
            me,
            clock: setup.clock_of(me),
            phase: setup.phase_of(me),
            requested: 0,
            missing: SiteSet::none(setup.sites),
            deferred: SiteSet::none(setup.sites),
            timeout: setup.options.timeout,
        }
    }

    fn is_wanted(&self) -> bool {
        !self.deferred.is_empty()
    }
}

impl Configure for RicartAgrawala {
    type Options = Options;

    fn options(settings: &mut Settings, _sites: usize) -> Result<Options, OptionsError> {
        Ok(Options { timeout: settings.take_timeout()? })
    }
}

impl PaperFigures for RicartAgrawala {
    fn unreachable_labels(options: &Options) -> &'static [&'static str] {
        const GOES_ON: &[&str] =
            &["has waited long enough: it enters without the permission of the silent sites"];
        if options.timeout.is_none() { GOES_ON } else { &[] }
    }

    fn in_timestamp_order() -> bool {
        true
    }

    fn most_messages(sites: usize, _options: &Options) -> Option<usize> {
        Some(2 * (sites - 1))
    }

    fn expected(_load: Load, sites: usize, _options: &Options) -> Expected {
        let alone = sites == 1;
        Expected {
            messages_per_entry: Some(2.0 * (sites as f64 - 1.0)),
            sync_delay: (!alone).then_some(1.0),
            client_delay: Some(if alone { 0.0 } else { 2.0 }),
            ..Expected::default()
        }
    }
}

impl Inspect for RicartAgrawala {
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
        if let Message::Request(time) = message {
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

impl Validate for RicartAgrawala {
    fn is_well_formed(message: &Message, _sites: usize) -> bool {
        !matches!(message, Message::Request(time) if *time > LARGEST_NUMBER)
    }
}
