//! # Lamport's algorithm
//!
//! Leslie Lamport: *Time, Clocks, and the Ordering of Events in a Distributed System*. Communications of the
//! ACM 21(7), 1978, pages 558–565; the example of section "Ordering the Events Totally".
//!
//! **Idea.** Every site keeps the complete queue of requests, ordered by timestamp. A site enters when its own request
//! is first (L2) and it has received a later message from every other site (L1), so that no earlier request can still
//! be in transit.
//!
//! **Assumes** FIFO channels, reliable; no crashes. Without FIFO order a REPLY may overtake an older REQUEST
//! of the same site, and two sites enter.
//!
//! **Cost.** REQUEST to, REPLY from and RELEASE to each other site: 3(N−1) messages per entry; T from an exit to the
//! next entry.
//!
//! **Pitfalls.** L1 counts *any* later message, not only a REPLY. Ties are broken by the site's number.
//!
//! `lamport-suppressed` omits a REPLY wherever the site's own pending request makes it unnecessary: if that request is
//! the later one, its REQUEST is a later message; if it is the earlier one, its RELEASE will be. That makes 2(N−1) when
//! all sites request.

use crate::mutex::{Channels, Cost, Family, LARGEST_NUMBER, list};
use crate::settings::{OptionsError, Setting, Settings};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, LamportClock,
    Load, MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup,
    SiteId, SiteSet, Stamp, Timestamp, Validate,
};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::{self, Debug};
use core::hash::Hash;
use core::marker::PhantomData;
use serde::{Deserialize, Serialize};

/// A message between sites. Every message carries its sender's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The sender requests to enter. The value is the time of the request.
    Request(u64),
    /// The sender has queued the receiver's request.
    Reply(u64),
    /// The sender has left; its request leaves the queue.
    Release(u64),
}

impl Message {
    /// The sender's clock.
    pub fn time(self) -> u64 {
        let (Self::Request(time) | Self::Reply(time) | Self::Release(time)) = self;
        time
    }
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] =
        &[MessageKind::enter("REQUEST"), MessageKind::enter("REPLY"), MessageKind::exit("RELEASE")];

    fn kind(&self) -> usize {
        match self {
            Self::Request(_) => 0,
            Self::Reply(_) => 1,
            Self::Release(_) => 2,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", Self::KINDS[self.kind()].name, self.time())
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// Rule 1.
        Asks: "puts its request into its own queue and sends it to all other sites",
        /// Rule 2.
        Acknowledges: "puts the request into its queue and acknowledges it",
        /// Only with suppressed replies.
        Suppresses: "puts the request into its queue; its own pending request serves as the acknowledgement",
        /// Rule 5(ii), also called L1.
        ReceivesLater: "has now a later message from the sender than its own request (L1)",
        /// Rule 5, L1 and L2 together.
        Enters: "has a later message from every site (L1), its request is first in its queue (L2): it enters",
        /// Rule 3.
        Leaves: "takes its request out of its queue and sends RELEASE to all other sites",
        /// Rule 4.
        Forgets: "takes the sender's request out of its queue",
    }
}

/// The difference between the two algorithms.
pub trait Variant: Clone + Debug + Eq + Hash + Send + Sync + 'static {
    /// The description of the algorithm.
    const ABOUT: About;
    /// Whether unnecessary replies are omitted.
    const SUPPRESSES: bool;
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Queueing<V> {
    me: SiteId,
    clock: LamportClock,
    phase: Phase,
    /// The paper's request queue, smallest timestamp first.
    queue: VecDeque<Timestamp>,
    /// The time of the site's own pending request.
    requested: u64,
    /// The sites that have not sent a later message than the site's own pending request.
    awaited: SiteSet,
    /// Whether a REPLY has a tick of its own.
    reply_ticks: bool,
    variant: PhantomData<V>,
}

/// How the clock counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether a site that receives a REQUEST and replies counts two ticks: one for the receipt and one for the REPLY.
    pub reply_ticks: bool,
}

impl<V: Variant> Queueing<V> {
    fn own_request(&self) -> Timestamp {
        Timestamp { time: self.requested, site: self.me }
    }

    fn insert(&mut self, request: Timestamp) {
        // Clocks advance with every message, so that a new request nearly always belongs at the end.
        let place = self.queue.partition_point(|queued| *queued < request);
        self.queue.insert(place, request);
    }

    fn remove_request_of(&mut self, site: SiteId) {
        if let Some(place) = self.queue.iter().position(|queued| queued.site == site) {
            self.queue.remove(place);
        }
    }

