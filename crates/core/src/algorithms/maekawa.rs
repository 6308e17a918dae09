//! # Maekawa's algorithm, made free of deadlock
//!
//! Mamoru Maekawa: *A √N Algorithm for Mutual Exclusion in Decentralized Systems*. ACM Transactions on Computer Systems
//! 3(2), 1985, pages 145–159; with the corrections of Beverly Sanders, *The Information Structure of Distributed Mutual
//! Exclusion Algorithms*, ACM TOCS 5(3), 1987.
//!
//! **Idea.** A site needs the votes of its quorum only; any two quorums share a site, and a site votes for one request
//! at a time. An arbiter that has voted for a younger request asks for its vote back (INQUIRE); a site that cannot win
//! at the moment (FAILED) returns it (RELINQUISH).
//!
//! **Assumes** reliable channels in any order; no crashes. Every message names its request, so that the receiver
//! recognises a message of an earlier one.
//!
//! **Cost.** REQUEST, LOCKED, RELEASED: 3(K−1) messages for quorums of K sites at low load, up to 6(K−1) under
//! contention. From an exit to the next entry 2T, or T where the shared arbiter is one of the two sites, as long as all
//! sites always request and delays are constant. Otherwise the next site may still have to get votes back by INQUIRE
//! and RELINQUISH, one after the other: there is no such bound.
//!
//! **Pitfalls.** (1) Without the messages that ask for votes back it deadlocks: [`maekawa_basic`](super::maekawa_basic).
//! (2) A waiter that was first in the queue and is displaced by an older request must receive FAILED, or some bursts
//! still deadlock. The paper of 1985 does not send it, Sanders' correction of 1987 does; `maekawa-1985` omits it. (3)
//! An INQUIRE may overtake the LOCKED it asks about: remember it. (4) After the entry it is too late to return the
//! vote. (5) A RELINQUISH counts only for the present vote. (6) A later LOCKED makes an earlier FAILED void.
//!
//! The same engine serves other quorums: `majority` and `tree-quorum`. With `timeout=D` and `fallback=QUORUMS` a site
//! that has waited for D withdraws its request and asks its other quorum. Any two quorums of both kinds share a site,
//! so that this is safe even if sites are slow or dead; it helps if the dead sites were arbiters only, and not inside.

use super::maekawa_variants::{AsPublished, MoreThanHalf, RootN, RootToLeaf, Variant, awaited_sites};
use crate::mutex::{LARGEST_NUMBER, list};
use crate::quorum::{Construction, Coterie};
use crate::settings::{OptionsError, Settings};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, LamportClock,
    Load, MessageKind, MessageKinds, MutualExclusion, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    SiteSet, Timeout, Timestamp, Validate,
};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use serde::{Deserialize, Serialize};

/// A message between sites. The number is the time of the request to which the message belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The sender requests the receiver's vote.
    Request(u64),
    /// The sender votes for the receiver's request.
    Locked(u64),
    /// The sender has voted for, or has queued, an earlier request.
    Failed(u64),
    /// The sender asks for its vote back.
    Inquire(u64),
    /// The sender returns the vote.
    Relinquish(u64),
    /// The sender has left, or withdraws its request.
    Released(u64),
}

impl Message {
    /// The time of the request that the message is about.
    pub fn time(mut self) -> u64 {
        *self.time_mut()
    }

    /// The same, to change it.
    pub fn time_mut(&mut self) -> &mut u64 {
        match self {
            Self::Request(time)
            | Self::Locked(time)
            | Self::Failed(time)
            | Self::Inquire(time)
            | Self::Relinquish(time)
            | Self::Released(time) => time,
        }
    }
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[
        MessageKind::enter("REQUEST"),
        MessageKind::enter("LOCKED"),
        MessageKind::enter("FAILED"),
        MessageKind::enter("INQUIRE"),
        MessageKind::enter("RELINQUISH"),
        MessageKind::exit("RELEASED"),
    ];

