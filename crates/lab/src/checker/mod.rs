//! The model checker: visits every reachable state of a small system and reports a shortest run to a
//! violation.
//!
//! ```
//! use lockkeeper_lab::checker::{CheckSpec, check};
//!
//! let report = check(&CheckSpec::new("ricart-agrawala", 2), |_| true).unwrap();
//! assert!(report.is_verified());
//! assert_eq!(report.max_messages_per_entry, Some(2.0)); // 2(N−1), in any run
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`explore`] | the search: every reachable state of a model, and cycles of states |
//! | [`spec`] | [`CheckSpec`], the system to check and the options |
//! | [`report`] | [`CheckReport`], the verdicts and counts |
//! | [`mutual_exclusion`] | models of mutual exclusion algorithms |
//! | [`registers`] | models of shared-memory algorithms: Dijkstra's and the bakeries |
//! | [`crate::election`] | models of elections |
//! | [`counterexample`] | a violating run as sentences and as a scenario |
//! | [`counterexamples`] | known counterexamples, each with a shortest run |
//! | [`tla`] | the reachable states as a TLA+ module, for TLC |
//! | [`gallery`] | the mutants and wrong circumstances that the checker must catch |

pub mod counterexample;
pub mod counterexamples;
pub mod explore;
pub mod gallery;
mod guarantees;
pub mod mutual_exclusion;
pub mod registers;
pub mod report;
pub mod spec;
pub mod tla;

pub use explore::{SearchLimits, SearchProgress};
pub use mutual_exclusion::machine::{Fault, Faults};
pub use report::{CheckReport, Verdict};
pub use spec::{CheckSpec, CheckSpecError, ModelKind};

use crate::algorithm::{self, Algorithm};
use crate::election;
use crate::property::Property;
use crate::simulator::runner::{self, Error};
use crate::simulator::spec::Spec;
use crate::usage::UsageError;
use counterexample::Counterexample;
use explore::{Ended, FoundViolation, Model, Search, Worker, cycles};
use guarantees::Guarantees;
use lockkeeper_core::Setup;
use lockkeeper_core::mutex::Channels;
use mutual_exclusion::machine::Violation;
use mutual_exclusion::mutex::Sites;
use mutual_exclusion::net::{Action, Net};
use mutual_exclusion::seen::Seen;
use mutual_exclusion::symmetry::Symmetric;
use spec::MOST_SITES;

/// Searches every reachable state. `go_on` is called with the progress at intervals; the search stops when it
/// returns `false`.
pub fn check(spec: &CheckSpec, mut go_on: impl FnMut(SearchProgress) -> bool) -> Result<CheckReport, Error> {
    let unknown = || UsageError::UnknownAlgorithm { name: spec.algorithm.clone() };
    let kind = ModelKind::of(&spec.algorithm).ok_or_else(unknown)?;
    spec.check(kind).map_err(UsageError::from)?;
    let go_on: &mut dyn FnMut(SearchProgress) -> bool = &mut go_on;
    match kind {
        ModelKind::MutualExclusion => {
            let algorithm = algorithm::find_with_mutants(&spec.algorithm).ok_or_else(unknown)?;
            check_mutual_exclusion(algorithm, spec, go_on)
        }
        ModelKind::Election => election::check(spec, go_on),
        ModelKind::Registers => registers::check(spec, go_on),
    }
}

/// Explores a model of which every state and step is checked, and adds the result to a report. With
/// `every_property`, the search continues past violations. `model` is called again if several threads found a
/// violation: one thread then searches for a shortest run.
pub(crate) fn explore<M: Model>(
    spec: &CheckSpec,
    every_property: bool,
    model: impl Fn() -> M,
    report: impl Fn(SearchProgress) -> CheckReport,
    go_on: &mut dyn FnMut(SearchProgress) -> bool,
) -> CheckReport
where
    for<'m> M::Worker<'m>: Worker<Violation = Violation>,
{
    let first = model();
    // The search for cycles needs the numbering of one thread.
    let threads = if first.goals() == 0 { spec.threads } else { 1 };
    let (found, without_run) = explore_once(&first, threads, spec, every_property, &report, go_on);
    if !without_run {
        return found;
    }
    let (again, _) = explore_once(&model(), 1, spec, every_property, &report, go_on);
    // A violation remains a violation if the budget of the second search ends before it finds a run.
    if again.complete { again } else { found }
}

