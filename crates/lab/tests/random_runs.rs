//! Every algorithm under random delays, loads and sizes; and every mutant is caught.

use lockkeeper_core::algorithms::centralized::{self, Centralized};
use lockkeeper_core::algorithms::gate::{self, Gate, SharedByToken};
use lockkeeper_core::algorithms::k_mutual_exclusion::{self, KMutualExclusion};
use lockkeeper_core::algorithms::maekawa::Maekawa;
use lockkeeper_core::algorithms::maekawa_basic::MaekawaBasic;
use lockkeeper_core::algorithms::ricart_agrawala::RicartAgrawala;
use lockkeeper_core::mutex::Family;
use lockkeeper_core::quorum::Construction;
use lockkeeper_core::{SiteId, registry};
use lockkeeper_lab::algorithm::{self, Configured};
use lockkeeper_lab::conformance::{self, check};
use lockkeeper_lab::mutants::{self, Mutant};
use lockkeeper_lab::property::Property;
use lockkeeper_lab::simulator::delay::Delay;
use lockkeeper_lab::simulator::run::Sim;
use lockkeeper_lab::simulator::spec::LoadSpec;
use lockkeeper_lab::{Progress, Spec, conformance_with, simulate};
use std::sync::Arc;

/// An algorithm of the registry with its default options.
fn with_defaults(slug: &str) -> Arc<dyn Configured> {
    algorithm::find(slug).expect("the slug is of the registry").with_defaults()
}

#[test]
fn every_algorithm_of_the_registry_conforms() {
    for entry in registry::ALL.iter().filter(|entry| entry.about.deadlock_free) {
        let algorithm = with_defaults(entry.about.slug);
        let coverage = check(&*algorithm, 0..600).unwrap_or_else(|failure| panic!("{failure}"));
        let never = coverage.never(&*algorithm);
        assert!(never.is_empty(), "{}: never {never:?}", entry.about.slug);
    }
}

#[test]
fn centralized_conforms_with_every_option() {
    for coordinator in [None, Some(SiteId(0))] {
        let options = centralized::Options { coordinator, denied: true };
        conformance_with::<Centralized>(&options);
    }
}

#[test]
fn k_mutual_exclusion_conforms_for_every_k() {
    for k in [1, 3, 7] {
        conformance_with::<KMutualExclusion>(&k_mutual_exclusion::Options { k });
    }
}

/// The gate over a token is in the registry.
#[test]
fn gate_conforms_with_permits_and_over_every_family() {
    for permits in [1, 2, 3] {
        conformance_with::<SharedByToken>(&gate::Options { permits: Some(permits), inner: () });
    }
    lockkeeper_lab::conformance::<Gate<Centralized>>();
    lockkeeper_lab::conformance::<Gate<RicartAgrawala>>();
    lockkeeper_lab::conformance::<Gate<Maekawa>>();
}

/// The random cases must reach the maximum number of holders, and never exceed it.
#[test]
fn random_runs_reach_the_maximum_number_of_holders() {
    let most = |k, cases: std::ops::Range<u64>| {
        let algorithm = algorithm::with::<KMutualExclusion>(k_mutual_exclusion::Options { k });
        let inside = |case| {
            let spec = conformance::spec_of(&*algorithm, case);
            let (outcome, _) = Sim::new(&spec, &*algorithm, case, None).run(|_| true);
            (outcome.measures.counts.max_inside, spec.holders.len())
        };
        cases.map(inside).reduce(|a, b| (a.0.max(b.0), a.1.max(b.1))).unwrap()
    };
    assert_eq!(most(2, 0..60), (2, 2));
    assert_eq!(most(3, 0..60), (3, 3));
}

/// Without its deadlock messages, Maekawa's algorithm is safe and can deadlock; no other property is violated.
#[test]
fn maekawa_basic_is_safe_but_deadlocks() {
    let mut deadlocks = 0;
    let algorithm = algorithm::with::<MaekawaBasic>(Construction::Best);
    for case in 0..300 {
        let spec = conformance::spec_of(&*algorithm, case);
        let (outcome, _) = Sim::new(&spec, &*algorithm, case, None).run(|_| true);
        for violation in outcome.violations {
            assert_eq!(violation.property, Property::NoDeadlock, "case {case}: {violation}");
            deadlocks += 1;
        }
    }
    assert!(deadlocks > 50, "{deadlocks}");
}

