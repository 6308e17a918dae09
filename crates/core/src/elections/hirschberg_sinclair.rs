//! # The ring election of Hirschberg and Sinclair
//!
//! Hirschberg and Sinclair, *Decentralized extrema-finding in circular configurations of processors*, Communications
//! of the ACM 23 (11), 1980; here without the paper's NO, as the textbooks describe it (Attiya and Welch, *Distributed
//! Computing*, section 3.3.2), and with the announcement that they add.
//!
//! **Idea.** A candidate probes both directions of the ring, up to a distance that doubles with each phase. A higher
//! site stops the probe; the last site that the probe reaches replies. A candidate with both replies is the highest of
//! its neighbourhood and starts the next phase. A candidate whose probe comes round the ring is the highest of all.
//!
//! **Assumes** a ring in which messages travel in both directions; reliable channels in any order; no crashes.
//! Elections are numbered in rounds, so that a new one is not stopped by sites that still take part in the previous
//! one.
//!
//! **Cost.** At most 8N(1 + ⌈log₂N⌉) PROBE and REPLY, whatever the order of the numbers; N COORDINATOR. Two candidates
//! that both finish phase k are more than 2^k apart, so that at most N/(2^k + 1) sites start phase k+1, and each of
//! them costs at most 4 · 2^(k+1) messages. If the numbers rise along the ring, only the highest site gets beyond phase
//! 0.
//!
//! **Pitfalls.** A site that stops the probe of a lower one must become a candidate itself, or no site leads when only
//! low sites have started. A site compares its number before it forwards a probe, not before it replies: the last site
//! of a probe's path stops it as well.

