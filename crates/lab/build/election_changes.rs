//! The mutants of elections, and of the coordinator that fails over.

use crate::changes::Change;

/// Mutants that fail when the coordinator crashes.
pub const FAILOVER_CHANGES: &[Change] = &[
    Change {
        name: "failover-forgets-the-queue",
        module: "centralized_failover",
        protocol: "CentralizedFailover",
        from: "Phase::Waiting => self.enter(from, out),",
        to: "Phase::Waiting => {}",
        breaks: "NoDeadlock",
        story: "the new coordinator does not queue the waiting sites",
    },
    Change {
        name: "failover-asks-no-site",
        module: "centralized_failover",
        protocol: "CentralizedFailover",
        from: "SiteSet::all_but(self.processes, self.me);",
        to: "SiteSet::none(self.processes);",
        breaks: "MutualExclusion",
        story: "the new coordinator grants before a site has reported the current holder",
    },
    Change {
        name: "failover-uses-a-fence-twice",
        module: "centralized_failover",
        protocol: "CentralizedFailover",
        from: "        out.skip_fence();\n        self.grant_next(out);",
        to: "        self.grant_next(out);",
        breaks: "FenceMonotone",
        story: "the new coordinator does not skip the fence that the old one may have used",
    },
];

/// Mutants of elections; the violated property is that of the same name in `election`.
pub const ELECTION_CHANGES: &[Change] = &[
    Change {
        name: "bully-ignores-ok",
        module: "bully",
        protocol: "Bully",
        from: "Message::Ok if self.stage == Stage::AwaitsAnswer => {",
        to: "Message::Ok if self.stage == Stage::Announced => {",
        breaks: "HighestLeads",
        story: "a site that receives a reply from a higher one announces itself all the same",
    },
    Change {
        name: "bully-trusts-any-answer",
        module: "bully",
        protocol: "Bully",
        from: "out.arm(Timer::Coordinator, 2 * self.timeout_milli_t);",
        to: "",
        breaks: "Agreement",
        story: "a site that got OK waits for ever for a site that may have crashed since",
    },
    Change {
        name: "ring-election-believes-old-news",
        module: "ring_election",
        protocol: "RingElection",
        from: "if round > self.round || later {",
        to: "if round > self.round || later || informed.len() < usize::MAX {",
        breaks: "Agreement",
        story: "messages of an earlier round are accepted at any time",
    },
    Change {
        name: "ring-election-only-its-sender-stops-a-coordinator",
        module: "ring_election",
        protocol: "RingElection",
        from: "if informed.contains(&self.me) {",
        to: "if informed.first() == Some(&self.me) {",
        breaks: "Termination",
        story: "a COORDINATOR whose sender has crashed circulates for ever",
    },
    Change {
        name: "chang-roberts-passes-over-the-candidate",
        module: "chang_roberts",
        protocol: "ChangRoberts",
        from: "Some((dead, body)) if dead == body.site => {",
        to: "Some((dead, body)) if dead == self.me => {",
        breaks: "Termination",
        story: "the number of a candidate that has crashed circulates for ever",
    },
];
