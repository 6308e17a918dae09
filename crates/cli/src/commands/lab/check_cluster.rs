//! `lockkeeper check --cluster`: whole members of a small cluster, in every order of events during view changes.

use super::check::{Budget, Stopwatch, Took, grouped, seconds};
use crate::exit::CliError;
use crate::{exit, print_line};
use clap::Args;
use lockkeeper_cluster_lab::BugSwitch;
use lockkeeper_cluster_lab::views::{self, Bounds, Holder, SearchResult};
use serde_json::json;
use std::process::ExitCode;

/// The flags that apply only to clusters.
#[derive(Args)]
pub struct ClusterFlags {
    /// Check whole members of a cluster with views and leases, in place of a bare algorithm: naimi-trehel or
    /// ricart-agrawala. Every search is bounded: see --units and the flags below, --crashes and --restarts.
    #[arg(long, help_heading = "Clusters", conflicts_with_all = ["all", "mutants", "forever", "svg", "trace", "full"])]
    pub cluster: bool,
    /// The number of members.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "cluster", help_heading = "Clusters")]
    members: usize,
    /// The number of units of time; a lease lasts four, the silence timeout two.
    #[arg(long, value_name = "N", default_value_t = 4, requires = "cluster", help_heading = "Clusters")]
    units: u64,
    /// The number of changes of the leader.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "cluster", help_heading = "Clusters")]
    leader_changes: u8,
    /// The number of times that a member stops for a while.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "cluster", help_heading = "Clusters")]
    sleeps: u8,
    /// The number of lock requests of clients.
    #[arg(
        long,
        alias = "wishes",
        value_name = "N",
        default_value_t = 1,
        requires = "cluster",
        help_heading = "Clusters"
    )]
    lock_requests: u8,
    /// The number of members whose clients request the lock in shared mode.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=9), requires = "cluster", help_heading = "Clusters")]
    readers: u32,
    /// The number of views that are decided after the first.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "cluster", help_heading = "Clusters")]
    views: u8,
    /// Renewals of leases, their replies and the voters' confirmations may take any time, too.
    #[arg(long, requires = "cluster", help_heading = "Clusters")]
    late_leases: bool,
    /// Clocks run a quarter fast or slow, in every combination.
    #[arg(long, requires = "cluster", help_heading = "Clusters")]
    drift: bool,
    /// Check that every waiter at the end is served once no more faults occur.
    #[arg(long, requires = "cluster", help_heading = "Clusters")]
    service: bool,
    /// The number of planned leaves.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "cluster", help_heading = "Clusters")]
    leaves: u8,
    /// Start with a recorded hold of one more client, which has a session at the last member. Then a lease lasts two units
    /// and the time to live of the hold is six.
    #[arg(long, requires = "cluster", help_heading = "Clusters")]
    recorded_hold: bool,
    /// Like --recorded-hold, but the hold was just granted and is recorded during the search.
    #[arg(long, requires = "cluster", conflicts_with = "recorded_hold", help_heading = "Clusters")]
    granted_hold: bool,
    /// The number of times that the client of that hold sends its messages, each time to any member.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "cluster", help_heading = "Clusters")]
    contacts: u8,
    /// The client of that hold may release it.
    #[arg(long, requires = "cluster", help_heading = "Clusters")]
    holder_releases: bool,
    /// The client of that hold sends nothing more once no more faults occur (with --service).
    #[arg(long, requires = "cluster", help_heading = "Clusters")]
    holder_gone: bool,
    /// Disable one guard of the protocol, such as no-wait, to show that the check finds the bug; a wrong name lists
    /// the bug switches.
    #[arg(long, value_name = "NAME", requires = "cluster", help_heading = "Clusters")]
    bug: Option<String>,
}

/// The faults of members that a check of a cluster allows.
#[derive(Clone, Copy)]
pub struct MemberFaults {
    /// The number of crashes.
    pub crashes: u8,
    /// The number of restarts.
    pub restarts: u8,
}