/// Bursts of every size, on FIFO channels and on others: no deadlock, and every message type that prevents
/// one occurs. `LOCKKEEPER_RUNS=50000` makes it 100,000 bursts.
#[test]
fn maekawa_never_deadlocks_in_random_bursts() {
    let bursts = std::env::var("LOCKKEEPER_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1_000);
    let mut delivered = [0; 6];
    let algorithm = with_defaults("maekawa");
    for (fifo, seed) in [true, false].into_iter().flat_map(|fifo| (0..bursts).map(move |seed| (fifo, seed))) {
        let sites = 2 + (seed % 30) as usize;
        let mut spec = Spec::new("maekawa", sites);
        spec.load = LoadSpec::Burst;
        spec.entries = sites as u64;
        spec.network.delay = Delay::parse("exponential:1").unwrap();
        spec.network.fifo = fifo;
        let (outcome, _) = Sim::new(&spec, &*algorithm, seed, None).run(|_| true);
        assert!(outcome.violations.is_empty(), "{}\n{:?}", spec.command(seed), outcome.violations);
        for (sum, n) in delivered.iter_mut().zip(outcome.delivered) {
            *sum += n;
        }
    }
    assert!(delivered.iter().all(|&n| n > 0), "{delivered:?}");
}

/// A mutant must be caught within this number of cases, all of which its twin passes.
const CASES: u64 = 400;

fn assert_caught(mutant: &Mutant) {
    let Mutant { name, breaks, .. } = *mutant;
    let wrong = mutant.algorithm.with_defaults();
    let mut broken = Vec::new();
    let mut from = 0;
    // A mutant may violate another property first: a second token exists before a second site is inside.
    while !broken.contains(&breaks) {
        let failure =
            check(&*wrong, from..CASES).expect_err(&format!("{name} broke {broken:?} only, not {breaks:?}"));
        broken.extend(failure.violations.iter().map(|violation| violation.property));
        from = failure.case + 1;
    }
    let never: &[Property] = match breaks {
        Property::NoStarvation => &[Property::NoDeadlock, Property::MutualExclusion],
        _ => &[],
    };
    assert!(!broken.iter().any(|property| never.contains(property)), "{name} broke {broken:?}");
    if let Err(failure) = check(&*with_defaults(mutant.twin), 0..from) {
        panic!("the twin of {name} must pass the same cases:\n{failure}");
    }
}

#[test]
fn every_mutant_is_caught_and_its_twin_passes() {
    assert!(mutants::ALL.len() >= 14);
    // Mutants that only send too many messages are for the checker: the paper's bound is one on all runs.
    for mutant in mutants::ALL.iter().filter(|mutant| mutant.breaks != Property::MessageBound) {
        assert_caught(mutant);
    }
}

/// Runs a conformance case on channels of the given kind; returns whether mutual exclusion held.
fn is_exclusive(algorithm: &dyn Configured, case: u64, fifo: bool) -> bool {
    let mut spec = conformance::spec_of(algorithm, case);
    spec.network.fifo = fifo;
    let (outcome, _) = Sim::new(&spec, algorithm, case, None).run(|_| true);
    outcome.violations.iter().all(|violation| violation.property != Property::MutualExclusion)
}

#[test]
fn ricart_agrawala_is_safe_without_fifo() {
    let algorithm = with_defaults("ricart-agrawala");
    for case in 0..300 {
        assert!(is_exclusive(&*algorithm, case, true), "case {case}");
        assert!(is_exclusive(&*algorithm, case, false), "case {case}");
    }
}

#[test]
fn lamport_without_fifo_is_violated_within_a_few_seeds_and_the_report_has_the_command() {
    let mut spec = Spec::new("lamport", 3);
    spec.network.delay = Delay::parse("exponential:1").unwrap();
    spec.network.fifo = false;
    let report = simulate(&spec, 1, 20, &Progress::default()).unwrap();
    assert_eq!(report.properties.mutual_exclusion, "violated");
    let found =
        report.violations.iter().find(|found| found.violation.property == Property::MutualExclusion).unwrap();
    assert!(found.reproduce.contains(&format!("--seed {} --non-fifo", found.seed)), "{}", found.reproduce);
    let again = simulate(&spec, found.seed, 1, &Progress::default()).unwrap();
    assert!(again.violations.iter().any(|same| same.violation == found.violation));

    spec.network.fifo = true;
    let report = simulate(&spec, 1, 200, &Progress::default()).unwrap();
    assert!(report.held(), "{:?}", report.violations.first());
}

/// The long form: `LOCKKEEPER_RUNS=10000 cargo test --release -p lockkeeper-lab --test random_runs -- many`.
#[test]
fn many_random_runs_hold() {
    let runs = std::env::var("LOCKKEEPER_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1_000);
    let permission = |family| matches!(family, Family::Permission | Family::Quorum);
    let tested =
        registry::ALL.iter().filter(|entry| entry.about.deadlock_free && permission(entry.about.family));
    for entry in tested {
        // Cases that the test above does not use.
        let cases = 1_000_000..1_000_000 + runs;
        check(&*with_defaults(entry.about.slug), cases).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