    fn kind(&self) -> usize {
        match self {
            Self::Request(_) => 0,
            Self::Locked(_) => 1,
            Self::Failed(_) => 2,
            Self::Inquire(_) => 3,
            Self::Relinquish(_) => 4,
            Self::Released(_) => 5,
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
        /// A site requests.
        Asks: "asks its quorum for their votes",
        /// An arbiter has not voted.
        Votes: "has its vote to give and gives it",
        /// An arbiter has voted for an older request, or an older one is queued.
        Fails: "has voted already, and an earlier request comes first",
        /// An arbiter has voted for a younger request.
        Inquires: "has voted for a younger request: it asks for its vote back",
        /// An arbiter has sent INQUIRE already.
        Awaits: "has asked for its vote back already",
        /// Pitfall 2.
        Displaces: "sends FAILED to the request that was next, because an earlier one has arrived",
        /// A vote arrives.
        Collects: "has one more vote",
        /// All votes are in.
        Enters: "has the votes of its whole quorum: it enters",
        /// A site that cannot win returns a vote.
        Yields: "cannot win yet: it returns the vote",
        /// A site that may still win keeps the vote.
        Hopes: "may still win: it keeps the vote for now",
        /// Pitfall 4.
        TooLate: "receives a message of a request that is over or being served: nothing to do",
        /// The arbiter has its vote back.
        VotesAgain: "has its vote back and gives it to the first in its queue",
        /// The arbiter has its vote back.
        Rests: "has its vote back; no request is queued",
        /// A site leaves.
        Leaves: "sends RELEASED to its quorum",
        /// The timeout has expired. Needs the settings `timeout` and `fallback`.
        TriesOther: "has waited long enough: it withdraws its request and asks its other quorum",
        /// A request is withdrawn.
        Forgets: "removes a withdrawn request from its queue",
    }
}

/// The choice of quorums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options<V> {
    /// The construction of the quorums.
    pub construction: Construction,
    /// The construction of the fallback quorums, and the timeout in thousandths of T after which they are asked.
    pub fallback: Option<(Construction, u64)>,
    variant: PhantomData<V>,
}

impl<V: Variant> Default for Options<V> {
    fn default() -> Self {
        let construction = match V::QUORUMS {
            "majority" => Construction::Majority,
            "tree" => Construction::Tree,
            _ => Construction::Best,
        };
        Self { construction, fallback: None, variant: PhantomData }
    }
}

/// One site, which requests votes and is an arbiter for others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Quorum<V> {
    me: SiteId,
    clock: LamportClock,
    phase: Phase,
    quorum: Vec<SiteId>,
    /// The other quorum, and the timeout after which it is asked.
    fallback: Option<(Vec<SiteId>, u64)>,
    /// The time of the site's own request.
    requested: u64,
    votes: SiteSet,
    /// Arbiters that have sent FAILED.
    failed: SiteSet,
    /// Arbiters that want their vote back.
    inquiring: SiteSet,
    arbiter: Arbiter,
    variant: PhantomData<V>,
}

/// The part of a site that votes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Arbiter {
    voted_for: Option<Timestamp>,
    inquired: bool,
    waiting: BTreeSet<Timestamp>,
}

impl Arbiter {
    fn request<V: Variant>(&mut self, request: Timestamp, out: &mut Out<Quorum<V>>) {
        let Some(voted_for) = self.voted_for else {
            out.rule(Rule::Votes);
            self.voted_for = Some(request);
            return out.send(request.site, Message::Locked(request.time));
        };
        // Example: the vote is with (5, S3), and (3, S2) is queued, so that S3 has received INQUIRE.
        //   (4, S4) arrives: (3, S2) comes first, and S4 receives FAILED.
        //   (2, S1) arrives: it comes first, S2 receives FAILED as well, and no second INQUIRE is sent.
        let first = self.waiting.first().copied();
        self.waiting.insert(request);
        if voted_for < request || first.is_some_and(|first| first < request) {
            out.rule(Rule::Fails);
            return out.send(request.site, Message::Failed(request.time));
        }
        // The request that was first in the queue has received no FAILED yet, and is not first any more.
        if let Some(displaced) = first.filter(|&first| V::NOTIFIES_DISPLACED && first < voted_for) {
            out.rule(Rule::Displaces);
            out.send(displaced.site, Message::Failed(displaced.time));
        }
        if self.inquired {
            out.rule(Rule::Awaits);
        } else {
            out.rule(Rule::Inquires);
            self.inquired = true;
            out.send(voted_for.site, Message::Inquire(voted_for.time));
        }
    }

