//! # The bully election
//!
//! Garcia-Molina, *Elections in a distributed computing system*, IEEE Transactions on Computers C-31 (1), 1982; here as
//! the textbooks describe it (Coulouris et al., *Distributed Systems*, section 15.3).
//!
//! **Idea.** A site that suspects the leader sends ELECTION to all higher sites. A site that is up answers OK and takes
//! over, by campaigning itself. A site that gets no OK in time is the highest site that is up, and announces itself
//! with COORDINATOR.
//!
//! **Assumes** that a message takes at most T_m and its handling at most T_p, so that no answer within 2T_m + T_p means
//! that the site is dead; that messages are not lost; channels in any order. With slow messages or a partitioned
//! network there are two leaders.
//!
//! **Cost.** N sites, the highest of them dead, messages to it counted. Best, when the next highest notices: one
//! ELECTION to the dead leader and N−2 COORDINATOR: N−1. Textbooks that give N−2 for the best case count COORDINATOR
//! alone. Worst, when the lowest notices: N(N−1)/2 ELECTION, (N−1)(N−2)/2 OK, N−2 COORDINATOR,
//! which is N²−N−1; textbooks do not count the OKs. No site sends more because others campaign at the same time.
//!
//! **Pitfalls.** A site that got OK must still wait for COORDINATOR, and campaign again if none arrives: the site that
//! answered may have died since. A site that announces itself although it got OK makes a second leader. An ELECTION
//! that was sent before COORDINATOR arrived must not make a leader that has just announced itself do so again.

use crate::election::{About, Case, Setup, TIMEOUT, TIMEOUT_MILLI_T, Winner, take_timeout};
use crate::settings::{OptionsError, Settings};
use crate::{
    Campaign, Configure, Elected, Election, Field, MessageKind, MessageKinds, Out, Protocol, SiteId,
};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A message between sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// To every higher site: the sender campaigns and asks whether the receiver is up.
    Election,
    /// To a lower site: the sender is up and takes over the campaign.
    Ok,
    /// To every lower site: the sender is the leader.
    Coordinator,
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] =
        &[MessageKind::enter("ELECTION"), MessageKind::enter("OK"), MessageKind::enter("COORDINATOR")];

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
        /// The leader does not answer, or the site has just come up.
        Asks: "asks every higher site whether it is there",
        /// A lower site campaigns.
        Answers: "answers the lower site",
        /// A higher site is up.
        SitsBack: "learns that a higher site is up, and waits",
        /// No OK in time, or there is no higher site.
        Announces: "finds no higher site that is up and announces itself",
        /// The outcome.
        Accepts: "accepts the leader",
        /// OK arrived, COORDINATOR did not.
        AsksAgain: "receives no COORDINATOR and asks again",
        /// A lower site took this one for dead.
        Bullies: "is higher than the site that announced itself and campaigns",
    }
}

/// A timer of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Timer {
    /// The wait for the first OK.
    Answer,
    /// The wait for COORDINATOR after an OK.
    Coordinator,
    /// The wait, after the announcement, for ELECTIONs that were sent before it arrived.
    Stragglers,
}

/// The stage of a site's campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Quiet,
    AwaitsAnswer,
    AwaitsCoordinator,
    Announced,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quiet => "quiet",
            Self::AwaitsAnswer => "waits for OK",
            Self::AwaitsCoordinator => "waits for COORDINATOR",
            Self::Announced => "has announced itself",
        })
    }
}

/// The options of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The timeout for an answer, in thousandths of T.
    pub timeout_milli_t: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout_milli_t: TIMEOUT_MILLI_T }
    }
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bully {
    me: SiteId,
    sites: usize,
    timeout_milli_t: u64,
    stage: Stage,
    leader: Option<SiteId>,
}

impl Bully {
    fn campaign(&mut self, out: &mut Out<Self>) {
        self.leader = None;
        let higher = self.me.number()..self.sites;
        if higher.is_empty() {
            return self.announce(out);
        }
        out.rule(Rule::Asks);
        self.stage = Stage::AwaitsAnswer;
        out.disarm(Timer::Coordinator);
        out.arm(Timer::Answer, self.timeout_milli_t);
        for site in higher.map(SiteId::new) {
            out.send(site, Message::Election);
        }
    }

    fn announce(&mut self, out: &mut Out<Self>) {
        out.rule(Rule::Announces);
        self.stage = Stage::Announced;
        self.leader = Some(self.me);
        out.arm(Timer::Stragglers, self.timeout_milli_t);
        for site in SiteId::all(self.me.index()) {
            out.send(site, Message::Coordinator);
        }
        out.output(Elected(self.me));
    }

    fn campaigns(&self) -> bool {
        matches!(self.stage, Stage::AwaitsAnswer | Stage::AwaitsCoordinator)
    }
}

impl Protocol for Bully {
    type Input = Campaign;
    type Message = Message;
    type Output = Elected;
    type Timer = Timer;
    type Rule = Rule;

