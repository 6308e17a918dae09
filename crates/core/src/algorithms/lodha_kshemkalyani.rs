//! # Lodha and Kshemkalyani's algorithm
//!
//! Sandeep Lodha, Ajay Kshemkalyani: *A Fair Distributed Mutual Exclusion Algorithm*. IEEE Transactions on Parallel and
//! Distributed Systems 11(6), 2000, pages 537–549.
//!
//! **Idea.** Ricart and Agrawala's algorithm in which two requests that cross each other need no replies: each REQUEST
//! is the reply to the other. Both sites then know both requests, and the timestamps decide which goes first. A site
//! that leaves sends FLUSH to the next request that it knows, with the largest request that has been served.
//!
//! **Assumes** reliable FIFO channels; no crashes.
//!
//! **Cost.** N−1 REQUESTs; a REPLY from each site whose request did not cross this one; at most one FLUSH. So 2(N−1)
//! when no other site requests, and N²−1 for N entries, about N each, when all request at once. T from an exit to the
//! next entry.
//!
//! **Why it is right.** (1) *Crossing is mutual.* Had site i received j's request R before making its own request R',
//! it would have replied to R, or an older request of its own would have crossed R; either way j, by FIFO, has i's
//! permission before R' arrives, and defers R'. So R' counts as a permission at j only if R counts at i. (2) *Entries
//! are in the order of timestamps.* When a site enters with R, each other site has either replied, and its later
//! requests have larger times, or has a request that crossed R; a smaller one of these stays in the queue until a
//! message reports that it was served. (3) *So one timestamp is enough*: when a request has been served, all smaller
//! ones have. (4) *No request waits for ever.* Let R of site i be the smallest request that is not served, and P the
//! largest served one in i's queue. On leaving, P's site sent FLUSH to its next: to i, or to a site k whose request
//! lies between P and R and did not cross R. Then k gave its permission for R after that request, and the permission
//! carried what k knew to be served.
//!
//! **Pitfalls.** (4) holds only if a REQUEST that serves as a reply carries what a REPLY would carry: the largest
//! request that has been served. A FLUSH may arrive late, when its receiver has entered for another reason and requests
//! again: it is no permission. A REQUEST may arrive after the report that it was served: it must not be queued then.

use crate::mutex::{Channels, Cost, Family, LARGEST_NUMBER, list};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, LamportClock,
    Load, MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup,
    SiteId, SiteSet, Timestamp, Validate,
};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The largest request known to be served. All smaller ones have been served as well. `None` before the first.
type Served = Option<Timestamp>;

/// A message between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The sender requests to enter: the time of the request, and the largest request known to be served.
    Request(u64, Served),
    /// The sender permits the receiver to enter.
    Reply(Served),
    /// The sender has left, and the receiver's request is the next one that it knows.
    Flush(Served),
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] =
        &[MessageKind::enter("REQUEST"), MessageKind::enter("REPLY"), MessageKind::enter("FLUSH")];

    fn kind(&self) -> usize {
        match self {
            Self::Request(..) => 0,
            Self::Reply(_) => 1,
            Self::Flush(_) => 2,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Request(_, served) | Self::Reply(served) | Self::Flush(served)) = self;
        f.write_str(Self::KINDS[self.kind()].name)?;
        match (self, served) {
            (Self::Request(time, None), _) => write!(f, "({time})"),
            (Self::Request(time, Some(served)), _) => write!(f, "({time}; served {served})"),
            (_, Some(served)) => write!(f, "{served}"),
            (_, None) => Ok(()),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The paper's `InvMutEx`.
        Asks: "asks all other sites for permission",
        /// `RcvReq`, not requesting.
        RepliesIdle: "does not request: it replies at once",
        /// `RcvReq`, requesting, and the other's permission is missing.
        Crosses: "requests too, and the two requests have crossed: each is the reply to the other",
        /// `RcvReq`, requesting, and the other's permission is there.
        Defers: "has the other's permission already: it defers its reply",
        /// The report that it was served arrived before the request.
        KnowsServed: "knows that this request has been served",
        /// `RcvReply`.
        Collects: "has one more permission",
        /// `RcvFlush`.
        Learns: "learns which requests have been served",
        /// `CheckExecuteCS`.
        Enters: "has the permission of all sites and knows of no earlier request: it enters",
        /// `FinCS`.
        Flushes: "leaves and sends FLUSH to the next request that it knows of",
        /// `FinCS`.
        Leaves: "leaves; no request that it knows of has crossed its own",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LodhaKshemkalyani {
    me: SiteId,
    /// The paper's `Highest_Sequence_Number_Seen`.
    clock: LamportClock,
    phase: Phase,
    /// The paper's `My_Sequence_Number`.
    requested: u64,
    /// The sites j with `RV[j] = 0`: those whose permission is missing.
    missing: SiteSet,
    /// The paper's `LRQ`: the own request and those that crossed it, without those known to be served.
    queue: BTreeSet<Timestamp>,
    deferred: SiteSet,
    served: Served,
}

impl LodhaKshemkalyani {
    fn own_request(&self) -> Timestamp {
        Timestamp { time: self.requested, site: self.me }
    }

    fn learn(&mut self, served: Served) {
        if served > self.served {
            self.served = served;
            self.queue.retain(|&request| Some(request) > served);
        }
    }

    fn enter_if_possible(&mut self, out: &mut Out<Self>) {
        let first = self.queue.first() == Some(&self.own_request());
        if self.phase == Phase::Waiting && self.missing.is_empty() && first {
            out.rule(Rule::Enters);
            self.phase = Phase::Inside;
            out.output(Entered);
        }
    }

    fn request(&mut self, request: Timestamp, out: &mut Out<Self>) {
        // Example: (1, S1) and (1, S2) cross. Each arrives while the other site's permission is missing, so that both
        // sites queue both requests and no REPLY is sent. S1 enters first, and its FLUSH permits S2 to enter.
        self.clock.observe(request.time);
        if self.phase == Phase::Idle {
            out.rule(Rule::RepliesIdle);
            out.send(request.site, Message::Reply(self.served));
        } else if self.missing.remove(request.site) {
            out.rule(Rule::Crosses);
            if Some(request) > self.served {
                self.queue.insert(request);
            } else {
                out.rule(Rule::KnowsServed);
            }
        } else {
            out.rule(Rule::Defers);
            self.deferred.insert(request.site);
        }
    }

    fn release(&mut self, out: &mut Out<Self>) {
        self.phase = Phase::Idle;
        self.learn(Some(self.own_request()));
        if let Some(next) = self.queue.first() {
            out.rule(Rule::Flushes);
            out.send(next.site, Message::Flush(self.served));
        } else {
            out.rule(Rule::Leaves);
        }
        self.queue.clear();
        for site in self.deferred.iter() {
            out.send(site, Message::Reply(self.served));
        }
        self.deferred.clear();
    }
}

impl Protocol for LodhaKshemkalyani {
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
                self.queue.insert(self.own_request());
                self.missing.extend(out.others());
                out.broadcast(Message::Request(self.requested, self.served));
                self.enter_if_possible(out);
            }
            ApplicationInput::Release => self.release(out),
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Request(time, served) => {
                self.learn(served);
                self.request(Timestamp { time, site: from }, out);
            }
            Message::Reply(served) => {
                out.rule(Rule::Collects);
                self.learn(served);
                self.missing.remove(from);
            }
            Message::Flush(served) => {
                out.rule(Rule::Learns);
                self.learn(served);
            }
        }
        self.enter_if_possible(out);
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![
            Field::new("state", self.phase),
            Field::new("highest time seen", self.clock.now()),
            Field::new("served so far", list(self.served, "nothing")),
        ];
        if self.phase != Phase::Idle {
            fields.push(Field::new("LRQ", list(&self.queue, "")));
            fields.push(Field::new("permissions missing", &self.missing));
            fields.push(Field::new("replies deferred", &self.deferred));
        }
        fields
    }

    fn waits_for(&self) -> Vec<SiteId> {
        if self.phase != Phase::Waiting {
            return Vec::new();
        }
        let mut sites: BTreeSet<SiteId> = self.missing.iter().collect();
        sites.extend(self.queue.range(..self.own_request()).map(|earlier| earlier.site));
        sites.into_iter().collect()
    }
}

