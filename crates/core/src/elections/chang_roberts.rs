//! # The ring election of Chang and Roberts
//!
//! Chang and Roberts, *An improved algorithm for decentralized extrema-finding in circular configurations of
//! processes*, Communications of the ACM 22 (5), 1979; with the announcement that textbooks add (Coulouris et al.,
//! section 15.3).
//!
//! **Idea.** Every candidate sends its own number around the ring. A site forwards numbers higher than its own and stops lower
//! ones, sending its own instead if it has not done so yet. Only the highest number returns to its owner, which becomes
//! the leader and announces it.
//!
//! **Assumes** a ring in one direction; reliable channels. The paper has no crashes. Here dead successors are skipped,
//! as in `ring_election`, and elections are numbered in rounds, so that a new one is not stopped by sites that still
//! take part in the previous one.
//!
//! **Cost.** Letters of constant size. With all sites up, one initiator costs 2N messages at best (the highest starts)
//! and 3N−1 at worst (its successor starts). When all start at once, ELECTION costs from 2N−1 (numbers rise along the
//! ring) to N(N+1)/2 (they fall); COORDINATOR always costs N. Each ELECTION and COORDINATOR is answered by one ACK.
//!
//! **Pitfalls.** The number of a dead candidate does not return to its owner and would circulate for ever. The site
//! that would have to send it to its owner notices, stops it and starts the next round.

use super::relay::{Direction, Overdue, Relay, RingMessage, UNKNOWN};
use crate::election::{About, Case, Setup, TIMEOUT, TIMEOUT_MILLI_T, Winner, take_timeout};
use crate::mutex::list;
use crate::settings::{OptionsError, Setting, Settings};
use crate::{
    Campaign, Configure, Elected, Election, Field, MessageKind, MessageKinds, Out, Protocol, SiteId,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The content of a forwarded message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Body {
    /// The role of the site that the message names.
    pub role: Role,
    /// The site that the message names.
    pub site: SiteId,
    /// The round of the election.
    pub round: u32,
}

/// The role of the site that a message names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// It is a candidate.
    Election,
    /// It is the leader.
    Coordinator,
}

impl MessageKinds for Body {
    const KINDS: &'static [MessageKind] =
        &[MessageKind::enter("ELECTION"), MessageKind::enter("COORDINATOR")];

    fn kind(&self) -> usize {
        self.role as usize
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", Self::KINDS[self.kind()].name, self.site)
    }
}

/// A message between sites.
pub type Message = RingMessage<Body>;

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The leader does not answer, or the site has just come up.
        Starts: "becomes a candidate and sends its number round",
        /// The number is higher than its own.
        HandsOn: "forwards the higher number",
        /// The number is lower than its own, which it has not sent yet.
        Replaces: "sends its own, higher number instead",
        /// The number is lower than one it has sent.
        StopsLower: "stops the lower number",
        /// Its own number comes back.
        Wins: "gets its own number back and leads",
        /// The outcome.
        Accepts: "accepts the leader and forwards the message",
        /// The message returns to the leader.
        Ends: "leads, and all sites know it",
        /// The message is of a round that is over.
        IgnoresOld: "ignores a message that is out of date",
        /// A lower site leads, because this one was down when the numbers went round.
        Objects: "is higher than the leader, and starts again",
        /// No acknowledgement.
        PassesOver: "skips the successor, which does not answer",
        /// No acknowledgement from the very site that the message names.
        Orphaned: "stops the message, because the site that it names does not answer",
    }
}

/// The options of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The timeout for an acknowledgement, in thousandths of T.
    pub timeout_milli_t: u64,
    /// The order of successors on the ring.
    pub direction: Direction,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout_milli_t: TIMEOUT_MILLI_T, direction: Direction::Up }
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChangRoberts {
    me: SiteId,
    /// The last leader that this site knew; not valid while it takes part in an election.
    leader: Option<SiteId>,
    /// The paper's *participant*.
    takes_part: bool,
    round: u32,
    relay: Relay<Body>,
}

impl ChangRoberts {
    fn campaign(&mut self, out: &mut Out<Self>) {
        self.round += 1;
        self.stand(out);
    }

    fn stand(&mut self, out: &mut Out<Self>) {
        out.rule(Rule::Starts);
        self.send(Role::Election, self.me, out);
    }

    fn send(&mut self, role: Role, site: SiteId, out: &mut Out<Self>) {
        self.takes_part = role == Role::Election;
        self.relay.hand_on(Body { role, site, round: self.round }, out);
    }

    fn election(&mut self, candidate: SiteId, round: u32, out: &mut Out<Self>) {
        // A site that has just come up knows no round. If a round is under way, it joins that one; otherwise a new one
        // starts.
        if round == UNKNOWN && !self.takes_part {
            return self.campaign(out);
        }
        let round = if round == UNKNOWN { self.round } else { round };
        if round > self.round {
            self.round = round;
            self.takes_part = false;
        } else if round < self.round || !self.takes_part {
            // The candidate takes part in the later round, or will.
            return out.rule(Rule::IgnoresOld);
        }
        if candidate == self.me {
            out.rule(Rule::Wins);
            self.leads(out);
            self.send(Role::Coordinator, self.me, out);
        } else if candidate > self.me {
            out.rule(Rule::HandsOn);
            self.send(Role::Election, candidate, out);
        } else if self.takes_part {
            out.rule(Rule::StopsLower);
        } else {
            out.rule(Rule::Replaces);
            self.send(Role::Election, self.me, out);
        }
    }