    fn enter_if_possible(&mut self, out: &mut Out<Self>) {
        // Example: S2 has requested with (2, S2), and its queue is (1, S1), (2, S2). Even with a later message from
        // every site (L1) it waits until RELEASE from S1 makes its own request the first one (L2).
        let waiting = self.phase == Phase::Waiting;
        if waiting && self.queue.front() == Some(&self.own_request()) && self.awaited.is_empty() {
            out.rule(Rule::Enters);
            self.phase = Phase::Inside;
            out.output(Entered);
        }
    }
}

impl<V: Variant> Protocol for Queueing<V> {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        let now = self.clock.tick();
        match input {
            ApplicationInput::Request(_) => {
                out.rule(Rule::Asks);
                self.phase = Phase::Waiting;
                self.requested = now;
                self.awaited.extend(out.others());
                self.insert(self.own_request());
                out.broadcast(Message::Request(now));
                self.enter_if_possible(out);
            }
            ApplicationInput::Release => {
                out.rule(Rule::Leaves);
                self.phase = Phase::Idle;
                self.remove_request_of(self.me);
                out.broadcast(Message::Release(now));
            }
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        let sent = Timestamp { time: message.time(), site: from };
        self.clock.observe(sent.time);
        let now = self.clock.tick();
        match message {
            Message::Request(_) => {
                self.insert(sent);
                if V::SUPPRESSES && self.phase != Phase::Idle {
                    out.rule(Rule::Suppresses);
                } else {
                    out.rule(Rule::Acknowledges);
                    let now = if self.reply_ticks { self.clock.tick() } else { now };
                    out.send(from, Message::Reply(now));
                }
            }
            Message::Reply(_) => {}
            Message::Release(_) => {
                out.rule(Rule::Forgets);
                self.remove_request_of(from);
            }
        }
        if self.phase == Phase::Waiting && sent > self.own_request() && self.awaited.remove(from) {
            out.rule(Rule::ReceivesLater);
        }
        self.enter_if_possible(out);
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![
            Field::new("state", self.phase),
            Field::new("clock", self.clock.now()),
            Field::new("request queue", list(&self.queue, "empty")),
        ];
        if self.phase == Phase::Waiting {
            fields.push(Field::new("awaits a later message of", &self.awaited));
        }
        fields
    }

    fn waits_for(&self) -> Vec<SiteId> {
        if self.phase != Phase::Waiting {
            return Vec::new();
        }
        let first = self.queue.front().map(|request| request.site).filter(|&site| site != self.me);
        let mut sites: Vec<SiteId> = self.awaited.iter().chain(first).collect();
        sites.sort();
        sites.dedup();
        sites
    }
}

impl<V: Variant> MutualExclusion for Queueing<V> {
    const ABOUT: About = V::ABOUT;
    const HAS_CLOCKS: bool = true;

    fn start(me: SiteId, setup: &Setup<Options>, _out: &mut Out<Self>) -> Self {
        // A request with time 0 precedes every real one, because clocks tick before they stamp.
        let queue = setup.holder().map(|site| Timestamp { time: 0, site }).into_iter().collect();
        Self {
            me,
            clock: setup.clock_of(me),
            phase: setup.phase_of(me),
            queue,
            requested: 0,
            awaited: SiteSet::none(setup.sites),
            reply_ticks: setup.options.reply_ticks,
            variant: PhantomData,
        }
    }

    fn is_wanted(&self) -> bool {
        self.queue.len() > 1
    }
}

impl<V: Variant> Configure for Queueing<V> {
    type Options = Options;

    fn options(settings: &mut Settings, _sites: usize) -> Result<Options, OptionsError> {
        let parse = |text: &str| match text {
            "one" => Some(false),
            "two" => Some(true),
            _ => None,
        };
        Ok(Options { reply_ticks: settings.take(TICKS.name, false, parse, TICKS.values)? })
    }
}

const TICKS: Setting = Setting {
    name: "ticks",
    values: "one or two",
    default: "one",
    help: "ticks of the clock of a site that receives a REQUEST and replies: one for both, as one step; or, as some \
           lectures count, one for the receipt and one for the REPLY",
};

impl<V: Variant> PaperFigures for Queueing<V> {
    fn in_timestamp_order() -> bool {
        true
    }

    fn most_messages(sites: usize, _options: &Options) -> Option<usize> {
        Some(3 * (sites - 1))
    }

    fn expected(load: Load, sites: usize, _options: &Options) -> Expected {
        let alone = sites == 1;
        let each = if V::SUPPRESSES && load == Load::High { 2.0 } else { 3.0 };
        Expected {
            messages_per_entry: Some(each * (sites as f64 - 1.0)),
            sync_delay: (!alone).then_some(1.0),
            client_delay: Some(if alone { 0.0 } else { 2.0 }),
            ..Expected::default()
        }
    }

