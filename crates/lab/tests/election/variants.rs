//! Every mutant of an election is caught, and its twin passes the same check.

use super::{at, election, site, t};
use lockkeeper_core::Election;
use lockkeeper_lab::Time;
use lockkeeper_lab::checker::{CheckReport, CheckSpec, Fault, Faults, SearchLimits, check};
use lockkeeper_lab::election::sim::Sim;
use lockkeeper_lab::mutants::election::{ALL, Mutant, Visitor, visit};
use lockkeeper_lab::property::Property;
use lockkeeper_lab::simulator::spec::{Action, DetectorSpec};

/// Enough for the twins. A mutant whose messages grow without bound has infinitely many states.
const MOST_STATES: u64 = 20_000;

struct IsCaught(Mutant);

impl Visitor for IsCaught {
    type Output = ();

    fn visit<Wrong: Election, Twin: Election>(self) {
        let name = self.0.name;
        let (wrong, twin) = (checked(name), checked(self.0.twin));
        assert!(twin.is_verified(), "the twin of {name}: {twin:#?}");
        match wrong.counterexample {
            Some(found) => assert_eq!(found.breach.property, self.0.breaks, "{name}: {found}"),
            None => {
                assert!(!wrong.complete, "{name} is not caught");
                assert_eq!(timed::<Wrong>(), Some(self.0.breaks), "{name} is not caught");
            }
        }
        assert_eq!(timed::<Twin>(), None, "the twin of {name}");
    }
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
fn timed<E: Election>() -> Option<Property> {
    (0..80).find_map(|quarter| {
        let mut spec = election(E::ABOUT.slug, 4, &[(2, 1.0)]);
        spec.system.detector = DetectorSpec::Perfect;
        at(&mut spec, 0.0, Action::Crash(site(4)));
        at(&mut spec, 1.0 + f64::from(quarter) / 4.0, Action::Crash(site(2)));
        let (run, _) = Sim::<E>::new(&spec, E::Options::default(), 1, None).run();
        assert!(run.end > t(1.0) && run.end < Time::NEVER);
        run.breaches.first().map(|breach| breach.property)
    })
}

#[test]
fn every_election_mutant_is_caught_and_its_twin_passes() {
    assert!(ALL.len() >= 5);
    for mutant in ALL {
        visit(mutant.name, IsCaught(*mutant)).expect("every mutant of the list can be visited");
    }
}
