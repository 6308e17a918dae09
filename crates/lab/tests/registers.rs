//! Shared-memory algorithms in every reachable state. The state counts are pinned: a change means that a
//! program or the explorer has changed.

use lockkeeper_lab::checker::counterexample::Counterexample;
use lockkeeper_lab::checker::{CheckReport, CheckSpec, SearchLimits, Verdict};
use lockkeeper_lab::property::Property;
use lockkeeper_lab::{Error, UsageError};

const ATOMIC: bool = false;
const SAFE: bool = true;

fn spec(name: &str, processes: usize, safe_registers: bool) -> CheckSpec {
    CheckSpec { safe_registers, ..CheckSpec::new(name, processes) }
}

fn check(spec: &CheckSpec) -> Result<CheckReport, Error> {
    lockkeeper_lab::checker::check(spec, |_| true)
}

fn complete(name: &str, processes: usize, safe_registers: bool) -> CheckReport {
    let report = check(&spec(name, processes, safe_registers)).expect("a valid spec");
    assert!(report.complete);
    report
}

/// Number of states, of steps between them, and of steps that were cut.
fn size(report: &CheckReport) -> (u64, u64, u64) {
    let initial = 1;
    (report.distinct, report.generated - initial - report.cut, report.cut)
}

fn verdicts(report: &CheckReport) -> Vec<(Property, bool)> {
    report.properties.iter().map(|(property, verdict)| (*property, *verdict == Verdict::Holds)).collect()
}

fn counterexample(report: &CheckReport, property: Property) -> &Counterexample {
    report.counterexample_to(property).expect("it is violated")
}

/// The sentences before the cycle, and those of the cycle.
fn lasso(found: &Counterexample) -> (&[String], &[String]) {
    found.story.split_at(found.cycle_after.expect("an infinite run"))
}

use Property::{FirstComeFirstServed, MutualExclusion, NoDeadlock, NoStarvation};
const EVERYTHING: [(Property, bool); 4] =
    [(MutualExclusion, true), (NoDeadlock, true), (NoStarvation, true), (FirstComeFirstServed, true)];

#[test]
fn bakery_is_verified_with_atomic_registers() {
    for (processes, expected) in [(2, (294, 578, 10)), (3, (21_779, 63_555, 1_782))] {
        let bakery = complete("bakery", processes, ATOMIC);
        assert_eq!(size(&bakery), expected);
        assert_eq!(verdicts(&bakery), EVERYTHING);
        assert!(bakery.is_verified());
    }
}

#[test]
fn bakery_is_verified_with_safe_registers() {
    for (processes, expected) in [(2, (899, 1_948, 24)), (3, (98_853, 324_038, 13_238))] {
        let bakery = complete("bakery", processes, SAFE);
        assert_eq!(size(&bakery), expected);
        assert_eq!(verdicts(&bakery), EVERYTHING);
        assert!(bakery.is_verified());
    }
}

#[test]
fn bakery_without_choosing_violates_mutual_exclusion() {
    let broken = complete("bakery-without-choosing", 2, ATOMIC);
    assert!(!broken.is_verified());
    let expected = "   1. P1 reads number[2] = 0 (wants to enter)
   2. P2 reads number[1] = 0 (wants to enter)
   3. P2 writes number[2] := 1 (is through its doorway)
   4. P2 reads number[1] = 0 (enters)
   5. P1 writes number[1] := 1 (is through its doorway)
   6. P1 reads number[2] = 1 (enters)
      P1 and P2 are both inside";
    assert_eq!(counterexample(&broken, MutualExclusion).to_string(), expected);
    for (processes, safe_registers, steps) in [(2, SAFE, 8), (3, ATOMIC, 10), (3, SAFE, 12)] {
        let broken = complete("bakery-without-choosing", processes, safe_registers);
        assert_eq!(counterexample(&broken, MutualExclusion).steps, steps);
    }
}

#[test]
fn dijkstra_satisfies_mutual_exclusion_and_has_no_deadlock() {
    for (processes, expected) in [(2, (276, 552, 0)), (3, (20_908, 62_724, 0))] {
        let dijkstra = complete("dijkstra", processes, ATOMIC);
        assert_eq!(size(&dijkstra), expected);
        assert_eq!(dijkstra.properties[&MutualExclusion], Verdict::Holds);
        assert_eq!(dijkstra.properties[&NoDeadlock], Verdict::Holds);
        assert!(dijkstra.is_verified(), "it guarantees no more than that");
    }
}

#[test]
fn dijkstra_starves_a_process_while_the_other_enters_repeatedly() {
    let dijkstra = complete("dijkstra", 2, ATOMIC);
    let found = counterexample(&dijkstra, NoStarvation);
    let (before, cycle) = lasso(found);
    assert_eq!((before.len(), cycle.len()), (1, 10));
    let count = |who: &str, what: &str| {
        cycle.iter().filter(|step| step.starts_with(who) && step.contains(what)).count()
    };
    assert_eq!((count("P1", "(enters)"), count("P1", "(leaves)")), (1, 1));
    assert_eq!((count("P2", "(enters)"), count("P2", "")), (0, 4), "it takes steps, and does not enter");
    assert_eq!(found.breach.what, "P2 tries for ever and does not enter");
}

