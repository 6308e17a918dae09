//! # The ring election with a list
//!
//! After Fredrickson and Lynch, *Electing a leader in a synchronous ring*, Journal of the ACM 34 (1), 1987, as the
//! textbooks describe it (van Steen and Tanenbaum, *Distributed Systems*, section 5.4).
//!
//! **Idea.** A site that suspects the leader sends ELECTION round the ring, and every site adds itself to its list.
//! When the message has visited all sites, the highest site of the list becomes the leader, and COORDINATOR goes round
//! to announce it.
//!
//! **Assumes** that each site knows the order of the ring, not the number of sites; reliable channels in any order;
//! and, to distinguish a dead successor from a slow one, that an acknowledgement arrives within 2T_m + T_p.
//!
//! **Cost.** N sites, the highest of them dead: each of the two rounds takes N−1 messages and one more that the dead
//! site does not receive, so N ELECTION and N COORDINATOR, 2N for each initiator; 2(N−1) without the failed ones. In
//! addition 2(N−1) ACK. Letters grow with the list, so that the number of bytes grows with N².
//!
//! **Pitfalls.** A message that only its initiator stops circulates for ever when the initiator has died: here any site
//! that finds itself on the list knows that the message has visited all sites. The elected site may have died since it
//! put itself on the list: COORDINATOR lists the sites that it has visited, and if the leader is not among them, the
//! election starts again. A message of an earlier election may arrive last and name a leader whose death has already
//! been noticed: elections are numbered in rounds, and of two lists of the same round the one that found fewer sites up
//! went round later.

use super::relay::{Direction, Overdue, Relay, RingMessage, UNKNOWN};
use crate::election::{About, Case, Setup, TIMEOUT, TIMEOUT_MILLI_T, Winner, take_timeout};
use crate::mutex::list;
use crate::settings::{OptionsError, Settings};
use crate::{
    Campaign, Configure, Elected, Election, Field, MessageKind, MessageKinds, Out, Protocol, SiteId,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The content of a forwarded message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Body {
    /// Collects the sites that are up.
    Election {
        /// The round of the election.
        round: u32,
        /// The sites visited so far, in the order of the ring.
        list: Vec<SiteId>,
    },
    /// Announces the leader.
    Coordinator {
        /// The round of the election.
        round: u32,
        /// The elected site.
        leader: SiteId,
        /// The sites visited so far, in the order of the ring.
        informed: Vec<SiteId>,
    },
}

impl MessageKinds for Body {
    const KINDS: &'static [MessageKind] =
        &[MessageKind::enter("ELECTION"), MessageKind::enter("COORDINATOR")];

    fn kind(&self) -> usize {
        usize::from(matches!(self, Self::Coordinator { .. }))
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Election { list: there, .. } => write!(f, "ELECTION({})", list(there, "nobody")),
            Self::Coordinator { leader, informed, .. } => {
                write!(f, "COORDINATOR({leader}; informed {})", list(informed, "nobody"))
            }
        }
    }
}

/// A message between sites.
pub type Message = RingMessage<Body>;

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The leader does not answer, or the site has just come up.
        Starts: "sends a list with itself on it round the ring",
        /// Not on the list yet.
        Joins: "adds itself to the list and forwards it",
        /// On the list already.
        Closes: "finds itself on the list: all sites have been visited, and the highest leads",
        /// The outcome.
        Accepts: "accepts the leader and forwards the message",
        /// The message has visited all sites.
        Stops: "finds that COORDINATOR has visited all sites",
        /// The elected site is not on COORDINATOR's list.
        StartsAgain: "finds that the leader has died before COORDINATOR reached it",
        /// The message is of a round that is over, or of a list that went round earlier.
        IgnoresOld: "ignores a message that is out of date",
        /// A lower site is elected, because this one was down when the list went round.
        Objects: "is higher than the elected site, and starts again",
        /// No acknowledgement.
        PassesOver: "skips the successor, which does not answer",
    }
}

/// The options of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The timeout for an acknowledgement, in thousandths of T.
    pub timeout_milli_t: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout_milli_t: TIMEOUT_MILLI_T }
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RingElection {
    me: SiteId,
    round: u32,
    /// Whether the outcome of this round is known.
    settled: bool,
    /// The last leader that this site knew; not valid until the round is settled.
    leader: Option<SiteId>,
    relay: Relay<Body>,
}

impl RingElection {
    fn campaign(&mut self, out: &mut Out<Self>) {
        self.round += 1;
        self.start_list(out);
    }

    fn start_list(&mut self, out: &mut Out<Self>) {
        out.rule(Rule::Starts);
        self.join(Vec::new(), out);
    }

    fn join(&mut self, mut list: Vec<SiteId>, out: &mut Out<Self>) {
        self.settled = false;
        list.push(self.me);
        self.relay.hand_on(Body::Election { round: self.round, list }, out);
    }

    fn election(&mut self, round: u32, list: Vec<SiteId>, out: &mut Out<Self>) {
        // A site that has just come up knows no round. If a round is under way, it joins that one; otherwise a new one
        // starts.
        if round == UNKNOWN && self.settled {
            return self.campaign(out);
        }
        let round = if round == UNKNOWN { self.round } else { round };
        if list.contains(&self.me) {
            out.rule(Rule::Closes);
            let leader = list.into_iter().max().unwrap_or(self.me);
            return self.coordinator(round, leader, Vec::new(), out);
        }
        if round > self.round || (round == self.round && !self.settled) {
            out.rule(Rule::Joins);
            self.round = round;
            self.join(list, out);
        } else {
            // The sender takes part in the later round, or will.
            out.rule(Rule::IgnoresOld);
        }
    }

