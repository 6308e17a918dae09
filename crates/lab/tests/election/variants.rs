//! Every mutant of an election is caught, and its twin passes the same check.

use super::{at, election, site, t};
use lockkeeper_core::Election;
use lockkeeper_lab::Time;
use lockkeeper_lab::election::Property;
use lockkeeper_lab::election::check::{Bounds, Timing, check};
use lockkeeper_lab::election::sim::Sim;
use lockkeeper_lab::mutants::election::{ALL, Mutant, Visitor, visit};
use lockkeeper_lab::spec::{Action, DetectorSpec};

/// Enough for the twins. A mutant whose messages grow without bound has infinitely many states.
const MOST_STATES: usize = 20_000;

struct IsCaught(Mutant);

impl Visitor for IsCaught {
    type Output = ();

    fn visit<Wrong: Election, Twin: Election>(self) {
        let name = self.0.name;
        let bounds = Bounds {
            sites: 3,
            initiators: 1,
            crashes: 1,
            partition: false,
            fifo: true,
            timing: Timing::Synchronous,
            most_states: MOST_STATES,
        };
        let (wrong, twin) =
            (check::<Wrong>(&bounds, &Default::default()), check::<Twin>(&bounds, &Default::default()));
        assert!(twin.complete && twin.counterexample.is_none(), "the twin of {name}");
        match wrong.counterexample {
            Some(found) => assert_eq!(found.property, self.0.breaks, "{name}: {found}"),
            None => {
                assert!(!wrong.complete, "{name} is not caught");
                assert_eq!(timed::<Wrong>(), Some(self.0.breaks), "{name} is not caught");
            }
        }
        assert_eq!(timed::<Twin>(), None, "the twin of {name}");
    }
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
