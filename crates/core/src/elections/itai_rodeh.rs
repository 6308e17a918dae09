//! # The election of Itai and Rodeh on an anonymous ring
//!
//! Itai and Rodeh, *Symmetry breaking in distributed networks*, Information and Computation 88 (1), 1990 (FOCS 1981);
//! the algorithm with rounds and hop counters, as Fokkink and Pang present it (*Variations on Itai-Rodeh leader
//! election for anonymous rings and their analysis in PRISM*, Journal of Universal Computer Science 12 (8), 2006).
//!
//! **Idea.** Sites without names cannot elect one of them by a deterministic rule, because all of them would do the
//! same. So each candidate draws a number and sends it round the ring. Higher numbers make candidates passive and lower
//! ones are stopped. A number that comes back has won if no other candidate had the same; otherwise all candidates with
//! that number draw again, in the next round.
//!
//! **Assumes** that every site knows the number N of sites; a ring in one direction; reliable channels in any order; no
//! crashes. No site has a name: a site uses its number only as the seed of its draws, and the leader is known to the
//! others by its distance, from which the site for `Elected` is computed.
//!
//! **Cost.** One candidate: N ELECTION and N COORDINATOR. All at once: N log N ELECTION in the mean, since most numbers
//! are stopped early; a mean of at most e·N/(N−1) rounds if the numbers are drawn from 1 to N. There is no bound that
//! holds in every run: the draws may be equal any number of times, with a probability that goes to 0.
//!
//! **Pitfalls.** A site cannot recognise its message by the number in it: another candidate may have drawn the same. It
//! counts the channels on the way, and N of them mean that the message is its own. A candidate that sees its number in
//! the message of another one must mark it, or both lead. A new round needs a higher round number, or a late message of
//! the round before makes all candidates passive.

use crate::election::{About, Case, Setup, Winner, choice};
use crate::mutex::list;
use crate::settings::{OptionsError, Setting, Settings};
use crate::{
    Campaign, Configure, Elected, Election, Field, MessageKind, MessageKinds, Never, Out, Protocol, SiteId,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message to the successor on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Message {
    /// The number of the election.
    pub term: u32,
    /// The number of channels over which the message has travelled.
    pub hops: u32,
    /// The content of the message.
    pub body: Body,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Body {
    /// The number that a candidate has drawn.
    Election {
        /// The round and the number drawn in it. Later rounds come before earlier ones.
        lot: Lot,
        /// Whether no other candidate with the same lot has been met.
        unique: bool,
    },
    /// The sender of this message, as many channels ago as it has travelled, leads.
    Coordinator,
}

/// A number that was drawn in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lot {
    /// The round.
    pub round: u32,
    /// The number, from 1.
    pub number: u64,
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] =
        &[MessageKind::enter("ELECTION"), MessageKind::enter("COORDINATOR")];

    fn kind(&self) -> usize {
        usize::from(self.body == Body::Coordinator)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.body {
            Body::Election { lot, unique } => {
                let met = if unique { "" } else { ", met its like" };
                write!(f, "ELECTION({}, round {}, hop {}{met})", lot.number, lot.round, self.hops)
            }
            Body::Coordinator => write!(f, "COORDINATOR(hop {})", self.hops),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The leader does not answer.
        Starts: "becomes a candidate, draws a number and sends it round",
        /// A passive site.
        Forwards: "is no candidate: it forwards the number",
        /// The lot is higher than its own.
        Yields: "is a candidate with a lower number: it gives up and forwards the other one",
        /// The lot is lower than its own.
        Stops: "is a candidate with a higher number: it stops the other one",
        /// The lot equals its own, and the message has not gone round.
        Marks: "is a candidate with the same number: it marks the message",
        /// Its own message comes back with the mark.
        DrawsAgain: "gets its number back with the mark of another candidate: it draws again",
        /// Its own message comes back without the mark.
        Wins: "gets its number back, which no other candidate has: it leads",
        /// The outcome.
        Accepts: "accepts the leader and forwards the message",
        /// The announcement returns to the leader.
        Ends: "leads, and all sites know it",
        /// The message is of an election that is over.
        IgnoresOld: "ignores a message that is out of date",
    }
}

/// The options of the election.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The largest number to draw; `None` for the number of sites.
    pub numbers: Option<u64>,
    /// Selects other draws: it is added to the seed.
    pub draw: u64,
}

/// The part that a site takes in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// The leader is known.
    Settled,
    Passive,
    Candidate(Lot),
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ItaiRodeh {
    me: SiteId,
    sites: usize,
    seed: u64,
    numbers: u64,
    term: u32,
    stage: Stage,
    /// The last leader that this site knew; not valid until the election is over.
    leader: Option<SiteId>,
}

impl ItaiRodeh {
    fn draw(&mut self, rule: Rule, round: u32, out: &mut Out<Self>) {
        out.rule(rule);
        let place = u64::from(self.term) << 32 | u64::from(round);
        let lot = Lot { round, number: 1 + choice(self.seed, self.me, place, self.numbers) };
        self.stage = Stage::Candidate(lot);
        self.send(Body::Election { lot, unique: true }, 1, out);
    }

    fn send(&self, body: Body, hops: u32, out: &mut Out<Self>) {
        out.send(self.me.next_on_ring(self.sites), Message { term: self.term, hops, body });
    }