fn explore_once<M: Model>(
    model: &M,
    threads: usize,
    spec: &CheckSpec,
    every_property: bool,
    report: impl Fn(SearchProgress) -> CheckReport,
    go_on: &mut dyn FnMut(SearchProgress) -> bool,
) -> (CheckReport, bool)
where
    for<'m> M::Worker<'m>: Worker<Violation = Violation>,
{
    let mut search = Search::new(model, threads);
    if every_property {
        search = search.every_property();
    }
    let ended = search.run(spec.limits, go_on);
    let mut violations = search.violations();
    if ended == Ended::All {
        violations.extend(cycles::search(&mut search));
    }
    let mut report = report(search.progress());
    report.complete = ended != Ended::Stopped;
    (report.cut, report.bounded) = (search.cut(), search.cut() > 0);
    violations.sort_by_key(|violation| violation.violation.property);
    let without_run = violations.iter().any(|violation| violation.run.is_none());
    for FoundViolation { violation, run } in violations {
        match run {
            Some(run) => {
                let described = search.describe(&run);
                report.add(Counterexample::described(violation, &run, described));
            }
            None => {
                report.violate(violation.property);
                report.wrong = Some(violation.what);
            }
        }
    }
    if ended == Ended::All {
        report.settle();
    }
    (report, without_run)
}

/// The configured algorithm of a spec, and its sites.
fn mutual_exclusion_system(
    algorithm: &dyn Algorithm,
    spec: &CheckSpec,
) -> Result<(Guarantees, Sites), Error> {
    let mut system = Spec::new(&spec.algorithm, spec.sites);
    system.settings.clone_from(&spec.settings);
    system.holders.clone_from(&spec.holders);
    let configured = runner::configure(algorithm, &system)?;
    if spec.sites + configured.helpers() > MOST_SITES {
        return Err(UsageError::CheckedProcesses { most: MOST_SITES }.into());
    }
    let guarantees = Guarantees::by(&*configured, spec);
    let sites = Sites {
        algorithm: configured,
        setup: Setup { holders: spec.holders.clone(), ..Setup::new(spec.sites, ()) },
        requests: spec.requests,
        fifo: spec.fifo.unwrap_or(algorithm.about().channels == Channels::Fifo),
        faults: spec.faults,
        only: spec.only,
    };
    Ok((guarantees, sites))
}

fn check_mutual_exclusion(
    algorithm: &dyn Algorithm,
    spec: &CheckSpec,
    go_on: &mut dyn FnMut(SearchProgress) -> bool,
) -> Result<CheckReport, Error> {
    if spec.symmetry {
        spec.check_symmetry(algorithm).map_err(UsageError::from)?;
    }
    let (guarantees, sites) = mutual_exclusion_system(algorithm, spec)?;
    let most_messages = guarantees.most_messages(spec);
    let checker = Checker { spec, perpetual: algorithm.about().perpetual, most_messages, sites, go_on };
    let (net, searched) = checker.run();
    Ok(guarantees.report(spec, &net, searched))
}

/// Runs the search, and a second one where that is necessary.
struct Checker<'a> {
    spec: &'a CheckSpec,
    perpetual: bool,
    /// The paper's bound on messages per entry, if there is one and it is checked.
    most_messages: Option<u32>,
    sites: Sites,
    go_on: &'a mut dyn FnMut(SearchProgress) -> bool,
}

/// The result of one search.
struct SearchResult {
    ended: Ended,
    violation: Option<FoundViolation<Action, Violation>>,
    progress: SearchProgress,
    seen: Seen,
    cut: u64,
    looked_for_starvation: bool,
}