    fn coordinator(&mut self, leader: SiteId, round: u32, out: &mut Out<Self>) {
        if round < self.round {
            return out.rule(Rule::IgnoresOld);
        }
        self.round = round;
        if leader == self.me {
            out.rule(Rule::Ends);
            if self.leader() != Some(self.me) {
                self.leads(out);
            }
        } else if leader < self.me {
            out.rule(Rule::Objects);
            self.campaign(out);
        } else {
            out.rule(Rule::Accepts);
            self.leader = Some(leader);
            out.output(Elected(leader));
            self.send(Role::Coordinator, leader, out);
        }
    }

    fn leads(&mut self, out: &mut Out<Self>) {
        self.takes_part = false;
        self.leader = Some(self.me);
        out.output(Elected(self.me));
    }
}

impl Protocol for ChangRoberts {
    type Input = Campaign;
    type Message = Message;
    type Output = Elected;
    type Timer = Overdue;
    type Rule = Rule;

    fn input(&mut self, _: Campaign, out: &mut Out<Self>) {
        if !self.takes_part {
            self.campaign(out);
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            RingMessage::Ack { number } => self.relay.acknowledged(from, number, out),
            RingMessage::Body { number, body: Body { role, site, round } } => {
                out.send(from, RingMessage::Ack { number });
                match role {
                    Role::Election => self.election(site, round, out),
                    Role::Coordinator => self.coordinator(site, round, out),
                }
            }
        }
    }

    fn timer(&mut self, timer: Overdue, out: &mut Out<Self>) {
        match self.relay.overdue(timer) {
            Some((dead, body)) if dead == body.site => {
                out.rule(Rule::Orphaned);
                if body.round == self.round {
                    self.campaign(out);
                }
            }
            Some((dead, body)) => {
                out.rule(Rule::PassesOver);
                self.relay.pass_over(dead, body, out);
            }
            None => {}
        }
    }

    fn suspect(&mut self, site: SiteId, out: &mut Out<Self>) {
        // Outside of an election, only the death of the leader matters. During one, that is no news: the election is
        // looking for a new leader anyway. But any other site that dies may have lost a message: start a new round.
        if (self.leader == Some(site)) != self.takes_part {
            self.campaign(out);
        }
    }

    fn fields(&self) -> Vec<Field> {
        let state = if self.takes_part { "takes part" } else { "quiet" };
        vec![
            Field::new("state", state),
            Field::new("leader", list(self.leader(), "unknown")),
            Field::new("round", self.round),
        ]
    }
}

impl Election for ChangRoberts {
    const ABOUT: About = About {
        slug: "chang-roberts",
        title: "Chang and Roberts' ring election",
        paper: "Chang and Roberts, An improved algorithm for decentralized extrema-finding in circular configurations of processes, CACM, 1979",
        idea: "Numbers go round the ring; each site stops lower ones than its own, and only the highest \
               returns to its owner.",
        assumes: "each site knows the order of the ring; an acknowledgement within the timeout unless a site \
                  is dead; channels in any order",
        winner: Winner::Highest,
        survives_crashes: true,
        best: "N ELECTION + N COORDINATOR = 2N, started by the next highest; beside them the ACKs",
        worst: "one initiator: 2N−2 ELECTION + N COORDINATOR = 3N−2; all at once, numbers falling: N(N+1)/2 + N",
        crash: "a dead successor is skipped; the number of a dead candidate is stopped by its predecessor, \
                which starts again",
        settings: &[
            TIMEOUT,
            Setting {
                name: "direction",
                values: "up or down",
                default: "up",
                help: "whether numbers rise or fall along the ring",
            },
        ],
    };

    fn start(me: SiteId, setup: &Setup<Options>, out: &mut Out<Self>) -> Self {
        let relay = Relay::new(me, setup.sites, setup.options.direction, setup.options.timeout_milli_t);
        let round = if setup.leader.is_some() { UNKNOWN + 1 } else { UNKNOWN };
        let mut site = Self { me, leader: setup.leader, takes_part: false, round, relay };
        if setup.leader.is_none() {
            site.stand(out);
        }
        site
    }

    fn leader(&self) -> Option<SiteId> {
        self.leader.filter(|_| !self.takes_part)
    }

    fn cases(sites: usize) -> Vec<Case> {
        let n = sites as u64;
        if n < 3 {
            return Vec::new();
        }
        // A message that reaches a live site is acknowledged; one to a dead site is not.
        let count = |election, coordinator, failed| {
            vec![
                ("ELECTION", election),
                ("COORDINATOR", coordinator),
                ("ACK", election + coordinator - failed),
            ]
        };
        let case = |name, initiators, leader_is_dead, formula, messages| Case {
            name,
            initiators,
            leader_is_dead,
            formula,
            messages,
        };
        vec![
            case(
                "best: the next highest starts",
                vec![SiteId::new(sites - 2)],
                true,
                "2N + ACKs",
                count(n, n, 2),
            ),
            case(
                "worst of one: the lowest starts",
                vec![SiteId::new(0)],
                true,
                "3N−2 + ACKs",
                count(2 * n - 2, n, 2),
            ),
            case(
                "all start at once, no site is dead",
                SiteId::all(sites).collect(),
                false,
                "3N−1 + ACKs",
                count(2 * n - 1, n, 0),
            ),
        ]
    }
}

impl Configure for ChangRoberts {
    type Options = Options;

    fn options(settings: &mut Settings, _sites: usize) -> Result<Options, OptionsError> {
        let parse = |text: &str| match text {
            "up" => Some(Direction::Up),
            "down" => Some(Direction::Down),
            _ => None,
        };
        Ok(Options {
            timeout_milli_t: take_timeout(settings)?,
            direction: settings.take("direction", Direction::Up, parse, "up or down")?,
        })
    }
}
