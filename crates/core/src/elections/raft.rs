//! # The election of Raft
//!
//! Ongaro and Ousterhout, *In search of an understandable consensus algorithm*, USENIX ATC 2014, section 5.2; without
//! the log, and with one heartbeat for each election.
//!
//! **Idea.** Time is divided into terms. A site that misses the leader starts a term, votes for itself and asks all
//! others for their votes. Each site has one vote in a term and gives it to the first candidate that asks. A candidate
//! with the votes of a majority leads, and any two majorities share a site, so a term has one leader at most. If the
//! votes are split, the candidates start the next term after timeouts of random lengths, so that one of them is usually
//! alone.
//!
//! **Assumes** for safety only that a site keeps its term and its vote across a restart: the network may lose, delay
//! and reorder messages, and timeouts may be too short. To elect a leader it needs a majority of the sites, and
//! timeouts that are long beside the time of a message. The heartbeats that the paper repeats are left to the failure
//! detector.
//!
//! **Cost.** One candidate and a dead leader: N−1 REQUEST-VOTE, N−2 VOTE, N−1 HEARTBEAT. Every split vote costs the
//! same messages again.
//!
//! **Pitfalls.** A site must not vote twice in a term, and therefore not forget its vote in a crash. With timeouts of
//! equal length, sites that miss the leader at the same time split the votes for ever. A majority is of all sites, not
//! of those that answer.

use crate::election::{About, Case, Setup, TIMEOUT, TIMEOUT_MILLI_T, Winner, choice, take_timeout};
use crate::mutex::list;
use crate::settings::{OptionsError, Settings};
use crate::{
    Campaign, Configure, Elected, Election, Field, MessageKind, MessageKinds, Out, Protocol, SiteId, SiteSet,
    Timeout,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Message {
    /// The term of the sender.
    pub term: u64,
    /// The content of the message.
    pub body: Body,
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Body {
    /// The sender asks for the receiver's vote. The paper's RequestVote.
    RequestVote,
    /// Whether the sender votes for the receiver. The paper's reply to RequestVote.
    Vote(bool),
    /// The sender leads. The paper's AppendEntries without entries.
    Heartbeat,
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] =
        &[MessageKind::enter("REQUEST-VOTE"), MessageKind::enter("VOTE"), MessageKind::enter("HEARTBEAT")];

    fn kind(&self) -> usize {
        match self.body {
            Body::RequestVote => 0,
            Body::Vote(_) => 1,
            Body::Heartbeat => 2,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { term, body } = self;
        match body {
            Body::RequestVote => write!(f, "REQUEST-VOTE({term})"),
            Body::Vote(granted) => write!(f, "VOTE({term}, {})", if *granted { "yes" } else { "no" }),
            Body::Heartbeat => write!(f, "HEARTBEAT({term})"),
        }
    }
}

crate::rules! {
    /// The rules of the algorithm.
    pub enum Rule {
        /// The election timeout elapses.
        Starts: "starts a term, votes for itself and asks all others for their votes",
        /// The leader is suspected, or the site restarts.
        Waits: "misses the leader and waits for a random time before it becomes a candidate",
        /// The message is of a higher term.
        Adopts: "learns of a higher term and is a follower in it",
        /// No vote in this term yet.
        Votes: "has not voted in this term: it votes for the candidate",
        /// The term is older, or the vote is given.
        Refuses: "does not vote for the candidate: its vote is given, or the term is over",
        /// A vote, and not yet a majority.
        Counts: "has one more vote",
        /// A denied vote.
        Denied: "does not get that vote",
        /// The votes of a majority.
        Wins: "has the votes of a majority: it leads the term",
        /// The heartbeat of the leader of the term.
        Follows: "follows the leader of the term",
        /// The message is of a term that is over, or no longer matters.
        IgnoresOld: "ignores a message that is out of date",
    }
}

/// The options of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The shortest election timeout, in thousandths of T. The longest is twice as long.
    pub timeout_milli_t: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout_milli_t: TIMEOUT_MILLI_T }
    }
}