impl Checker<'_> {
    fn run(mut self) -> (Net, SearchResult) {
        let spec = self.spec;
        // With limited requests and no perpetual token, runs normally end, and no cycle has to be found: the
        // search may be reduced and use several threads. Otherwise the search for cycles needs the full graph,
        // in the numbering of one thread.
        let ends = spec.requests.is_some() && !self.perpetual;
        let threads = if ends { spec.threads } else { 1 };
        let by_symmetry = if spec.symmetry { self.search_by_symmetry() } else { None };
        let (net, searched) = by_symmetry.unwrap_or_else(|| {
            let mut net = Net::new(self.sites.clone());
            net.reduced = ends && !spec.full;
            let searched = self.search(&net, threads);
            (net, searched)
        });
        let wrong = searched.ended == Ended::Violated;
        let all = searched.ended == Ended::All;
        let open = all && !searched.looked_for_starvation && spec.checks(Property::NoStarvation);
        let too_dear = all && self.most_messages.is_some_and(|most| searched.seen.costs_more_than(most));
        if !too_dear && !((wrong || open) && (net.reduced || threads > 1)) {
            return (net, searched);
        }
        // The second search explores every interleaving on one thread: its counterexample is a shortest one
        // and always the same, and its graph can be searched for cycles.
        let mut full = Net::new(self.sites.clone());
        full.most_messages = self.most_messages.filter(|_| too_dear);
        let again = self.search(&full, 1);
        // A violation remains a violation if the budget of the second search ends before it finds a run; but one in the
        // larger system of the search by symmetry is none before it is found here.
        let stopped = again.ended == Ended::Stopped;
        if stopped && (wrong || too_dear) && !net.symmetric { (net, searched) } else { (full, again) }
    }

    /// The search of the larger system in which clocks advance by any amount. A violation in it has to be found in the
    /// original system, too, by the second search. `None` if the sites turn out not to be alike.
    fn search_by_symmetry(&mut self) -> Option<(Net, SearchResult)> {
        let system = Symmetric { net: Net::symmetric(self.sites.clone()) };
        let mut search = Search::new(&system, self.spec.threads);
        let go_on = &mut self.go_on;
        let ended =
            search.run(self.spec.limits, |progress| !system.net.kernel.is_refuted() && go_on(progress));
        if system.net.kernel.is_refuted() {
            return None;
        }
        let mut seen = Seen::default();
        for worker in search.workers() {
            seen.add(&worker.seen());
        }
        let violation = search.violation().map(|violation| FoundViolation { violation, run: None });
        let (progress, cut) = (search.progress(), search.cut());
        drop(search);
        let ends = seen.max_messages < u8::MAX;
        Some((
            system.net,
            SearchResult { progress, cut, ended, violation, seen, looked_for_starvation: ends },
        ))
    }

    fn search(&mut self, net: &Net, threads: usize) -> SearchResult {
        let mut search = Search::new(net, threads);
        let ended = search.run(self.spec.limits, &mut self.go_on);
        let mut seen = Seen::default();
        for worker in search.workers() {
            seen.add(worker.seen());
        }
        let mut violation = None;
        if ended == Ended::Violated {
            // With deferred silent deliveries, the run lacks them and cannot be replayed.
            let replayable = |found: FoundViolation<_, _>| FoundViolation {
                run: found.run.filter(|_| !net.reduced),
                ..found
            };
            violation = search.violations().pop().map(replayable);
        }
        // If the number of messages is bounded, every run ends: an infinite run would send infinitely many
        // messages.
        let ends = net.kernel.traits().tallied.messages && seen.max_messages < u8::MAX;
        // A cycle has to be a run of the system; with deferred silent deliveries it is not one.
        let looks = net.goals() != 0 && ended == Ended::All && !ends && threads == 1 && !net.reduced;
        if looks {
            violation = cycles::search(&mut search).pop();
        }
        SearchResult {
            progress: search.progress(),
            cut: search.cut(),
            ended,
            violation,
            seen,
            looked_for_starvation: ends || looks,
        }
    }
}
