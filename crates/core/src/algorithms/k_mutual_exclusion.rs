//! # Raymond's algorithm for k entries at once
//!
//! Kerry Raymond: *A Distributed Algorithm for Multiple Entries to a Critical Section*.
//! Information Processing Letters 30(4), 1989, pages 189–193.
//!
//! **Idea.** Ricart and Agrawala's algorithm for a semaphore: a site sends its request to all others and enters with
//! N−k replies, because at most the k−1 sites that have not replied can be inside or before it. Their replies arrive
//! late, after the entry or even after the next request. So a site counts how many replies each other site still owes;
//! a site that owes none has given its permission. Replies to one site that were deferred in the meantime travel
//! together.
//!
//! **Assumes** reliable channels in any order; no crashes.
//!
//! **Cost.** N−1 REQUESTs, and eventually a REPLY from each other site: 2(N−1) messages per entry; T from an exit to
//! the next entry, where at least 2k sites take turns. A site that stays inside while another requests several times
//! owes it one REPLY for all of them: while k−1 stay inside, an entry of the others costs 2N−k−1. Sites that take equal
//! turns save nothing, because every site leaves between two requests of any other: high load then costs 2(N−1) too.
//!
//! **Pitfalls.** A late reply must not be taken for one to the present request: a site that forgets what it is owed
//! admits k+1 sites. A request that overtakes an older one of the same site must not settle the older one. As with k =
//! 1, ties are broken by the site's number and the clock advances to the time of every request received. Entries need
//! not be in the order of timestamps: any k−1 of the replies may be the last ones. Permits are not ordered, so that
//! fences rise only with k = 1.

use crate::mutex::{Channels, Cost, Family, LARGEST_NUMBER, list};
use crate::settings::{OptionsError, Setting, Settings};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, LamportClock,
    Load, MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup,
    Sharing, SiteId, Timestamp, Validate,
};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The sender requests to enter. The value is the time of the request.
    Request(u64),
    /// The sender permits the receiver to enter. The value is the number of requests that this answers.
    Reply(u32),
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[MessageKind::enter("REQUEST"), MessageKind::enter("REPLY")];

    fn kind(&self) -> usize {
        match self {
            Self::Request(_) => 0,
            Self::Reply(_) => 1,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(time) => write!(f, "REQUEST({time})"),
            Self::Reply(requests) => write!(f, "REPLY({requests})"),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// A site requests.
        Asks: "asks all other sites for permission",
        /// A REQUEST arrives.
        RepliesIdle: "does not request: it replies at once",
        /// A REQUEST arrives; by the timestamps.
        RepliesYounger: "requests too, but the other request comes first: it replies at once",
        /// A REQUEST arrives; by the timestamps.
        DefersOlder: "requests too, and its own request comes first: it defers its reply",
        /// A REQUEST arrives.
        DefersInside: "is inside: it defers its reply",
        /// A REPLY arrives, and its sender owes nothing more.
        Collects: "has one more permission",
        /// A REPLY arrives that leaves another one owed.
        StillOwed: "notes the reply to an older request: its sender still owes one to the present request",
        /// A REPLY arrives after the entry.
        TooLate: "notes a reply that it entered without",
        /// N−k permissions are in.
        Enters: "lacks the permission of fewer than k others: it enters",
        /// The site leaves.
        Leaves: "sends the replies that it deferred, if any",
    }
}

/// The options of the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of sites that may be inside at once.
    pub k: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { k: 2 }
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KMutualExclusion {
    me: SiteId,
    k: usize,
    /// The highest time seen in a request.
    clock: LamportClock,
    phase: Phase,
    /// The time of the site's own request.
    requested: u64,
    /// The number of replies that each site owes to requests of this one. Sites that owe none are not listed.
    owed: BTreeMap<SiteId, u32>,
    /// The number of deferred replies to each site.
    deferred: BTreeMap<SiteId, u32>,
}

impl KMutualExclusion {
    fn own_request(&self) -> Timestamp {
        Timestamp { time: self.requested, site: self.me }
    }

    fn enter_if_possible(&mut self, out: &mut Out<Self>) {
        // N = 5, k = 2: with REPLYs from 3 of the 4 others, one site still owes. At most that site is inside or goes
        // first.
        if self.phase == Phase::Waiting && self.owed.len() < self.k {
            out.rule(Rule::Enters);
            self.phase = Phase::Inside;
            out.output(Entered);
        }
    }

    fn request(&mut self, request: Timestamp, out: &mut Out<Self>) {
        self.clock.observe(request.time);
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
            *self.deferred.entry(request.site).or_default() += 1;
        } else {
            out.send(request.site, Message::Reply(1));
        }
    }

    fn reply(&mut self, from: SiteId, requests: u32, out: &mut Out<Self>) {
        // A REPLY from a site that owes none is a duplicate.
        let Some(owed) = self.owed.get_mut(&from) else { return };
        *owed = owed.saturating_sub(requests);
        let settled = *owed == 0;
        out.rule(match (self.phase, settled) {
            (Phase::Waiting, true) => Rule::Collects,
            (Phase::Waiting, false) => Rule::StillOwed,
            _ => Rule::TooLate,
        });
        if settled {
            self.owed.remove(&from);
            self.enter_if_possible(out);
        }
    }
}