impl MutualExclusion for LodhaKshemkalyani {
    const ABOUT: About = About {
        slug: "lodha-kshemkalyani",
        title: "Lodha and Kshemkalyani's algorithm",
        family: Family::Permission,
        paper: "Lodha and Kshemkalyani, A Fair Distributed Mutual Exclusion Algorithm, IEEE TPDS 2000",
        idea: "As Ricart and Agrawala's, but of two requests that cross each other each is the reply to the other.",
        channels: Channels::Fifo,
        perpetual: false,
        deadlock_free: true,
        cost: Cost {
            low: "2(N−1)",
            high: "2(N−1); N−1/N when all ask at once",
            sync_delay: "T",
            client_delay: "2T",
        },
        crash: "of any site: all sites wait for its permission for ever",
        settings: &[],
    };
    const HAS_CLOCKS: bool = true;

    fn start(me: SiteId, setup: &Setup<()>, _out: &mut Out<Self>) -> Self {
        let phase = setup.phase_of(me);
        let mut site = Self {
            me,
            clock: setup.clock_of(me),
            phase,
            requested: 0,
            missing: SiteSet::none(setup.sites),
            queue: BTreeSet::new(),
            deferred: SiteSet::none(setup.sites),
            served: None,
        };
        if phase == Phase::Inside {
            site.queue.insert(site.own_request());
        }
        site
    }

    fn is_wanted(&self) -> bool {
        !self.deferred.is_empty()
    }
}

impl Configure for LodhaKshemkalyani {
    type Options = ();
}

impl PaperFigures for LodhaKshemkalyani {
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

impl Inspect for LodhaKshemkalyani {
    fn timestamp(&self) -> Option<Timestamp> {
        (self.phase != Phase::Idle).then(|| self.own_request())
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        if self.phase == Phase::Inside && !self.missing.is_empty() {
            return Err(InvariantViolated("inside without the permission of all sites"));
        }
        if self.phase == Phase::Inside && self.queue.first() != Some(&self.own_request()) {
            return Err(InvariantViolated("inside although an earlier request is known"));
        }
        if self.phase == Phase::Idle && !(self.queue.is_empty() && self.deferred.is_empty()) {
            return Err(InvariantViolated("outside although a site waits for its answer"));
        }
        Ok(())
    }
}

impl Validate for LodhaKshemkalyani {
    fn is_well_formed(message: &Message, sites: usize) -> bool {
        let (Message::Request(_, served) | Message::Reply(served) | Message::Flush(served)) = message;
        let time = if let Message::Request(time, _) = message { *time } else { 0 };
        let known = served.is_none_or(|served| served.time <= LARGEST_NUMBER && served.site.index() < sites);
        known && time <= LARGEST_NUMBER
    }
}
