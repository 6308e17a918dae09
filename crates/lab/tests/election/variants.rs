//! Every mutant of an election is caught, and its twin passes the same check.

use super::{at, election, site, t};
use lockkeeper_lab::Time;
use lockkeeper_lab::checker::{CheckReport, CheckSpec, Fault, Faults, SearchLimits, check};
use lockkeeper_lab::election::algorithm::{self, ElectionAlgorithm};
use lockkeeper_lab::election::sim::Sim;
use lockkeeper_lab::mutants::election::{ALL, Mutant};
use lockkeeper_lab::property::Property;
use lockkeeper_lab::simulator::spec::{Action, DetectorSpec};

/// Enough for the twins. A mutant whose messages grow without bound has infinitely many states.
const MOST_STATES: u64 = 20_000;

fn assert_caught(mutant: &Mutant) {
    let Mutant { name, breaks, .. } = *mutant;
    let (wrong, twin) = (checked(name), checked(mutant.twin));
    assert!(twin.is_verified(), "the twin of {name}: {twin:#?}");
    match wrong.counterexample {
        Some(found) => assert_eq!(found.violation.property, breaks, "{name}: {found}"),
        None => {
            assert!(!wrong.complete, "{name} is not caught");
            assert_eq!(timed(mutant.algorithm), Some(breaks), "{name} is not caught");
        }
    }
    let twin = algorithm::find(mutant.twin).expect("the twin is in the registry");
    assert_eq!(timed(twin), None, "the twin of {name}");
}

fn checked(election: &str) -> CheckReport {
    let spec = CheckSpec {
        faults: Faults::default().with(Fault::Crash, 1),
        limits: SearchLimits::states(MOST_STATES),
        ..CheckSpec::new(election, 3)
    };
    check(&spec, |_| true).expect("a valid spec")
}

/// The first property that is violated when the initiator of an election crashes at any time during it.
fn timed(algorithm: &dyn ElectionAlgorithm) -> Option<Property> {
    let configured = algorithm.with_defaults();
    (0..80).find_map(|quarter| {
        let mut spec = election(algorithm.about().slug, 4, &[(2, 1.0)]);
        spec.system.detector = DetectorSpec::Perfect;
        at(&mut spec, 0.0, Action::Crash(site(4)));
        at(&mut spec, 1.0 + f64::from(quarter) / 4.0, Action::Crash(site(2)));
        let (run, _) = Sim::new(&spec, &*configured, 1, None).run();
        assert!(run.end > t(1.0) && run.end < Time::NEVER);
        run.violations.first().map(|violation| violation.property)
    })
}

#[test]
fn every_election_mutant_is_caught_and_its_twin_passes() {
    assert!(ALL.len() >= 5);
    for mutant in ALL {
        assert_caught(mutant);
    }
}
