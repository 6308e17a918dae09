//! # Maekawa's algorithm without its deadlock messages
//!
//! Mamoru Maekawa: *A √N Algorithm for Mutual Exclusion in Decentralized Systems*. ACM Transactions on Computer Systems
//! 3(2), 1985, pages 145–159, in the form in which textbooks introduce it: without FAILED, INQUIRE and RELINQUISH, which
//! the paper has.
//!
//! **Idea.** A site needs the votes of its quorum only; any two quorums share a site, and a site votes for one request
//! at a time, first come first served.
//!
//! **Assumes** FIFO channels, reliable; no crashes; and that no requests are concurrent in an unlucky order.
//!
//! **Cost.** REQUEST, REPLY, RELEASE: 3(K−1) messages for quorums of K sites; 2T from an exit to the next entry, T
//! where the shared arbiter is one of the two.
//!
//! **Pitfalls.** It deadlocks: S1, S2 and S3 with the quorums {1, 2}, {2, 3}, {3, 1} each vote for themselves and wait
//! for the vote of the next. [`maekawa`](super::maekawa) has the messages that resolve this.

use super::maekawa_variants::{CRASH, awaited_sites};
use crate::mutex::{Channels, Cost, Family, list};
use crate::quorum::{Construction, Coterie};
use crate::settings::{OptionsError, Setting, Settings};
use crate::{
    About, ApplicationInput, Configure, Entered, Expected, Field, Inspect, InvariantViolated, Load,
    MessageKind, MessageKinds, MutualExclusion, Never, Out, PaperFigures, Phase, Protocol, Setup, SiteId,
    SiteSet, Validate,
};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// The sender requests the receiver's vote.
    Request,
    /// The sender votes for the receiver's request.
    Reply,
    /// The sender has left.
    Release,
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] =
        &[MessageKind::enter("REQUEST"), MessageKind::enter("REPLY"), MessageKind::exit("RELEASE")];

    fn kind(&self) -> usize {
        *self as usize
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::KINDS[self.kind()].name)
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// Rule (a).
        Asks: "asks its quorum for their votes",
        /// Rule (b).
        Votes: "has its vote to give and gives it",
        /// Rule (b).
        Queues: "has voted already and queues the request",
        /// A vote arrives.
        Collects: "has one more vote",
        /// Rule (c).
        Enters: "has the votes of its whole quorum: it enters",
        /// Rule (d).
        Leaves: "sends RELEASE to its quorum",
        /// Rule (e).
        VotesAgain: "has its vote back and gives it to the first in its queue",
        /// Rule (e).
        Rests: "has its vote back; no request is queued",
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MaekawaBasic {
    me: SiteId,
    phase: Phase,
    quorum: Vec<SiteId>,
    votes: SiteSet,
    voted_for: Option<SiteId>,
    queue: VecDeque<SiteId>,
}

impl Protocol for MaekawaBasic {
    type Input = ApplicationInput;
    type Message = Message;
    type Output = Entered;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, input: ApplicationInput, out: &mut Out<Self>) {
        let (phase, rule, message) = match input {
            ApplicationInput::Request(_) => (Phase::Waiting, Rule::Asks, Message::Request),
            ApplicationInput::Release => (Phase::Idle, Rule::Leaves, Message::Release),
        };
        out.rule(rule);
        self.phase = phase;
        self.votes.clear();
        for &arbiter in &self.quorum {
            out.send(arbiter, message);
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Request if self.voted_for.is_none() => {
                out.rule(Rule::Votes);
                self.voted_for = Some(from);
                out.send(from, Message::Reply);
            }
            Message::Request => {
                out.rule(Rule::Queues);
                self.queue.push_back(from);
            }
            Message::Reply => {
                out.rule(Rule::Collects);
                self.votes.insert(from);
                if self.votes.len() == self.quorum.len() {
                    out.rule(Rule::Enters);
                    self.phase = Phase::Inside;
                    out.output(Entered);
                }
            }
            Message::Release => {
                self.voted_for = self.queue.pop_front();
                match self.voted_for {
                    Some(next) => {
                        out.rule(Rule::VotesAgain);
                        out.send(next, Message::Reply);
                    }
                    None => out.rule(Rule::Rests),
                }
            }
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            Field::new("state", self.phase),
            Field::new("quorum", list(&self.quorum, "")),
            Field::new("votes", &self.votes),
            Field::new("voted for", list(self.voted_for, "nobody")),
            Field::new("queue", list(&self.queue, "empty")),
        ]
    }

    fn quorum(&self) -> &[SiteId] {
        &self.quorum
    }

    fn waits_for(&self) -> Vec<SiteId> {
        let missing = |arbiter: &SiteId| self.phase == Phase::Waiting && !self.votes.contains(*arbiter);
        let vote = self.voted_for.filter(|_| !self.queue.is_empty());
        awaited_sites(self.me, vote, self.quorum.iter().copied().filter(missing))
    }
}

impl MutualExclusion for MaekawaBasic {
    const ABOUT: About = About {
        slug: "maekawa-basic",
        title: "Maekawa's algorithm without its deadlock messages",
        family: Family::Quorum,
        paper: "Maekawa, A √N Algorithm for Mutual Exclusion in Decentralized Systems, ACM TOCS 1985",
        idea: "Votes of a quorum, first come first served, and never asked back: safe, but it can deadlock. The \
               textbooks' simplification; the paper also has FAILED, INQUIRE and RELINQUISH.",
        channels: Channels::Fifo,
        perpetual: false,
        deadlock_free: false,
        cost: Cost {
            low: "3(K−1)",
            high: "deadlocks",
            sync_delay: "T to 2T at high load and constant delays, until it deadlocks",
            client_delay: "2T",
        },
        crash: CRASH,
        settings: &[Setting {
            name: "quorums",
            values: Construction::FORMS,
            default: "best",
            help: "whose votes each site needs",
        }],
    };

    fn start(me: SiteId, setup: &Setup<Construction>, _out: &mut Out<Self>) -> Self {
        let quorum_of = |site| setup.options.quorum_of(site, setup.sites);
        let mut votes = SiteSet::none(setup.sites);
        if setup.holder() == Some(me) {
            votes.extend(quorum_of(me));
        }
        Self {
            me,
            phase: setup.phase_of(me),
            quorum: quorum_of(me),
            votes,
            voted_for: setup.holder().filter(|&holder| quorum_of(holder).contains(&me)),
            queue: VecDeque::new(),
        }
    }
}

impl Configure for MaekawaBasic {
    type Options = Construction;

    fn options(settings: &mut Settings, sites: usize) -> Result<Construction, OptionsError> {
        let text =
            settings.take("quorums", String::from("best"), |text| Some(text.into()), Construction::FORMS)?;
        Ok(Construction::parse(&text, sites)?)
    }
}

impl PaperFigures for MaekawaBasic {
    fn expected(load: Load, sites: usize, construction: &Construction) -> Expected {
        let others = Coterie::new(construction, sites).mean_others();
        Expected {
            messages_per_entry: (load == Load::Low || sites == 1).then_some(3.0 * others),
            sync_delay_range: (load == Load::High && sites > 1).then_some((1.0, 2.0)),
            client_delay: Some(if sites == 1 { 0.0 } else { 2.0 }),
            ..Expected::default()
        }
    }
}

impl Inspect for MaekawaBasic {
    fn invariant(&self) -> Result<(), InvariantViolated> {
        if self.voted_for.is_none() && !self.queue.is_empty() {
            return Err(InvariantViolated("a request is queued although the vote is free"));
        }
        Ok(())
    }
}

impl Validate for MaekawaBasic {}