impl Protocol for KMutualExclusion {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) => {
                out.rule(Rule::Asks);
                self.phase = Phase::Waiting;
                self.requested = self.clock.tick();
                for site in out.others() {
                    *self.owed.entry(site).or_default() += 1;
                }
                out.broadcast(Message::Request(self.requested));
                self.enter_if_possible(out);
            }
            ApplicationInput::Release => {
                out.rule(Rule::Leaves);
                self.phase = Phase::Idle;
                for (&site, &requests) in &self.deferred {
                    out.send(site, Message::Reply(requests));
                }
                self.deferred.clear();
            }
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Request(time) => self.request(Timestamp { time, site: from }, out),
            Message::Reply(requests) => self.reply(from, requests, out),
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        let display = |counts: &BTreeMap<SiteId, u32>| -> String {
            list(counts.iter().map(|(site, count)| format!("{site}: {count}")), "none")
        };
        let mut fields = vec![
            Field::new("state", self.phase),
            Field::new("highest time seen", self.clock.now()),
            Field::new("replies deferred", display(&self.deferred)),
            Field::new("replies owed", display(&self.owed)),
        ];
        if self.phase == Phase::Waiting {
            fields.push(Field::new("own request", self.own_request()));
        }
        fields
    }

    fn waits_for(&self) -> Vec<SiteId> {
        if self.phase == Phase::Waiting { self.owed.keys().copied().collect() } else { Vec::new() }
    }
}

impl MutualExclusion for KMutualExclusion {
    const ABOUT: About = About {
        slug: "k-mutual-exclusion",
        title: "Raymond's algorithm for k entries at once",
        family: Family::Permission,
        paper: "Raymond, A Distributed Algorithm for Multiple Entries to a Critical Section, IPL 1989",
        idea: "A semaphore: a site enters with the permission of all but k−1 others, and counts the replies \
               that arrive late.",
        channels: Channels::Any,
        perpetual: false,
        deadlock_free: true,
        cost: Cost { low: "2(N−1)", high: "2N−k−1 to 2(N−1)", sync_delay: "T", client_delay: "2T" },
        crash: "of any site: one permit fewer, because its reply never arrives; of k sites: all sites wait for ever",
        settings: &[Setting {
            name: "k",
            values: "a number from 1",
            default: "2",
            help: "how many may be inside at once",
        }],
    };
    const HAS_CLOCKS: bool = true;

    fn sharing(options: &Options) -> Sharing {
        Sharing::Semaphore(options.k)
    }

    fn start(me: SiteId, setup: &Setup<Options>, _out: &mut Out<Self>) -> Self {
        Self {
            me,
            k: setup.options.k,
            clock: setup.clock_of(me),
            phase: setup.phase_of(me),
            requested: 0,
            owed: BTreeMap::new(),
            deferred: BTreeMap::new(),
        }
    }
}

impl Configure for KMutualExclusion {
    type Options = Options;

    fn options(settings: &mut Settings, _sites: usize) -> Result<Options, OptionsError> {
        let number = |text: &str| text.parse().ok().filter(|&k| k > 0);
        Ok(Options { k: settings.take("k", Options::default().k, number, "a number from 1")? })
    }
}

impl PaperFigures for KMutualExclusion {
    fn most_messages(sites: usize, _options: &Options) -> Option<usize> {
        Some(2 * (sites - 1))
    }

    fn expected(load: Load, sites: usize, options: &Options) -> Expected {
        let room_for_all = sites <= options.k;
        // With fewer sites, one that has just left is needed again before its request is answered.
        let take_turns = sites >= 2 * options.k;
        Expected {
            messages_per_entry: (load == Load::Low || take_turns).then_some(2.0 * (sites as f64 - 1.0)),
            sync_delay: take_turns.then_some(1.0),
            client_delay: Some(if room_for_all { 0.0 } else { 2.0 }),
            ..Expected::default()
        }
    }

    fn unreachable_labels(options: &Options) -> &'static [&'static str] {
        const NEVER_LATE: &[&str] = &[
            "notes the reply to an older request: its sender still owes one to the present request",
            "notes a reply that it entered without",
        ];
        if options.k == 1 { NEVER_LATE } else { &[] }
    }
}

impl Inspect for KMutualExclusion {
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
        if self.phase == Phase::Inside && self.owed.len() >= self.k {
            return Err(InvariantViolated("inside without the permission of k others or more"));
        }
        if self.phase == Phase::Idle && !self.deferred.is_empty() {
            return Err(InvariantViolated("outside although it has deferred replies"));
        }
        Ok(())
    }
}

impl Validate for KMutualExclusion {
    fn is_well_formed(message: &Message, _sites: usize) -> bool {
        !matches!(message, Message::Request(time) if *time > LARGEST_NUMBER)
    }

    fn is_expected(&self, from: SiteId, message: &Message) -> bool {
        // A site cannot have made so many requests during one entry of another.
        !matches!(message, Message::Request(_))
            || self.deferred.get(&from).is_none_or(|&count| count < u32::MAX)
    }
}