    fn vote_is_back<V: Variant>(&mut self, out: &mut Out<Quorum<V>>) {
        self.inquired = false;
        self.voted_for = self.waiting.pop_first();
        match self.voted_for {
            Some(next) => {
                out.rule(Rule::VotesAgain);
                out.send(next.site, Message::Locked(next.time));
            }
            None => out.rule(Rule::Rests),
        }
    }
}

impl<V: Variant> Quorum<V> {
    /// Returns every vote for which an INQUIRE has arrived, if the site cannot win at the moment.
    fn yield_if_hopeless(&mut self, out: &mut Out<Self>) {
        if self.phase != Phase::Waiting || self.failed.is_empty() {
            return;
        }
        let asked: Vec<SiteId> =
            self.inquiring.iter().filter(|&arbiter| self.votes.contains(arbiter)).collect();
        for arbiter in asked {
            out.rule(Rule::Yields);
            self.inquiring.remove(arbiter);
            self.votes.remove(arbiter);
            self.failed.insert(arbiter);
            out.send(arbiter, Message::Relinquish(self.requested));
        }
    }

    fn locked(&mut self, arbiter: SiteId, out: &mut Out<Self>) {
        out.rule(Rule::Collects);
        self.votes.insert(arbiter);
        self.failed.remove(arbiter);
        if self.votes.len() == self.quorum.len() {
            out.rule(Rule::Enters);
            self.phase = Phase::Inside;
            self.inquiring.clear();
            out.output(Entered);
            if self.fallback.is_some() {
                out.disarm(Timeout);
            }
        } else {
            // An INQUIRE that overtook this vote has been waiting for it.
            self.yield_if_hopeless(out);
        }
    }

    fn ask(&mut self, out: &mut Out<Self>) {
        self.phase = Phase::Waiting;
        // The votes of a quorum carry no later times: see `Out::known_time`.
        self.clock.observe(out.known_time());
        self.requested = self.clock.tick();
        for &arbiter in &self.quorum {
            out.send(arbiter, Message::Request(self.requested));
        }
        if let Some((_, timeout)) = self.fallback {
            out.arm(Timeout, timeout);
        }
    }

    /// Returns all votes, and withdraws the request where the vote is missing.
    fn release(&mut self, out: &mut Out<Self>) {
        self.phase = Phase::Idle;
        self.votes.clear();
        self.failed.clear();
        self.inquiring.clear();
        for &arbiter in &self.quorum {
            out.send(arbiter, Message::Released(self.requested));
        }
    }
}

impl<V: Variant> Protocol for Quorum<V> {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Timeout;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        match input {
            ApplicationInput::Request(_) => {
                out.rule(Rule::Asks);
                self.ask(out);
            }
            ApplicationInput::Release => {
                out.rule(Rule::Leaves);
                self.release(out);
            }
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        let theirs = Timestamp { time: message.time(), site: from };
        let mine = self.phase == Phase::Waiting && message.time() == self.requested;
        match message {
            Message::Request(time) => {
                self.clock.observe(time);
                self.arbiter.request(theirs, out);
            }
            Message::Relinquish(_) if self.arbiter.voted_for == Some(theirs) => {
                self.arbiter.waiting.insert(theirs);
                self.arbiter.vote_is_back(out);
            }
            Message::Released(_) if self.arbiter.voted_for == Some(theirs) => self.arbiter.vote_is_back(out),
            Message::Released(_) if self.arbiter.waiting.contains(&theirs) => {
                out.rule(Rule::Forgets);
                self.arbiter.waiting.remove(&theirs);
            }
            Message::Locked(_) if mine => self.locked(from, out),
            Message::Failed(_) if mine && !self.votes.contains(from) => {
                self.failed.insert(from);
                self.yield_if_hopeless(out);
            }
            Message::Inquire(_) if mine => {
                self.inquiring.insert(from);
                if self.failed.is_empty() {
                    out.rule(Rule::Hopes);
                }
                self.yield_if_hopeless(out);
            }
            _ => out.rule(Rule::TooLate),
        }
    }