/// The paper's three states of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Follower,
    Candidate { votes: SiteSet },
    Leader,
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Raft {
    me: SiteId,
    sites: usize,
    seed: u64,
    timeout_milli_t: u64,
    /// The paper's `currentTerm`, on stable storage.
    term: u64,
    /// The paper's `votedFor`, on stable storage.
    voted_for: Option<SiteId>,
    stage: Stage,
    leader: Option<SiteId>,
}

impl Raft {
    fn fresh(me: SiteId, setup: &Setup<Options>) -> Self {
        Self {
            me,
            sites: setup.sites,
            seed: setup.seed,
            timeout_milli_t: setup.options.timeout_milli_t,
            term: 0,
            voted_for: None,
            stage: Stage::Follower,
            leader: None,
        }
    }

    /// Arms the election timeout with a random length.
    fn arm(&self, out: &mut Out<Self>) {
        let extra = choice(self.seed, self.me, self.term, self.timeout_milli_t);
        out.arm(Timeout, self.timeout_milli_t + extra);
    }

    fn send(&self, to: SiteId, body: Body, out: &mut Out<Self>) {
        out.send(to, Message { term: self.term, body });
    }

    fn campaign(&mut self, out: &mut Out<Self>) {
        out.rule(Rule::Starts);
        self.term += 1;
        self.voted_for = Some(self.me);
        self.leader = None;
        self.arm(out);
        out.broadcast(Message { term: self.term, body: Body::RequestVote });
        let mut votes = SiteSet::none(self.sites);
        votes.insert(self.me);
        self.count(votes, out);
    }

    fn count(&mut self, votes: SiteSet, out: &mut Out<Self>) {
        if 2 * votes.len() > self.sites {
            out.rule(Rule::Wins);
            self.stage = Stage::Leader;
            self.leader = Some(self.me);
            out.disarm(Timeout);
            out.broadcast(Message { term: self.term, body: Body::Heartbeat });
            out.output(Elected(self.me));
        } else {
            self.stage = Stage::Candidate { votes };
        }
    }

    fn misses_leader(&mut self, out: &mut Out<Self>) {
        out.rule(Rule::Waits);
        self.leader = None;
        self.arm(out);
    }

    fn request(&mut self, candidate: SiteId, term: u64, out: &mut Out<Self>) {
        let granted = term == self.term && self.voted_for.is_none_or(|voted_for| voted_for == candidate);
        if granted {
            out.rule(Rule::Votes);
            self.voted_for = Some(candidate);
            self.arm(out);
        } else {
            out.rule(Rule::Refuses);
        }
        self.send(candidate, Body::Vote(granted), out);
    }

    fn vote(&mut self, from: SiteId, out: &mut Out<Self>) {
        let Stage::Candidate { votes } = &self.stage else { return out.rule(Rule::IgnoresOld) };
        let mut votes = votes.clone();
        out.rule(Rule::Counts);
        votes.insert(from);
        self.count(votes, out);
    }
}

impl Protocol for Raft {
    type Input = Campaign;
    type Message = Message;
    type Output = Elected;
    type Timer = Timeout;
    type Rule = Rule;

    /// The election timeout elapses at a site that follows a leader.
    fn input(&mut self, _: Campaign, out: &mut Out<Self>) {
        if self.stage == Stage::Follower {
            self.campaign(out);
        }
    }

    fn message(&mut self, from: SiteId, Message { term, body }: Message, out: &mut Out<Self>) {
        if term > self.term {
            out.rule(Rule::Adopts);
            self.term = term;
            self.voted_for = None;
            self.stage = Stage::Follower;
            self.leader = None;
            self.arm(out);
        }
        match body {
            Body::RequestVote => self.request(from, term, out),
            Body::Vote(true) if term == self.term => self.vote(from, out),
            Body::Vote(false) if term == self.term => out.rule(Rule::Denied),
            Body::Heartbeat if term == self.term => {
                out.rule(Rule::Follows);
                self.stage = Stage::Follower;
                self.leader = Some(from);
                out.disarm(Timeout);
                out.output(Elected(from));
            }
            Body::Vote(_) | Body::Heartbeat => out.rule(Rule::IgnoresOld),
        }
    }

