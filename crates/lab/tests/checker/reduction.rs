//! Partial-order reduction finds the same results as the full search.

use lockkeeper_core::registry;
use lockkeeper_lab::checker::{CheckReport, CheckSpec, Fault, Faults, check, gallery};

/// Systems with more states than this in the full search are skipped: where tokens are regenerated, there may
/// be infinitely many.
const MOST_STATES: u64 = 100_000;

/// The numbers of states, full and reduced.
fn same(spec: &CheckSpec) -> (u64, u64) {
    same_within(u64::MAX, spec).expect("the search is not limited")
}

fn same_within(most: u64, spec: &CheckSpec) -> Option<(u64, u64)> {
    let full = check(&CheckSpec { full: true, ..spec.clone() }, |progress| progress.distinct < most).unwrap();
    if !full.complete {
        return None;
    }
    let reduced = check(&CheckSpec { full: false, ..spec.clone() }, |_| true).unwrap();
    let name = format!("{} at {} × {:?}", spec.algorithm, spec.sites, spec.requests);
    assert_eq!(full.properties, reduced.properties, "{name}");
    let found = |report: &CheckReport| report.counterexample.as_ref().map(|found| found.story.clone());
    assert_eq!(found(&full), found(&reduced), "{name}: the shortest run");
    if full.counterexample.is_none() {
        assert_eq!(full.max_messages_per_entry, reduced.max_messages_per_entry, "{name}");
        assert_eq!(full.max_bypass, reduced.max_bypass, "{name}");
        assert_eq!(full.never_fired, reduced.never_fired, "{name}");
        assert!(reduced.distinct <= full.distinct, "{name}");
    }
    Some((full.distinct, reduced.distinct))
}

#[test]
fn reduction_finds_the_same_for_every_algorithm() {
    for entry in registry::ALL {
        for (sites, requests) in [(2, 1), (2, 2), (2, 3), (3, 1)] {
            same(&CheckSpec::new(entry.about.slug, sites).requests(requests));
        }
    }
}

#[test]
fn reduction_finds_the_same_without_fifo() {
    for entry in registry::ALL {
        same(&CheckSpec { fifo: Some(false), ..CheckSpec::new(entry.about.slug, 2).requests(2) });
    }
}

#[test]
fn reduction_finds_the_same_with_faults() {
    let mut compared = 0;
    for entry in registry::ALL {
        for fault in Fault::ALL {
            let mut faults = Faults::default().with(fault, 1);
            if fault == Fault::Restart {
                faults = faults.with(Fault::Crash, 1);
            }
            let spec = CheckSpec { faults, ..CheckSpec::new(entry.about.slug, 2) };
            compared += u32::from(same_within(MOST_STATES, &spec).is_some());
        }
    }
    assert!(compared > 100, "{compared} systems were small enough");
}

#[test]
fn reduction_finds_the_same_for_every_exhibit() {
    for exhibit in gallery::all() {
        for spec in exhibit.systems.iter().filter(|spec| spec.requests.is_some() && spec.sites < 3) {
            same(spec);
        }
    }
}

#[test]
fn reduction_visits_less_than_a_third_of_the_states() {
    let (full, reduced) = same(&CheckSpec::new("lamport", 3));
    assert!(full > 3 * reduced, "{full} states, {reduced} without silent deliveries");
}