    fn coordinator(&mut self, round: u32, leader: SiteId, mut informed: Vec<SiteId>, out: &mut Out<Self>) {
        if informed.contains(&self.me) {
            return self.coordinator_returned(round, informed.contains(&leader), out);
        }
        let later = round == self.round && (!self.settled || self.leader.is_none_or(|known| leader <= known));
        if round > self.round || later {
            self.round = round;
            if leader < self.me {
                out.rule(Rule::Objects);
                return self.campaign(out);
            }
            out.rule(Rule::Accepts);
            self.settled = true;
            self.leader = Some(leader);
            out.output(Elected(leader));
            informed.push(self.me);
            self.relay.hand_on(Body::Coordinator { round, leader, informed }, out);
        } else {
            out.rule(Rule::IgnoresOld);
        }
    }

    fn coordinator_returned(&mut self, round: u32, visited_the_leader: bool, out: &mut Out<Self>) {
        if visited_the_leader {
            out.rule(Rule::Stops);
        } else if round == self.round && self.settled {
            out.rule(Rule::StartsAgain);
            self.campaign(out);
        }
    }
}

impl Protocol for RingElection {
    type Input = Campaign;
    type Message = Message;
    type Output = Elected;
    type Timer = Overdue;
    type Rule = Rule;

    fn input(&mut self, _: Campaign, out: &mut Out<Self>) {
        if self.settled {
            self.campaign(out);
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            RingMessage::Ack { number } => self.relay.acknowledged(from, number, out),
            RingMessage::Body { number, body } => {
                out.send(from, RingMessage::Ack { number });
                match body {
                    Body::Election { round, list } => self.election(round, list, out),
                    Body::Coordinator { round, leader, informed } => {
                        self.coordinator(round, leader, informed, out)
                    }
                }
            }
        }
    }

    fn timer(&mut self, timer: Overdue, out: &mut Out<Self>) {
        if let Some((dead, body)) = self.relay.overdue(timer) {
            out.rule(Rule::PassesOver);
            self.relay.pass_over(dead, body, out);
        }
    }

    fn suspect(&mut self, site: SiteId, out: &mut Out<Self>) {
        // Outside of an election, only the death of the leader matters. During one, that is no news: the election is
        // looking for a new leader anyway. But any other site that dies may have lost the list: start a new round.
        if (self.leader == Some(site)) == self.settled {
            self.campaign(out);
        }
    }

    fn fields(&self) -> Vec<Field> {
        let state = if self.settled { "quiet" } else { "takes part" };
        vec![
            Field::new("state", state),
            Field::new("leader", list(self.leader(), "unknown")),
            Field::new("round", self.round),
        ]
    }
}

impl Election for RingElection {
    const ABOUT: About = About {
        slug: "ring-election",
        title: "Ring election with a list",
        paper: "after Fredrickson and Lynch, Electing a leader in a synchronous ring, JACM, 1987",
        idea: "A list goes round the ring, every site adds itself, the highest leads; the announcement goes \
               round as well.",
        assumes: "each site knows the order of the ring; an acknowledgement within the timeout unless a site \
                  is dead; channels in any order",
        winner: Winner::Highest,
        survives_crashes: true,
        best: "N ELECTION + N COORDINATOR = 2N for each initiator, and 2(N−1) ACK",
        worst: "the same",
        crash: "a dead successor is skipped; a message whose initiator died is stopped by the next site that \
                finds itself on it",
        settings: &[TIMEOUT],
    };

    fn start(me: SiteId, setup: &Setup<Options>, out: &mut Out<Self>) -> Self {
        let relay = Relay::new(me, setup.sites, Direction::Up, setup.options.timeout_milli_t);
        let round = if setup.leader.is_some() { UNKNOWN + 1 } else { UNKNOWN };
        let mut site = Self { me, round, settled: true, leader: setup.leader, relay };
        if setup.leader.is_none() {
            site.start_list(out);
        }
        site
    }

    fn leader(&self) -> Option<SiteId> {
        self.leader.filter(|_| self.settled)
    }

    fn cases(sites: usize) -> Vec<Case> {
        let n = sites as u64;
        if n < 3 {
            return Vec::new();
        }
        let case = |name, initiators: Vec<SiteId>, formula| {
            let rounds = initiators.len() as u64;
            let messages =
                vec![("ELECTION", rounds * n), ("COORDINATOR", rounds * n), ("ACK", rounds * 2 * (n - 1))];
            Case { name, initiators, leader_is_dead: true, formula, messages }
        };
        vec![
            case("one starts", vec![SiteId::new(0)], "2N + ACKs"),
            case("two start at once", vec![SiteId::new(0), SiteId::new(1)], "4N + ACKs"),
        ]
    }
}

impl Configure for RingElection {
    type Options = Options;

    fn options(settings: &mut Settings, _sites: usize) -> Result<Options, OptionsError> {
        Ok(Options { timeout_milli_t: take_timeout(settings)? })
    }
}