use crate::election::{About, Case, Setup, Winner};
use crate::mutex::list;
use crate::settings::{OptionsError, Setting, Settings};
use crate::{
    Campaign, Configure, Elected, Election, Field, MessageKind, MessageKinds, Never, Out, Protocol, SiteId,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message to a neighbour on the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Message {
    /// The content of the message.
    pub body: Body,
    /// The round of the election.
    pub round: u32,
    /// Whether it travels to the successor, or else to the predecessor.
    pub up: bool,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Body {
    /// The candidate looks for higher sites.
    Probe {
        /// The candidate.
        candidate: SiteId,
        /// The phase: the probe travels over at most 2^phase channels.
        phase: u32,
        /// The number of channels over which the probe has travelled.
        hops: u32,
    },
    /// No site up to the end of the probe's path is higher than the candidate.
    Reply {
        /// The candidate.
        candidate: SiteId,
        /// The phase of the probe.
        phase: u32,
    },
    /// Announces the leader.
    Coordinator {
        /// The elected site.
        leader: SiteId,
    },
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] =
        &[MessageKind::enter("PROBE"), MessageKind::enter("REPLY"), MessageKind::enter("COORDINATOR")];

    fn kind(&self) -> usize {
        match self.body {
            Body::Probe { .. } => 0,
            Body::Reply { .. } => 1,
            Body::Coordinator { .. } => 2,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.body {
            Body::Probe { candidate, phase, hops } => write!(f, "PROBE({candidate}, {phase}, {hops})"),
            Body::Reply { candidate, phase } => write!(f, "REPLY({candidate}, {phase})"),
            Body::Coordinator { leader } => write!(f, "COORDINATOR({leader})"),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The leader does not answer, or the probe of a lower site has arrived first.
        Starts: "becomes a candidate and probes its two neighbours",
        /// The candidate is higher, and the path is not at its end.
        Forwards: "is lower than the candidate: it forwards the probe",
        /// The candidate is higher, and the path ends here.
        Replies: "is lower than the candidate and the last on the path: it replies",
        /// The candidate is lower.
        Stops: "is higher than the candidate: it stops the probe",
        /// A reply for another site.
        PassesReply: "forwards the reply",
        /// The first of two replies.
        Waits: "has the reply of one side and waits for the other",
        /// Both replies.
        Doubles: "has both replies: it probes twice as far",
        /// Its own probe comes round.
        Wins: "gets its own probe back and leads",
        /// The outcome.
        Accepts: "accepts the leader and forwards the message",
        /// The announcement returns to the leader.
        Ends: "leads, and all sites know it",
        /// The message is of a round that is over, or of a candidate that has given up.
        IgnoresOld: "ignores a message that is out of date",
    }
}

/// The order of the sites along the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// S1 → S2 → … → S1.
    #[default]
    Rising,
    /// By the reversed bits of the number, so that many sites are the highest of their neighbourhood.
    Spread,
}

impl Order {
    /// The predecessor and the successor of a site.
    pub fn neighbours(self, me: SiteId, sites: usize) -> (SiteId, SiteId) {
        let mut ring: Vec<SiteId> = SiteId::all(sites).collect();
        if self == Self::Spread {
            ring.sort_by_key(|site| site.0.reverse_bits());
        }
        let place = ring.iter().position(|site| *site == me).unwrap_or_default();
        (ring[(place + sites - 1) % sites], ring[(place + 1) % sites])
    }
}

/// The options of the election.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The order of the sites along the ring.
    pub order: Order,
}

/// The part that a site takes in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// The leader of the round is known.
    Settled,
    /// No probe has arrived yet.
    Fresh,
    Candidate {
        phase: u32,
        has_reply: bool,
    },
    /// A higher candidate exists.
    Defeated,
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HirschbergSinclair {
    me: SiteId,
    before: SiteId,
    after: SiteId,
    round: u32,
    stage: Stage,
    /// The last leader that this site knew; not valid until the round is settled.
    leader: Option<SiteId>,
}

impl HirschbergSinclair {
    fn send(&self, body: Body, up: bool, out: &mut Out<Self>) {
        out.send(if up { self.after } else { self.before }, Message { body, round: self.round, up });
    }

    fn start_phase(&mut self, rule: Rule, phase: u32, out: &mut Out<Self>) {
        out.rule(rule);
        self.stage = Stage::Candidate { phase, has_reply: false };
        for up in [true, false] {
            self.send(Body::Probe { candidate: self.me, phase, hops: 1 }, up, out);
        }
    }

    fn probe(&mut self, candidate: SiteId, phase: u32, hops: u32, up: bool, out: &mut Out<Self>) {
        // Example: S4 is in phase 1 and probes 2 channels far. S5 forwards the probe with hops = 2, and S6, if it were
        // lower than S4, would reply, because 2 = 2^1.
        if candidate == self.me {
            out.rule(Rule::Wins);
            self.settle(self.me, out);
            self.send(Body::Coordinator { leader: self.me }, true, out);
        } else if candidate < self.me {
            out.rule(Rule::Stops);
            if self.stage == Stage::Fresh {
                self.start_phase(Rule::Starts, 0, out);
            }
        } else if hops < 1 << phase {
            out.rule(Rule::Forwards);
            self.stage = Stage::Defeated;
            self.send(Body::Probe { candidate, phase, hops: hops + 1 }, up, out);
        } else {
            out.rule(Rule::Replies);
            self.stage = Stage::Defeated;
            self.send(Body::Reply { candidate, phase }, !up, out);
        }
    }

    fn reply(&mut self, candidate: SiteId, phase: u32, up: bool, out: &mut Out<Self>) {
        match self.stage {
            _ if candidate != self.me => {
                out.rule(Rule::PassesReply);
                self.send(Body::Reply { candidate, phase }, up, out);
            }
            Stage::Candidate { phase: current, has_reply: true } if current == phase => {
                self.start_phase(Rule::Doubles, phase + 1, out);
            }
            Stage::Candidate { phase: current, .. } if current == phase => {
                out.rule(Rule::Waits);
                self.stage = Stage::Candidate { phase, has_reply: true };
            }
            _ => out.rule(Rule::IgnoresOld),
        }
    }

    fn settle(&mut self, leader: SiteId, out: &mut Out<Self>) {
        self.stage = Stage::Settled;
        self.leader = Some(leader);
        out.output(Elected(leader));
    }
}

impl Protocol for HirschbergSinclair {
    type Input = Campaign;
    type Message = Message;
    type Output = Elected;
    type Timer = Never;
    type Rule = Rule;

    fn input(&mut self, _: Campaign, out: &mut Out<Self>) {
        if self.stage == Stage::Settled {
            self.round += 1;
            self.start_phase(Rule::Starts, 0, out);
        }
    }

    fn message(&mut self, _from: SiteId, Message { body, round, up }: Message, out: &mut Out<Self>) {
        if round > self.round {
            self.round = round;
            self.stage = Stage::Fresh;
        }
        let is_over = round < self.round || self.stage == Stage::Settled;
        match body {
            Body::Coordinator { leader } if leader == self.me => out.rule(Rule::Ends),
            _ if is_over => out.rule(Rule::IgnoresOld),
            Body::Probe { candidate, phase, hops } => self.probe(candidate, phase, hops, up, out),
            Body::Reply { candidate, phase } => self.reply(candidate, phase, up, out),
            Body::Coordinator { leader } => {
                out.rule(Rule::Accepts);
                self.settle(leader, out);
                self.send(body, up, out);
            }
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
        let mut fields =
            vec![Field::new("leader", list(self.leader(), "unknown")), Field::new("round", self.round)];
        let state = match self.stage {
            Stage::Settled => "quiet",
            Stage::Fresh => "takes part",
            Stage::Candidate { .. } => "candidate",
            Stage::Defeated => "defeated",
        };
        fields.insert(0, Field::new("state", state));
        if let Stage::Candidate { phase, .. } = self.stage {
            fields.push(Field::new("phase", phase));
        }
        fields
    }
}

impl Election for HirschbergSinclair {
    const ABOUT: About = About {
        slug: "hirschberg-sinclair",
        title: "Hirschberg and Sinclair's ring election",
        paper: "Hirschberg and Sinclair, Decentralized extrema-finding in circular configurations of processors, CACM, 1980",
        idea: "A candidate probes both directions of the ring, twice as far in each phase, while no higher site \
               stops it.",
        assumes: "a ring in both directions; channels in any order; no crashes",
        winner: Winner::Highest,
        survives_crashes: false,
        best: "the highest starts: 2N + 4·2^⌈log₂N⌉ − 4 PROBE and REPLY, and N COORDINATOR",
        worst: "at most 8N(1 + ⌈log₂N⌉) PROBE and REPLY, and N COORDINATOR",
        crash: "of any site: the probes that it should forward are lost, and no site leads",
        settings: &[Setting {
            name: "order",
            values: "rising or spread",
            default: "rising",
            help: "the order of the numbers along the ring; spread makes many sites the highest of their neighbourhood",
        }],
    };

    fn start(me: SiteId, setup: &Setup<Options>, out: &mut Out<Self>) -> Self {
        let (before, after) = setup.options.order.neighbours(me, setup.sites);
        let mut site = Self { me, before, after, round: 1, stage: Stage::Settled, leader: setup.leader };
        if setup.leader.is_none() {
            site.start_phase(Rule::Starts, 0, out);
        }
        site
    }

    fn leader(&self) -> Option<SiteId> {
        self.leader.filter(|_| self.stage == Stage::Settled)
    }

    fn cases(sites: usize) -> Vec<Case> {
        let n = sites as u64;
        if n < 3 {
            return Vec::new();
        }
        // The highest site probes 1, 2, 4, … channels far in both directions, and each probe is answered from there,
        // until a probe comes round: 2 · (1 + 2 + … + 2^(p−1)) PROBE and as many REPLY, and then 2N PROBE.
        let round = n.next_power_of_two();
        let answered = 2 * (round - 1);
        let case = |name, initiators, formula, probe, reply| Case {
            name,
            initiators,
            leader_is_dead: false,
            formula,
            messages: vec![("PROBE", probe), ("REPLY", reply), ("COORDINATOR", n)],
        };
        vec![
            case(
                "best: the highest starts",
                vec![SiteId::new(sites - 1)],
                "3N + 4·2^⌈log₂N⌉ − 4",
                answered + 2 * n,
                answered,
            ),
            // In phase 0, each of the N sites sends two probes, and all but those of the highest site are stopped on
            // one side.
            case(
                "all start at once, numbers rising",
                SiteId::all(sites).collect(),
                "6N + 4·2^⌈log₂N⌉ − 8",
                answered - 2 + 4 * n,
                answered - 2 + n,
            ),
        ]
    }
}

impl Configure for HirschbergSinclair {
    type Options = Options;

    fn options(settings: &mut Settings, _sites: usize) -> Result<Options, OptionsError> {
        let parse = |text: &str| match text {
            "rising" => Some(Order::Rising),
            "spread" => Some(Order::Spread),
            _ => None,
        };
        Ok(Options { order: settings.take("order", Order::Rising, parse, "rising or spread")? })
    }
}