    fn timer(&mut self, _: Timeout, out: &mut Out<Self>) {
        if self.stage != Stage::Leader {
            self.campaign(out);
        }
    }

    fn suspect(&mut self, site: SiteId, out: &mut Out<Self>) {
        if self.leader == Some(site) {
            self.misses_leader(out);
        }
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = vec![
            Field::new(
                "state",
                match self.stage {
                    Stage::Follower => "follower",
                    Stage::Candidate { .. } => "candidate",
                    Stage::Leader => "leader",
                },
            ),
            Field::new("leader", list(self.leader, "unknown")),
            Field::new("term", self.term),
            Field::new("voted for", list(self.voted_for, "none")),
        ];
        if let Stage::Candidate { votes } = &self.stage {
            fields.push(Field::new("votes", votes));
        }
        fields
    }
}

impl Election for Raft {
    const ABOUT: About = About {
        slug: "raft",
        title: "Raft's election",
        paper: "Ongaro and Ousterhout, In search of an understandable consensus algorithm, USENIX ATC 2014, section 5.2",
        idea: "Each site has one vote in a term; a candidate with the votes of a majority leads the term.",
        assumes: "for safety, that a site keeps its term and vote across a restart; for an end, that a majority of the \
                  sites is up and messages arrive within the timeout; channels in any order",
        winner: Winner::Any,
        survives_crashes: true,
        best: "N−1 REQUEST-VOTE + N−2 VOTE + N−1 HEARTBEAT = 3N−4",
        worst: "no bound: votes may be split again and again, with a probability that falls with each term",
        crash: "of a minority: the others elect a leader; of a majority: no site leads until enough of them restart",
        settings: &[TIMEOUT],
    };

    fn start(me: SiteId, setup: &Setup<Options>, out: &mut Out<Self>) -> Self {
        let mut site = Self::fresh(me, setup);
        if setup.leader.is_some() {
            site.term = 1;
            site.voted_for = setup.leader;
            site.leader = setup.leader;
            site.stage = if setup.leader == Some(me) { Stage::Leader } else { Stage::Follower };
        } else {
            site.misses_leader(out);
        }
        site
    }

    fn restart(&self, me: SiteId, setup: &Setup<Options>, out: &mut Out<Self>) -> Self {
        let mut site = Self { term: self.term, voted_for: self.voted_for, ..Self::fresh(me, setup) };
        site.misses_leader(out);
        site
    }

    fn leader(&self) -> Option<SiteId> {
        self.leader
    }

    fn term(&self) -> u64 {
        self.term
    }

    fn cases(sites: usize) -> Vec<Case> {
        let n = sites as u64;
        if n < 3 {
            return Vec::new();
        }
        vec![
            Case {
                name: "one candidate, the leader is dead",
                initiators: vec![SiteId::new(0)],
                leader_is_dead: true,
                formula: "3N−4",
                messages: vec![("REQUEST-VOTE", n - 1), ("VOTE", n - 2), ("HEARTBEAT", n - 1)],
            },
            Case {
                name: "one candidate, the leader lives",
                initiators: vec![SiteId::new(0)],
                leader_is_dead: false,
                formula: "3N−3",
                messages: vec![("REQUEST-VOTE", n - 1), ("VOTE", n - 1), ("HEARTBEAT", n - 1)],
            },
        ]
    }
}

impl Configure for Raft {
    type Options = Options;

    fn options(settings: &mut Settings, _sites: usize) -> Result<Options, OptionsError> {
        Ok(Options { timeout_milli_t: take_timeout(settings)? })
    }
}
