//! Every mutant of an election is caught, and its twin passes the same check.

use super::{at, election, site, t};
use lockkeeper_core::election::Winner;
use lockkeeper_lab::Time;
use lockkeeper_lab::checker::{CheckReport, CheckSpec, Fault, Faults, SearchLimits, check};
use lockkeeper_lab::election::algorithm::{self, ElectionAlgorithm};
use lockkeeper_lab::election::sim::Sim;
use lockkeeper_lab::mutants::election::{ALL, Mutant};
use lockkeeper_lab::property::Property;
use lockkeeper_lab::simulator::delay::Delay;
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
            let found = timed(mutant.algorithm).or_else(|| restarted(mutant.algorithm));
            assert_eq!(found, Some(breaks), "{name} is not caught");
        }
    }
    let twin = algorithm::find(mutant.twin).expect("the twin is in the registry");
    assert_eq!(timed(twin), None, "the twin of {name}");
    assert_eq!(restarted(twin), None, "the twin of {name}");
}

fn checked(election: &str) -> CheckReport {
    let about = algorithm::find_with_mutants(election).expect("an election or a mutant").about();
    let mut spec = CheckSpec {
        faults: Faults::default().with(Fault::Crash, about.survives_crashes.into()),
        limits: SearchLimits::states(MOST_STATES),
        ..CheckSpec::new(election, 3)
    };
    if about.winner == Winner::Any {
        spec.initiators = Some(2);
    }
    let explore = |spec: &CheckSpec| check(spec, |_| true).expect("a valid spec");
    if about.settings.iter().all(|setting| setting.name != "draw") {
        return explore(&spec);
    }
    // The first of these draws that shows a violation.
    let mut report = None;
    for draw in 0..20 {
        spec.settings = vec![("draw".into(), draw.to_string())];
        let next = report.insert(explore(&spec));
        if next.counterexample.is_some() {
            break;
        }
    }
    report.expect("there are draws")
}

/// The first property that is violated when the initiator of an election crashes at any time during it; or, where no
/// site may crash, when another site starts one as well.
fn timed(algorithm: &dyn ElectionAlgorithm) -> Option<Property> {
    let configured = algorithm.with_defaults();
    (0..80).find_map(|quarter| {
        // Where a majority is needed, three of five sites stay up.
        let sites = if algorithm.about().winner == Winner::Any { 5 } else { 4 };
        let mut spec = election(algorithm.about().slug, sites, &[(2, 1.0)]);
        let later = 1.0 + f64::from(quarter) / 4.0;
        if configured.algorithm().about().survives_crashes {
            spec.system.detector = DetectorSpec::Perfect;
            at(&mut spec, 0.0, Action::Crash(site(sites)));
            at(&mut spec, later, Action::Crash(site(2)));
        } else {
            spec.initiators.push((site(1), t(later)));
        }
        let (run, _) = Sim::new(&spec, &*configured, 1, None).run();
        assert!(run.end > t(1.0) && run.end < Time::NEVER);
        run.violations.first().map(|violation| violation.property)
    })
}

/// Two candidates and messages of random delays; the third site crashes and is back at once. Only two leaders in one
/// term count: the delays exceed what the papers assume.
fn restarted(algorithm: &dyn ElectionAlgorithm) -> Option<Property> {
    let configured = algorithm.with_defaults();
    (0..200).find_map(|seed| {
        let mut spec = election(algorithm.about().slug, 3, &[(1, 1.0), (2, 1.0)]);
        spec.system.network.delay = Delay::parse("exponential:1").unwrap();
        let crash = 1.0 + (seed % 16) as f64 / 4.0;
        at(&mut spec, crash, Action::Crash(site(3)));
        at(&mut spec, crash + 0.5, Action::Recover(site(3)));
        let (run, _) = Sim::new(&spec, &*configured, seed, None).run();
        let broken = run.violations.into_iter().map(|violation| violation.property);
        broken.into_iter().find(|property| *property == Property::OneLeader)
    })
}

#[test]
fn every_election_mutant_is_caught_and_its_twin_passes() {
    assert!(ALL.len() >= 12);
    for mutant in ALL {
        assert_caught(mutant);
    }
}
