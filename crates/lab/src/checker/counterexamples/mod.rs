//! Known counterexamples: classic mistakes in locking, each with the shortest run that a checker finds.
//!
//! The runs are stored as files, so that showing them needs no search. Tests repeat the searches.

mod story;

pub use story::text as story_text;

use crate::Error;
use crate::checker::{self, CheckSpec, SearchLimits, gallery};
use crate::trace::recording::Recording;
use crate::usage::UsageError;
use serde::Serialize;

/// A known counterexample.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Failure {
    /// The counterexample's name.
    pub name: &'static str,
    /// The display name.
    pub title: &'static str,
    /// A description of the run.
    pub story: &'static str,
    /// The cause, and what the correct algorithm does instead.
    pub why: &'static str,
    /// The command that reproduces it.
    pub command: &'static str,
    /// The checker that finds it.
    #[serde(skip)]
    pub found_by: FoundBy,
    /// The run, as a scenario or as sentences.
    #[serde(skip)]
    pub run: &'static str,
}

/// The checker that finds a counterexample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// The checker for message passing, with an exhibit of [`gallery`]. The run is a scenario.
    Messages,
    /// The checker for elections. The run is a scenario.
    Election,
    /// The checker for shared registers. Its run, like that of the following checker, is a list of sentences.
    Registers,
    /// The checker for whole members of a cluster, in `lockkeeper-cluster-lab`.
    Cluster,
}

macro_rules! run {
    ($name:literal) => {
        include_str!(concat!("../../../counterexamples/", $name))
    };
}

/// All counterexamples.
pub const ALL: &[Failure] = &[
    Failure {
        name: "maekawa-triangle",
        title: "Maekawa's triangle",
        story: "Three sites request at the same time. Each has its own vote and needs one more; every other vote \
                is given away. No site can ever continue.",
        why: "A vote, once given, is kept until the exit. This is the simplification of many textbooks; Maekawa's paper \
              and `maekawa` ask for votes back: INQUIRE goes to the site that has the vote when an older request comes, and a site that has FAILED \
              elsewhere yields it.",
        command: "lockkeeper check maekawa-basic --sites 3",
        found_by: FoundBy::Messages,
        run: run!("maekawa-triangle.scenario"),
    },
    Failure {
        name: "maekawa-displaced-request",
        title: "Maekawa's displaced request",
        story: "The algorithm as published in 1985, with FAILED, INQUIRE and RELINQUISH. A request was first in an \
                arbiter's queue, so it received no FAILED; then an older request displaces it. It still believes that \
                it may win, and keeps a vote that the older request needs.",
        why: "Sanders' correction of 1987: an arbiter also sends FAILED to the request that an older one displaces from \
              the head of its queue. `maekawa` does that.",
        command: "lockkeeper check maekawa-1985 --sites 4",
        found_by: FoundBy::Messages,
        run: run!("maekawa-displaced-request.scenario"),
    },
    Failure {
        name: "lamport-on-channels-that-reorder",
        title: "Lamport without FIFO",
        story: "A later message overtakes an earlier one on the same channel. A site believes that it has \
                received everything older than its request, and enters while the other is inside.",
        why: "Lamport's rule is that a message with a larger timestamp from every other site means that nothing \
              older can come. On a channel that reorders, something older can.",
        command: "lockkeeper check lamport --sites 2 --non-fifo --only mutual-exclusion",
        found_by: FoundBy::Messages,
        run: run!("lamport-on-channels-that-reorder.scenario"),
    },
    Failure {
        name: "bakery-without-choosing",
        title: "The bakery without its doorway",
        story: "Two processes look at each other's number at the same time and take the same one. The one that is \
                slow to write its number down enters although the other is inside already.",
        why: "The register 'choosing' makes others wait until a number has been written down. Without it, a \
              process compares itself with a number that is about to change.",
        command: "lockkeeper check bakery-without-choosing --sites 2",
        found_by: FoundBy::Registers,
        run: run!("bakery-without-choosing.story"),
    },
    Failure {
        name: "two-tokens-after-a-hasty-regeneration",
        title: "Two tokens",
        story: "A site is slow and has not crashed. The others suspect it, find no token among themselves, and \
                create a new one. Now there are two tokens, and two sites are inside.",
        why: "A missing reply does not distinguish a crashed site from a slow one. A token may be created again \
              only when the old one can no longer be used: with a perfect detector, with a lease that has \
              expired, or with fences that exclude the old holder.",
        command: "lockkeeper check token-ring-recovering --sites 3 --suspicions 1 --only mutual-exclusion",
        found_by: FoundBy::Messages,
        run: run!("two-tokens-after-a-hasty-regeneration.scenario"),
    },
    Failure {
        name: "bully-under-partition",
        title: "Bully under partition",
        story: "The network is partitioned. A site receives nothing from any higher one, assumes that they have \
                crashed, and leads its side; on the other side the old leader still leads.",
        why: "The Bully algorithm assumes that a site that does not answer in time is down. A partition breaks \
              that: no timeout is long enough. Only a majority, which cannot be on both sides, ensures a single \
              leader.",
        command: "lockkeeper check bully --sites 3 --partition",
        found_by: FoundBy::Election,
        run: run!("bully-under-partition.scenario"),
    },
    Failure {
        name: "lease-from-arrival",
        title: "A lease counted from the reply",
        story: "A member asks for a lease; the reply is slow. The member counts its lease from the arrival, the leader \
                counted from the request: a new view starts while the member still believes in its lease.",
        why: "A lease must be counted from the time of the request, which is before the grant. Then the holder stops \
              first, however slow the reply was.",
        command: "lockkeeper check --cluster --members 2 --units 5 --lock-requests 0 --late-leases --bug lease-from-arrival",
        found_by: FoundBy::Cluster,
        run: run!("lease-from-arrival.story"),
    },
    Failure {
        name: "two-coordinators",
        title: "Two coordinators, one epoch",
        story: "Leadership changes right after a view was decided and started. The new leader starts that same \
                view again: one epoch has two beginnings, and they need not agree on who holds what.",
        why: "Only the leader that decided a view may start it. A new leader decides a view of its own, with a higher \
              number, and the old start is refused.",
        command: "lockkeeper check --cluster --leader-changes 1 --service --bug two-coordinators",
        found_by: FoundBy::Cluster,
        run: run!("two-coordinators.story"),
    },
];

