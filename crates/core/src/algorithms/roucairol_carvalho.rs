//! # Roucairol and Carvalho's algorithm
//!
//! Osvaldo Carvalho, Gérard Roucairol: *On Mutual Exclusion in Computer Networks*. Communications of the ACM 26(2),
//! 1983, pages 146–147.
//!
//! **Idea.** Ricart and Agrawala's algorithm with permissions that last: between any two sites there is one permission,
//! and the site that has it need not ask again until the other one requests it.
//!
//! **Assumes** FIFO channels, reliable; no crashes. Without FIFO order a site may receive a request for a permission
//! that is still in transit to it.
//!
//! **Cost.** 0 for a repeated entry, N−1 messages on average at low load, 2(N−1) when all sites request; T from an exit
//! to the next entry.
//!
//! **Pitfalls.** A site that gives a permission away while it waits must request it back at once: it sends REPLY *and*
//! a new REQUEST.

use crate::mutex::{Channels, Cost, Family, LARGEST_NUMBER};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, LamportClock,
    Load, MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup,
    SiteId, SiteSet, Timestamp, Validate,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The sender requests the receiver's permission. The value is the time of the request.
    Request(u64),
    /// The sender gives the permission until it requests it back.
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
        /// Some permissions are missing.
        Asks: "asks those whose permission it does not have",
        /// All permissions are here.
        Enters: "has the permission of all sites: it enters",
        /// The site has no request.
        GivesIdle: "does not request: it gives its permission away",
        /// The site has a later request.
        GivesYounger: "requests too, but the other request comes first: it gives its permission and asks for it back",
        /// The site has an earlier request.
        DefersOlder: "requests too, and its own request comes first: it defers",
        /// The site is inside.
        DefersInside: "is inside: it defers",
        /// A permission arrives.
        Collects: "has one more permission",
        /// The site leaves.
        Leaves: "gives away the permissions that it deferred, if any",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoucairolCarvalho {
    me: SiteId,
    clock: LamportClock,
    phase: Phase,
    requested: u64,
    /// The sites whose permission is not here.
    missing: SiteSet,
    deferred: SiteSet,
}

impl RoucairolCarvalho {
    fn own_request(&self) -> Timestamp {
        Timestamp { time: self.requested, site: self.me }
    }

    fn enter_if_possible(&mut self, out: &mut Out<Self>) {
        if self.phase == Phase::Waiting && self.missing.is_empty() {
            out.rule(Rule::Enters);
            self.phase = Phase::Inside;
            out.output(Entered);
        }
    }

    fn give(&mut self, to: SiteId, out: &mut Out<Self>) {
        self.missing.insert(to);
        out.send(to, Message::Reply);
    }

    fn request(&mut self, request: Timestamp, out: &mut Out<Self>) {
        self.clock.observe(request.time);
        match self.phase {
            Phase::Idle => {
                out.rule(Rule::GivesIdle);
                self.give(request.site, out);
            }
            Phase::Waiting if request < self.own_request() => {
                out.rule(Rule::GivesYounger);
                self.give(request.site, out);
                out.send(request.site, Message::Request(self.requested));
            }
            Phase::Waiting => {
                out.rule(Rule::DefersOlder);
                self.deferred.insert(request.site);
            }
            Phase::Inside => {
                out.rule(Rule::DefersInside);
                self.deferred.insert(request.site);
            }
        }
    }
}

impl Protocol for RoucairolCarvalho {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) => {
                self.phase = Phase::Waiting;
                self.requested = self.clock.tick();
                if !self.missing.is_empty() {
                    out.rule(Rule::Asks);
                }
                for site in self.missing.iter() {
                    out.send(site, Message::Request(self.requested));
                }
                self.enter_if_possible(out);
            }
            ApplicationInput::Release => {
                out.rule(Rule::Leaves);
                self.phase = Phase::Idle;
                let waiting: Vec<SiteId> = self.deferred.iter().collect();
                self.deferred.clear();
                for site in waiting {
                    self.give(site, out);
                }
            }
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Request(time) => self.request(Timestamp { time, site: from }, out),
            Message::Reply => {
                out.rule(Rule::Collects);
                self.missing.remove(from);
                self.enter_if_possible(out);
            }
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            Field::new("state", self.phase),
            Field::new("permissions missing", &self.missing),
            Field::new("deferred", &self.deferred),
        ]
    }

    fn waits_for(&self) -> Vec<SiteId> {
        if self.phase == Phase::Waiting { self.missing.iter().collect() } else { Vec::new() }
    }
}

impl MutualExclusion for RoucairolCarvalho {
    const ABOUT: About = About {
        slug: "roucairol-carvalho",
        title: "Roucairol and Carvalho's algorithm",
        family: Family::Permission,
        paper: "Carvalho and Roucairol, On Mutual Exclusion in Computer Networks, CACM 1983",
        idea: "Ricart and Agrawala's, but a permission lasts until it is asked back.",
        channels: Channels::Fifo,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "mean N−1; 0 on entering again",
            high: "2(N−1)",
            sync_delay: "T",
            client_delay: "0 or 2T",
        },
        crash: "of any site whose permission is needed: every site that needs it waits for ever",
        settings: &[],
    };
    const HAS_CLOCKS: bool = true;

    fn start(me: SiteId, setup: &Setup<()>, _out: &mut Out<Self>) -> Self {
        // Of each pair of sites the holder has the permission; without a holder, the lower site has it.
        let has_permission_of = |other: SiteId| match setup.holder() {
            Some(holder) if holder == me || holder == other => holder == me,
            _ => me < other,
        };
        let mut missing = SiteSet::none(setup.sites);
        missing.extend(SiteId::all(setup.sites).filter(|&other| other != me && !has_permission_of(other)));
        Self {
            me,
            clock: setup.clock_of(me),
            phase: setup.phase_of(me),
            requested: 0,
            missing,
            deferred: SiteSet::none(setup.sites),
        }
    }

    fn is_wanted(&self) -> bool {
        !self.deferred.is_empty()
    }
}

impl Configure for RoucairolCarvalho {
    type Options = ();
}

impl PaperFigures for RoucairolCarvalho {
    fn most_messages(sites: usize, _options: &()) -> Option<usize> {
        Some(2 * (sites - 1))
    }

    fn expected(load: Load, sites: usize, _options: &()) -> Expected {
        let each = if load == Load::High { 2.0 } else { 1.0 };
        Expected {
            messages_per_entry: Some(each * (sites as f64 - 1.0)),
            sync_delay: (sites > 1).then_some(1.0),
            client_delay: None,
            ..Expected::default()
        }
    }
}

impl Inspect for RoucairolCarvalho {
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
        match self.phase {
            Phase::Inside if !self.missing.is_empty() => {
                Err(InvariantViolated("inside without the permission of all sites"))
            }
            Phase::Idle if !self.deferred.is_empty() => {
                Err(InvariantViolated("outside although it has deferred a permission"))
            }
            _ => Ok(()),
        }
    }
}

impl Validate for RoucairolCarvalho {
    fn is_well_formed(message: &Message, _sites: usize) -> bool {
        !matches!(message, Message::Request(time) if *time > LARGEST_NUMBER)
    }
}