impl ClusterFlags {
    pub fn check(
        &self,
        algorithm: &str,
        faults: MemberFaults,
        budget: &Budget,
        as_json: bool,
    ) -> Result<ExitCode, CliError> {
        let watch = Stopwatch::start();
        let bug = self.bug.as_deref().map(BugSwitch::parse).transpose().map_err(CliError::usage)?;
        let bounds = self.bounds(faults);
        let found = budget.watch(algorithm, |go_on| views::check(algorithm, bounds, bug, go_on));
        let answer = found.map_err(CliError::usage)?;
        if as_json {
            print_line!("{}", in_json(algorithm, &answer, watch.took()));
        } else {
            print(algorithm, &bounds, &answer, watch.took());
        }
        Ok(match answer {
            SearchResult { wrong: Some(_), .. } => ExitCode::from(exit::VIOLATED),
            SearchResult { complete: false, .. } => ExitCode::from(exit::UNFINISHED),
            _ => ExitCode::SUCCESS,
        })
    }

    fn bounds(&self, faults: MemberFaults) -> Bounds {
        let holder = (self.recorded_hold || self.granted_hold).then_some(Holder {
            recorded: self.recorded_hold,
            contacts: self.contacts,
            releases: self.holder_releases,
            returns: !self.holder_gone,
        });
        Bounds {
            members: self.members,
            units: self.units,
            crashes: faults.crashes,
            restarts: faults.restarts,
            sleeps: self.sleeps,
            elections: self.leader_changes,
            lock_requests: self.lock_requests,
            readers: (1 << self.readers) - 1,
            views: self.views,
            largest_clock: None,
            late_leases: self.late_leases,
            fast: self.drift.then_some(0),
            service: self.service,
            leaves: self.leaves,
            holder,
        }
    }
}

fn in_json(algorithm: &str, answer: &SearchResult, took: Took) -> String {
    let counterexample = answer.wrong.as_ref().map(|wrong| &wrong.run);
    let wrong = answer.wrong.as_ref().map(|wrong| (wrong.property.to_string(), &wrong.what));
    json!({
        "algorithm": algorithm, "distinct": answer.distinct, "generated": answer.generated, "depth": answer.depth,
        "complete": answer.complete, "seconds": seconds(took.wall), "cpu_seconds": seconds(took.cpu),
        "wrong": wrong, "counterexample": counterexample,
    })
    .to_string()
}

fn print(algorithm: &str, bounds: &Bounds, answer: &SearchResult, took: Took) {
    print_line!(
        "{algorithm}, {} members, {} units of time, at most {} crashes, {} restarts, {} sleeps, {} changes of the leader, \
         {} leaves, {} lock requests, {} new views",
        bounds.members,
        bounds.units,
        bounds.crashes,
        bounds.restarts,
        bounds.sleeps,
        bounds.elections,
        bounds.leaves,
        bounds.lock_requests,
        bounds.views
    );
    if let Some(Holder { recorded, contacts, releases, .. }) = bounds.holder {
        let hold = if recorded { "a recorded hold" } else { "a hold that was just granted" };
        let releases = if releases { ", which may release it" } else { "" };
        print_line!("{hold} of a client that sends its messages {contacts} times{releases}");
    }
    print_line!(
        "{} states, {} steps, {} deep, {:.1} s\n",
        grouped(answer.distinct),
        grouped(answer.generated),
        answer.depth,
        took.wall.as_secs_f64()
    );
    match &answer.wrong {
        Some(wrong) => {
            print_line!("VIOLATED: {}. After {} steps, {}:\n", wrong.property, wrong.run.len(), wrong.what);
            for (number, sentence) in (1..).zip(&wrong.run) {
                print_line!("{number:>4}. {sentence}");
            }
        }
        None if answer.complete => print_line!("Everything that was promised holds in all of them."),
        None => print_line!("The budget was reached: what lies deeper than {} was not seen.", answer.depth),
    }
}