/// The counterexample with the given name.
pub fn find(name: &str) -> Option<&'static Failure> {
    ALL.iter().find(|failure| failure.name == name)
}

impl Failure {
    /// Its run as a scenario, if it is one.
    pub fn scenario(&self) -> Option<&'static str> {
        matches!(self.found_by, FoundBy::Messages | FoundBy::Election).then_some(self.run)
    }

    /// Its run as a recording, made from its sentences.
    pub fn recording(&self) -> Recording {
        story::recording(self.run)
    }

    /// Searches for it with the lab's own checkers, and returns the run found.
    pub fn search(&self) -> Result<String, Error> {
        let nothing = || UsageError::NotFound { name: self.name.into() };
        let unknown = || UsageError::UnknownExhibit { name: self.name.into() };
        match self.found_by {
            FoundBy::Messages => {
                let exhibit = gallery::all().into_iter().find(|exhibit| exhibit.name == self.name);
                let report = checker::check(&exhibit.ok_or_else(unknown)?.systems[0], |_| true)?;
                Ok(report.counterexample.and_then(|found| found.scenario).ok_or_else(nothing)?)
            }
            FoundBy::Registers => {
                let report = checker::check(&CheckSpec::new(self.name, 2), |_| true)?;
                let found = report.counterexample.ok_or_else(nothing)?;
                Ok(story::text(&found.story, &found.violation.what))
            }
            FoundBy::Election => {
                let spec = CheckSpec {
                    partition: true,
                    limits: SearchLimits::states(100_000),
                    ..CheckSpec::new("bully", 3)
                };
                let report = checker::check(&spec, |_| true)?;
                Ok(report.counterexample.and_then(|found| found.scenario).ok_or_else(nothing)?)
            }
            FoundBy::Cluster => Err(UsageError::FailureOfClusters { name: self.name.into() }.into()),
        }
    }
}