    fn unreachable_labels(_options: &Options) -> &'static [&'static str] {
        match V::SUPPRESSES {
            true => &[],
            false => {
                &["puts the request into its queue; its own pending request serves as the acknowledgement"]
            }
        }
    }
}

impl<V: Variant> Inspect for Queueing<V> {
    fn scales(_sites: usize) -> usize {
        1
    }

    fn numbers(&mut self, visit: &mut dyn FnMut(usize, &mut u64)) {
        visit(0, self.clock.reading());
        match self.phase {
            Phase::Idle => self.requested = 0,
            _ => visit(0, &mut self.requested),
        }
        for request in &mut self.queue {
            visit(0, &mut request.time);
        }
    }

    fn numbers_in(_from: SiteId, message: &mut Message, visit: &mut dyn FnMut(usize, &mut u64)) {
        let (Message::Request(time) | Message::Reply(time) | Message::Release(time)) = message;
        visit(0, time);
    }

    fn is_symmetric() -> bool {
        true
    }

    fn stamps(&mut self, visit: &mut dyn FnMut(Stamp<'_>)) {
        visit(Stamp::Clock(self.clock.reading()));
        match self.phase {
            Phase::Idle => self.requested = 0,
            _ => visit(Stamp::Request(&mut self.requested, self.me)),
        }
        for request in &mut self.queue {
            visit(Stamp::Request(&mut request.time, request.site));
        }
    }

    fn stamps_in(from: SiteId, message: &mut Message, visit: &mut dyn FnMut(Stamp<'_>)) {
        match message {
            Message::Request(time) => visit(Stamp::Request(time, from)),
            Message::Reply(time) | Message::Release(time) => visit(Stamp::Message(time)),
        }
    }

    fn rename(&mut self, to: &dyn Fn(SiteId) -> SiteId) {
        self.me = to(self.me);
        self.awaited = self.awaited.renamed(to);
        for request in &mut self.queue {
            request.site = to(request.site);
        }
    }

    fn make_no_further_request(&mut self) {
        if self.phase == Phase::Idle {
            // The queue decides only about the site's own entries.
            self.queue.clear();
        } else {
            let own = self.own_request();
            self.queue.retain(|queued| *queued <= own);
        }
        if !V::SUPPRESSES || self.phase == Phase::Idle {
            // The clock stamps no REQUEST any more, and each REPLY is later than its request at any clock. With
            // suppressed replies, RELEASE has to be later than the requests that were not answered.
            *self.clock.reading() = if self.phase == Phase::Idle { 0 } else { self.requested };
        }
    }

    fn timestamp(&self) -> Option<Timestamp> {
        (self.phase != Phase::Idle).then(|| self.own_request())
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        if self.phase == Phase::Inside && self.queue.front().map(|request| request.site) != Some(self.me) {
            return Err(InvariantViolated("inside although its own request is not first in its queue"));
        }
        Ok(())
    }
}

impl<V: Variant> Validate for Queueing<V> {
    fn is_well_formed(message: &Message, _sites: usize) -> bool {
        message.time() <= LARGEST_NUMBER
    }

    fn is_expected(&self, from: SiteId, message: &Message) -> bool {
        // A site has one request at a time, and its RELEASE arrives before its next REQUEST.
        !matches!(message, Message::Request(_)) || self.queue.iter().all(|queued| queued.site != from)
    }
}

/// The algorithm as published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plain;

impl Variant for Plain {
    const SUPPRESSES: bool = false;
    const ABOUT: About = About {
        slug: "lamport",
        title: "Lamport's algorithm",
        family: Family::Permission,
        paper: "Lamport, Time, Clocks, and the Ordering of Events in a Distributed System, CACM 1978",
        idea: "Every site keeps the whole queue, ordered by timestamp, and enters when it is first \
               and has a later message from every other site.",
        channels: Channels::Fifo,
        perpetual: false,
        deadlock_free: true,
        cost: Cost { low: "3(N−1)", high: "3(N−1)", sync_delay: "T", client_delay: "2T" },
        crash: "of any site: all sites wait for its reply for ever",
        settings: &[TICKS],
    };
}

/// The algorithm without unnecessary replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Suppressed;

impl Variant for Suppressed {
    const SUPPRESSES: bool = true;
    const ABOUT: About = About {
        slug: "lamport-suppressed",
        title: "Lamport's algorithm with suppressed replies",
        idea: "As Lamport's, but a site with a pending request does not reply: its own REQUEST or RELEASE \
               serves as the reply.",
        cost: Cost { low: "3(N−1)", high: "2(N−1)", sync_delay: "T", client_delay: "2T" },
        ..Plain::ABOUT
    };
}

/// Lamport's algorithm.
pub type Lamport = Queueing<Plain>;
/// Lamport's algorithm with suppressed replies.
pub type LamportSuppressed = Queueing<Suppressed>;
