//! The search by symmetry finds the same as the search of every state, wherever that one ends.

use lockkeeper_lab::checker::{CheckReport, CheckSpec, Fault, Faults, Verdict, check};
use lockkeeper_lab::mutants;
use lockkeeper_lab::property::Property;

const SYMMETRIC: [&str; 3] = ["lamport", "lamport-suppressed", "bakery-messages"];
/// Number of sites and of requests of each.
const SYSTEMS: [(usize, u8); 5] = [(1, 2), (2, 1), (2, 2), (2, 3), (3, 1)];

fn run(spec: &CheckSpec) -> CheckReport {
    check(spec, |_| true).unwrap()
}

fn by_symmetry(spec: &CheckSpec) -> CheckReport {
    run(&CheckSpec { symmetry: true, ..spec.clone() })
}

/// Both searches reach the same verdicts, and the same shortest run to a violation.
fn same(spec: &CheckSpec) -> (CheckReport, CheckReport) {
    let (full, symmetric) = (run(&CheckSpec { full: true, ..spec.clone() }), by_symmetry(spec));
    let name = format!("{} at {} × {:?}", spec.algorithm, spec.sites, spec.requests);
    assert_eq!(full.properties, symmetric.properties, "{name}");
    let found = |report: &CheckReport| report.counterexample.as_ref().map(|found| found.story.clone());
    assert_eq!(found(&full), found(&symmetric), "{name}: the shortest run");
    (full, symmetric)
}

#[test]
fn symmetry_finds_the_same_verdicts_in_every_system_that_the_full_search_finishes() {
    for algorithm in SYMMETRIC {
        for (sites, requests) in SYSTEMS {
            let (full, symmetric) = same(&CheckSpec::new(algorithm, sites).requests(requests));
            let name = format!("{algorithm} at {sites} × {requests}");
            assert!(symmetric.symmetry && symmetric.is_verified(), "{name}");
            assert_eq!(full.never_fired, symmetric.never_fired, "{name}");
            assert_eq!(full.max_messages_per_entry, symmetric.max_messages_per_entry, "{name}");
            assert!(full.max_bypass <= symmetric.max_bypass, "{name}: it has more runs");
            assert!(symmetric.distinct < full.distinct || sites == 1, "{name}");
        }
    }
}

#[test]
fn symmetry_finds_the_same_when_a_reply_has_a_tick_of_its_own() {
    let settings = vec![("ticks".to_string(), "two".to_string())];
    for algorithm in ["lamport", "lamport-suppressed"] {
        for (sites, requests) in [(2, 2), (3, 1)] {
            let spec = CheckSpec { settings: settings.clone(), ..CheckSpec::new(algorithm, sites) };
            let (_, symmetric) = same(&spec.requests(requests));
            assert!(symmetric.symmetry && symmetric.is_verified());
        }
    }
}

/// Among the mutants is one that compares tickets without the sites. Where tickets never are equal it works, so that the
/// search has to notice that its assumptions do not hold.
#[test]
fn symmetry_catches_every_mutant_of_the_symmetric_algorithms() {
    let mut caught = Vec::new();
    for mutant in mutants::ALL.iter().filter(|mutant| SYMMETRIC.contains(&mutant.twin)) {
        for (sites, requests) in [(2, 1), (2, 2), (3, 1)] {
            let (full, symmetric) = same(&CheckSpec::new(mutant.name, sites).requests(requests));
            if full.is_violated() {
                caught.push((mutant.name, symmetric.counterexample.unwrap().violation.property));
                break;
            }
        }
    }
    let expected: Vec<(&str, Property)> = vec![
        ("lamport-without-l1", Property::MutualExclusion),
        ("lamport-without-l2", Property::MutualExclusion),
        ("lamport-any-message-counts", Property::TimestampOrder),
        ("lamport-acknowledges-twice", Property::MessageBound),
        ("lamport-suppressed-forgets-its-own-request", Property::NoDeadlock),
        ("bakery-messages-without-choosing", Property::MutualExclusion),
        ("bakery-ties-unbroken", Property::MutualExclusion),
    ];
    assert_eq!(caught, expected);
}

#[test]
fn a_mutant_that_ignores_the_sites_of_equal_tickets_is_searched_without_symmetry() {
    let spec = CheckSpec::new("bakery-ties-unbroken", 2);
    assert!(!by_symmetry(&CheckSpec { only: Some(Property::NoDeadlock), ..spec }).symmetry);
}

/// The full search does not finish these, or takes 12.7 million states (the bakery).
#[test]
fn systems_of_three_sites_and_two_requests_are_verified() {
    for (algorithm, states) in [("lamport-suppressed", 44_301), ("bakery-messages", 160_833)] {
        let report = by_symmetry(&CheckSpec { threads: 2, ..CheckSpec::new(algorithm, 3).requests(2) });
        assert!(report.properties.values().all(|verdict| *verdict == Verdict::Holds), "{algorithm}");
        assert_eq!((report.is_verified(), report.distinct), (true, states), "{algorithm}");
    }
}

#[test]
fn states_are_counted_the_same_by_any_number_of_threads() {
    let of = |threads| by_symmetry(&CheckSpec { threads, ..CheckSpec::new("lamport", 3) });
    let (one, three) = (of(1), of(3));
    assert_eq!((one.distinct, one.generated, one.depth), (three.distinct, three.generated, three.depth));
    assert_eq!((one.distinct, one.max_bypass), (2_572, Some(2)));
}

#[test]
fn symmetry_is_rejected_where_sites_are_not_alike() {
    let refused = |spec: CheckSpec| match check(&CheckSpec { symmetry: true, ..spec }, |_| true) {
        Err(error) => error.to_string(),
        Ok(report) => panic!("{} was checked", report.algorithm),
    };
    let cases = [
        (CheckSpec::new("suzuki-kasami", 3), "its sites are not alike"),
        (CheckSpec { requests: None, ..CheckSpec::new("lamport", 2) }, "a limited number of requests"),
        (
            CheckSpec { faults: Faults::default().with(Fault::Loss, 1), ..CheckSpec::new("lamport", 2) },
            "faults",
        ),
        (
            CheckSpec { fifo: Some(false), ..CheckSpec::new("lamport", 2) },
            "the channels that the algorithm assumes",
        ),
        (CheckSpec { full: true, ..CheckSpec::new("lamport", 2) }, "every state"),
        (CheckSpec::new("lamport", 6), "at most 5 sites"),
        (CheckSpec::new("bakery", 3), "does not apply"),
    ];
    for (spec, reason) in cases {
        let error = refused(spec);
        assert!(error.contains("symmetry") && error.contains(reason), "{error}");
    }
}