    fn timer(&mut self, _timeout: Timeout, out: &mut Out<Self>) {
        if self.phase != Phase::Waiting {
            return;
        }
        out.rule(Rule::TriesOther);
        self.release(out);
        if let Some((other, _)) = &mut self.fallback {
            core::mem::swap(&mut self.quorum, other);
        }
        self.ask(out);
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![
            Field::new("state", self.phase),
            Field::new("quorum", list(&self.quorum, "")),
            Field::new("voted for", list(self.arbiter.voted_for, "nobody")),
            Field::new("in line", list(&self.arbiter.waiting, "nobody")),
        ];
        if self.phase == Phase::Waiting {
            fields.extend([Field::new("votes", &self.votes), Field::new("failed", &self.failed)]);
        }
        fields
    }

    fn quorum(&self) -> &[SiteId] {
        &self.quorum
    }

    fn waits_for(&self) -> Vec<SiteId> {
        let missing = |arbiter: &SiteId| self.phase == Phase::Waiting && !self.votes.contains(*arbiter);
        let vote = self.arbiter.voted_for.filter(|_| !self.arbiter.waiting.is_empty());
        awaited_sites(self.me, vote.map(|request| request.site), self.quorum.iter().copied().filter(missing))
    }
}

impl<V: Variant> MutualExclusion for Quorum<V> {
    const ABOUT: About = V::ABOUT;
    const HAS_CLOCKS: bool = true;

    fn start(me: SiteId, setup: &Setup<Options<V>>, _out: &mut Out<Self>) -> Self {
        let quorum_of = |site| setup.options.construction.quorum_of(site, setup.sites);
        let (fallback, none) = (setup.options.fallback.clone(), SiteSet::none(setup.sites));
        // The holder has the votes of its quorum; its request is older than any other.
        let held_by = setup.holder().filter(|&holder| quorum_of(holder).contains(&me));
        let mut votes = none.clone();
        if setup.holder() == Some(me) {
            votes.extend(quorum_of(me));
        }
        Self {
            me,
            clock: setup.clock_of(me),
            phase: setup.phase_of(me),
            quorum: quorum_of(me),
            fallback: fallback.map(|(other, timeout)| (other.quorum_of(me, setup.sites), timeout)),
            requested: 0,
            votes,
            failed: none.clone(),
            inquiring: none,
            arbiter: Arbiter {
                voted_for: held_by.map(|site| Timestamp { time: 0, site }),
                inquired: false,
                waiting: BTreeSet::new(),
            },
            variant: PhantomData,
        }
    }
}

impl<V: Variant> Configure for Quorum<V> {
    type Options = Options<V>;

    fn options(settings: &mut Settings, sites: usize) -> Result<Options<V>, OptionsError> {
        let mut quorums = |name, default: &str| {
            settings.take(name, String::from(default), |text| Some(text.into()), Construction::FORMS)
        };
        let (first, other) = (quorums("quorums", V::QUORUMS)?, quorums("fallback", "none")?);
        let construction = Construction::parse(&first, sites)?;
        let fallback = match (other.as_str(), settings.take_timeout()?) {
            ("none", None) => None,
            ("none", Some(_)) | (_, None) => {
                return Err(OptionsError::Unpaired { first: "timeout", second: "fallback" });
            }
            (sets, Some(timeout)) => Some((construction.beside(sets, sites)?, timeout)),
        };
        Ok(Options { construction, fallback, variant: PhantomData })
    }
}