#[test]
fn dijkstra_with_safe_registers_is_safe_but_can_deadlock() {
    for (processes, expected, lengths) in [(2, (766, 1_568, 0), (6, 9)), (3, (206_025, 674_865, 0), (4, 14))]
    {
        let dijkstra = complete("dijkstra", processes, SAFE);
        assert_eq!(size(&dijkstra), expected);
        assert_eq!(dijkstra.properties[&MutualExclusion], Verdict::Holds);
        let (before, cycle) = lasso(counterexample(&dijkstra, NoDeadlock));
        assert_eq!((before.len(), cycle.len()), lengths);
        assert!(!cycle.iter().any(|step| step.contains("(enters)")));
        assert!(dijkstra.is_verified(), "its paper assumes atomic registers");
    }
}

#[test]
fn black_white_bakery_is_verified_and_its_tickets_never_exceed_n() {
    // No step is cut: no process ever wanted to write a ticket above N.
    for (processes, expected) in [(2, (1_348, 2_696, 0)), (3, (296_047, 888_141, 0))] {
        let bakery = complete("black-white-bakery", processes, ATOMIC);
        assert_eq!(size(&bakery), expected);
        assert_eq!(verdicts(&bakery), EVERYTHING);
        assert!(bakery.is_verified());
    }
}

#[test]
fn black_white_bakery_is_verified_with_safe_registers_and_two_processes() {
    let bakery = complete("black-white-bakery", 2, SAFE);
    assert_eq!(size(&bakery), (5_679, 13_262, 200));
    assert_eq!(verdicts(&bakery), EVERYTHING);
}

#[test]
#[ignore = "four and a half million states: run it with --ignored, and a gigabyte to spare"]
fn black_white_bakery_is_violated_with_safe_registers_and_three_processes() {
    let bakery = complete("black-white-bakery", 3, SAFE);
    assert_eq!(size(&bakery), (4_515_122, 16_851_750, 554_702));
    assert_eq!(counterexample(&bakery, MutualExclusion).steps, 49);
}

#[test]
fn higher_ticket_limit_changes_only_the_number_of_states() {
    let mut last = 0;
    for tickets in [1, 2, 4, 8] {
        let bakery = check(&CheckSpec { tickets: Some(tickets), ..spec("bakery", 2, SAFE) }).unwrap();
        assert_eq!(verdicts(&bakery), EVERYTHING);
        assert!(bakery.cut > 0 && bakery.distinct > last);
        last = bakery.distinct;
    }
}

#[test]
fn incomplete_search_leaves_verdicts_unknown() {
    let limits = SearchLimits::states(1_000);
    let few = check(&CheckSpec { limits, ..spec("bakery", 3, ATOMIC) }).unwrap();
    assert!(!few.complete && !few.is_verified());
    assert!(few.properties.values().all(|verdict| *verdict == Verdict::Unknown));
    assert!(few.counterexample.is_none() && few.more_counterexamples.is_empty());
}

#[test]
fn one_property_is_checked_alone_by_several_threads_with_the_same_result() {
    for (property, verdict) in [(MutualExclusion, Verdict::Violated), (NoStarvation, Verdict::Holds)] {
        let alone = |threads| {
            let only = Some(property);
            check(&CheckSpec { only, threads, ..spec("bakery-without-choosing", 2, ATOMIC) }).unwrap()
        };
        let (one, several) = (alone(1), alone(3));
        assert_eq!(one.properties, [(property, verdict)].into());
        assert_eq!(one.properties, several.properties);
        let story = |report: &CheckReport| report.counterexample.as_ref().map(|found| found.story.clone());
        assert_eq!(story(&one), story(&several));
    }
}

#[test]
fn options_and_values_that_do_not_apply_are_rejected() {
    let rejected = |spec: CheckSpec| match check(&spec) {
        Err(Error::Usage(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let bakery = |processes| spec("bakery", processes, ATOMIC);
    let unknown = check(&spec("bakeri", 2, ATOMIC));
    assert!(matches!(unknown, Err(Error::Usage(UsageError::UnknownAlgorithm { name })) if name == "bakeri"));
    assert!(rejected(bakery(4)).contains("2 to 3 processes that share registers, not 4"));
    assert!(rejected(CheckSpec { tickets: Some(0), ..bakery(2) }).contains("between 1 and 100"));
    assert_eq!(
        rejected(CheckSpec { full: true, ..bakery(2) }),
        "'full' cannot be used with 'bakery': it does not apply to algorithms for shared registers"
    );
    assert!(rejected(CheckSpec { tickets: Some(2), ..spec("dijkstra", 2, ATOMIC) }).contains("'tickets'"));
    let only = Some(Property::TimestampOrder);
    let what = rejected(CheckSpec { only, ..bakery(2) });
    assert!(what.contains("timestamp-order") && what.contains("first-come-first-served"), "{what}");
    assert_eq!(
        rejected(CheckSpec { safe_registers: true, ..CheckSpec::new("lamport", 2) }),
        "'safe-registers' cannot be used with 'lamport': it does not apply to message-passing algorithms"
    );
}