    fn input(&mut self, _: Campaign, out: &mut Out<Self>) {
        if !self.campaigns() {
            self.campaign(out);
        }
    }

    fn message(&mut self, from: SiteId, message: Message, out: &mut Out<Self>) {
        match message {
            Message::Election => {
                out.rule(Rule::Answers);
                out.send(from, Message::Ok);
                // One campaign at a time. After an announcement, COORDINATOR is already in transit to the sender.
                if self.stage == Stage::Quiet {
                    self.campaign(out);
                }
            }
            Message::Ok if self.stage == Stage::AwaitsAnswer => {
                out.rule(Rule::SitsBack);
                self.stage = Stage::AwaitsCoordinator;
                out.disarm(Timer::Answer);
                // The site that answered waits for answers itself before it announces itself.
                out.arm(Timer::Coordinator, 2 * self.timeout_milli_t);
            }
            Message::Ok => {}
            Message::Coordinator if from < self.me => {
                out.rule(Rule::Bullies);
                self.campaign(out);
            }
            Message::Coordinator => {
                out.rule(Rule::Accepts);
                self.stage = Stage::Quiet;
                self.leader = Some(from);
                out.disarm(Timer::Answer);
                out.disarm(Timer::Coordinator);
                out.output(Elected(from));
            }
        }
    }

    fn timer(&mut self, timer: Timer, out: &mut Out<Self>) {
        match (timer, self.stage) {
            (Timer::Answer, Stage::AwaitsAnswer) => self.announce(out),
            (Timer::Coordinator, Stage::AwaitsCoordinator) => {
                out.rule(Rule::AsksAgain);
                self.campaign(out);
            }
            (Timer::Stragglers, Stage::Announced) => self.stage = Stage::Quiet,
            _ => {}
        }
    }

    fn suspect(&mut self, site: SiteId, out: &mut Out<Self>) {
        if self.leader == Some(site) {
            self.campaign(out);
        }
    }

    fn fields(&self) -> Vec<Field> {
        vec![
            Field::new("state", self.stage),
            Field::new("leader", crate::mutex::list(self.leader, "unknown")),
        ]
    }
}

impl Election for Bully {
    const ABOUT: About = About {
        slug: "bully",
        title: "Bully",
        paper: "Garcia-Molina, Elections in a distributed computing system, IEEE Transactions on Computers, 1982",
        idea: "A site that suspects the leader asks all higher sites; one that gets no answer is the highest \
               and announces itself.",
        assumes: "messages and their handling take bounded time and nothing is lost; channels in any order",
        winner: Winner::Highest,
        survives_crashes: true,
        best: "1 ELECTION to the dead leader + N−2 COORDINATOR = N−1, started by the next highest; N−2 in books that \
               count COORDINATOR alone",
        worst: "N(N−1)/2 ELECTION + (N−1)(N−2)/2 OK + N−2 COORDINATOR = N²−N−1, started by the lowest",
        crash: "of the leader, an initiator or a candidate: the sites that wait for it campaign again; a \
                site that restarts campaigns",
        settings: &[TIMEOUT],
    };

    fn start(me: SiteId, setup: &Setup<Options>, out: &mut Out<Self>) -> Self {
        let mut site = Self {
            me,
            sites: setup.sites,
            timeout_milli_t: setup.options.timeout_milli_t,
            stage: Stage::Quiet,
            leader: setup.leader,
        };
        if setup.leader.is_none() {
            site.campaign(out);
        }
        site
    }

    fn leader(&self) -> Option<SiteId> {
        self.leader
    }

    fn cases(sites: usize) -> Vec<Case> {
        let n = sites as u64;
        if n < 2 {
            return Vec::new();
        }
        let count = |election, ok, coordinator| {
            vec![("ELECTION", election), ("OK", ok), ("COORDINATOR", coordinator)]
        };
        vec![
            Case {
                name: "best: the next highest starts",
                initiators: vec![SiteId::new(sites - 2)],
                leader_is_dead: true,
                formula: "N−1",
                messages: count(1, 0, n - 2),
            },
            Case {
                name: "worst: the lowest starts",
                initiators: vec![SiteId::new(0)],
                leader_is_dead: true,
                formula: "N²−N−1",
                messages: count(n * (n - 1) / 2, (n - 1) * (n - 2) / 2, n - 2),
            },
            Case {
                name: "false alarm: the lowest starts, the leader lives",
                initiators: vec![SiteId::new(0)],
                leader_is_dead: false,
                formula: "N²−1",
                messages: count(n * (n - 1) / 2, n * (n - 1) / 2, n - 1),
            },
        ]
    }
}

impl Configure for Bully {
    type Options = Options;

    fn options(settings: &mut Settings, _sites: usize) -> Result<Options, OptionsError> {
        Ok(Options { timeout_milli_t: take_timeout(settings)? })
    }
}