impl<V: Variant> PaperFigures for Quorum<V> {
    fn unreachable_labels(options: &Options<V>) -> &'static [&'static str] {
        const RETRIES: &[&str] = RETRIES_AND_DISPLACED.split_at(2).0;
        const DISPLACED: &[&str] = RETRIES_AND_DISPLACED.split_at(2).1;
        const RETRIES_AND_DISPLACED: &[&str] = &[
            "has waited long enough: it withdraws its request and asks its other quorum",
            "removes a withdrawn request from its queue",
            "sends FAILED to the request that was next, because an earlier one has arrived",
        ];
        match (options.fallback.is_none(), V::NOTIFIES_DISPLACED) {
            (true, true) => RETRIES,
            (true, false) => RETRIES_AND_DISPLACED,
            (false, true) => &[],
            (false, false) => DISPLACED,
        }
    }

    fn expected(load: Load, sites: usize, options: &Options<V>) -> Expected {
        let coterie = Coterie::new(&options.construction, sites);
        let others = coterie.mean_others();
        Expected {
            messages_per_entry: (load == Load::Low || sites == 1).then_some(3.0 * others),
            sync_delay_range: (load == Load::High && sites > 1).then_some((1.0, 2.0)),
            client_delay: Some(if sites == 1 { 0.0 } else { 2.0 }),
            ..Expected::default()
        }
    }
}

impl<V: Variant> Inspect for Quorum<V> {
    fn scales(_sites: usize) -> usize {
        1
    }

    fn numbers(&mut self, visit: &mut dyn FnMut(usize, &mut u64)) {
        visit(0, self.clock.reading());
        match self.phase {
            Phase::Idle => self.requested = 0,
            _ => visit(0, &mut self.requested),
        }
        let arbiter = &mut self.arbiter;
        if let Some(request) = &mut arbiter.voted_for {
            visit(0, &mut request.time);
        }
        let mut waiting: Vec<Timestamp> = core::mem::take(&mut arbiter.waiting).into_iter().collect();
        for request in &mut waiting {
            visit(0, &mut request.time);
        }
        arbiter.waiting = waiting.into_iter().collect();
    }

    fn numbers_in(_from: SiteId, message: &mut Message, visit: &mut dyn FnMut(usize, &mut u64)) {
        visit(0, message.time_mut());
    }

    fn timestamp(&self) -> Option<Timestamp> {
        (self.phase != Phase::Idle).then_some(Timestamp { time: self.requested, site: self.me })
    }

    fn invariant(&self) -> Result<(), InvariantViolated> {
        if self.phase == Phase::Inside && self.votes.len() != self.quorum.len() {
            return Err(InvariantViolated("inside without the votes of its whole quorum"));
        }
        if self.arbiter.voted_for.is_none() && !self.arbiter.waiting.is_empty() {
            return Err(InvariantViolated("a request is queued although the vote is free"));
        }
        Ok(())
    }
}

impl<V: Variant> Validate for Quorum<V> {
    fn is_well_formed(message: &Message, _sites: usize) -> bool {
        message.time() <= LARGEST_NUMBER
    }

    fn is_expected(&self, from: SiteId, message: &Message) -> bool {
        // A site has one request at a time, and releases or withdraws it before its next one.
        let asked = |request: &Timestamp| request.site == from;
        let arbiter = &self.arbiter;
        !matches!(message, Message::Request(_))
            || !(arbiter.voted_for.iter().any(asked) || arbiter.waiting.iter().any(asked))
    }
}

/// Maekawa's algorithm.
pub type Maekawa = Quorum<RootN>;
/// Maekawa's algorithm as published in 1985, which can deadlock.
pub type Maekawa1985 = Quorum<AsPublished>;
/// Majority voting.
pub type Majority = Quorum<MoreThanHalf>;
/// Tree quorums.
pub type TreeQuorum = Quorum<RootToLeaf>;