    fn election(&mut self, lot: Lot, unique: bool, hops: u32, out: &mut Out<Self>) {
        let Stage::Candidate(own) = self.stage else {
            out.rule(Rule::Forwards);
            return self.send(Body::Election { lot, unique }, hops + 1, out);
        };
        // Example with 3 sites: S1 and S2 draw 3, S3 draws 1. S2 marks the message of S1, and S1 that of S2, and S3
        // becomes passive. Both get their messages back after 3 channels, marked, and draw again.
        let is_own = hops as usize == self.sites;
        if is_own && unique {
            out.rule(Rule::Wins);
            self.settle(self.me, out);
            self.send(Body::Coordinator, 1, out);
        } else if is_own {
            self.draw(Rule::DrawsAgain, own.round + 1, out);
        } else if lot == own {
            out.rule(Rule::Marks);
            self.send(Body::Election { lot, unique: false }, hops + 1, out);
        } else if lot > own {
            out.rule(Rule::Yields);
            self.stage = Stage::Passive;
            self.send(Body::Election { lot, unique }, hops + 1, out);
        } else {
            out.rule(Rule::Stops);
        }
    }

    fn coordinator(&mut self, hops: u32, out: &mut Out<Self>) {
        if hops as usize == self.sites {
            return out.rule(Rule::Ends);
        }
        out.rule(Rule::Accepts);
        self.settle(SiteId::new((self.me.index() + self.sites - hops as usize) % self.sites), out);
        self.send(Body::Coordinator, hops + 1, out);
    }

    fn settle(&mut self, leader: SiteId, out: &mut Out<Self>) {
        self.stage = Stage::Settled;
        self.leader = Some(leader);
        out.output(Elected(leader));
    }
}

impl Protocol for ItaiRodeh {
    type Input = Campaign;
    type Message = Message;
    type Output = Elected;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, _: Campaign, out: &mut Out<Self>) {
        if self.stage == Stage::Settled {
            self.term += 1;
            self.draw(Rule::Starts, 1, out);
        }
    }

    fn message(&mut self, _from: SiteId, Message { term, hops, body }: Message, out: &mut Out<Self>) {
        if term > self.term {
            self.term = term;
            self.stage = Stage::Passive;
        }
        let returns = body == Body::Coordinator && hops as usize == self.sites;
        if term < self.term || (self.stage == Stage::Settled && !returns) {
            return out.rule(Rule::IgnoresOld);
        }
        match body {
            Body::Election { lot, unique } => self.election(lot, unique, hops, out),
            Body::Coordinator => self.coordinator(hops, out),
        }
    }

    fn timer(&mut self, timer: Never, _out: &mut Out<Self>) {
        match timer {}
    }

    fn suspect(&mut self, site: SiteId, out: &mut Out<Self>) {
        if self.leader == Some(site) {
            self.input(Campaign, out);
        }
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![
            Field::new(
                "state",
                match self.stage {
                    Stage::Settled => "quiet",
                    Stage::Passive => "passive",
                    Stage::Candidate(_) => "candidate",
                },
            ),
            Field::new("leader", list(self.leader(), "unknown")),
        ];
        if let Stage::Candidate(lot) = self.stage {
            fields.push(Field::new("round", lot.round));
            fields.push(Field::new("number", lot.number));
        }
        fields
    }
}

impl Election for ItaiRodeh {
    const ABOUT: About = About {
        slug: "itai-rodeh",
        title: "Itai and Rodeh's election on an anonymous ring",
        paper: "Itai and Rodeh, Symmetry breaking in distributed networks, Information and Computation, 1990",
        idea: "Candidates without names draw numbers; the highest goes round the ring, and candidates that have drawn \
               the same draw again.",
        assumes: "each site knows the number of sites; channels in any order; no crashes",
        winner: Winner::Any,
        survives_crashes: false,
        best: "one candidate: N ELECTION + N COORDINATOR = 2N",
        worst: "no bound: draws may be equal again and again; all at once, N log N in the mean",
        crash: "of any site: messages stop there, and no site leads",
        settings: &[
            Setting {
                name: "numbers",
                values: "a number from 1",
                default: "the number of sites",
                help: "the largest number to draw; with 1, candidates draw the same for ever",
            },
            Setting {
                name: "draw",
                values: "a number",
                default: "0",
                help: "selects other draws with the same seed, for the checker, which has one seed",
            },
        ],
    };

    fn start(me: SiteId, setup: &Setup<Options>, out: &mut Out<Self>) -> Self {
        let Setup { sites, leader, seed, options } = setup;
        let mut site = Self {
            me,
            sites: *sites,
            seed: seed.wrapping_add(options.draw),
            numbers: options.numbers.unwrap_or(*sites as u64),
            term: 1,
            stage: Stage::Settled,
            leader: *leader,
        };
        if leader.is_none() {
            site.draw(Rule::Starts, 1, out);
        }
        site
    }

    fn leader(&self) -> Option<SiteId> {
        self.leader.filter(|_| self.stage == Stage::Settled)
    }

    fn term(&self) -> u64 {
        self.term.into()
    }

    fn cases(sites: usize) -> Vec<Case> {
        let n = sites as u64;
        vec![Case {
            name: "one candidate",
            initiators: vec![SiteId::new(0)],
            leader_is_dead: false,
            formula: "2N",
            messages: if n > 1 { vec![("ELECTION", n), ("COORDINATOR", n)] } else { Vec::new() },
        }]
    }
}

impl Configure for ItaiRodeh {
    type Options = Options;

    fn options(settings: &mut Settings, _sites: usize) -> Result<Options, OptionsError> {
        let number = |text: &str| text.parse::<u64>().ok();
        let numbers = |text: &str| number(text).filter(|numbers| *numbers > 0).map(Some);
        Ok(Options {
            numbers: settings.take("numbers", None, numbers, "a number from 1")?,
            draw: settings.take("draw", 0, number, "a number")?,
        })
    }
}
