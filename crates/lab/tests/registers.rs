//! Shared-memory algorithms in every reachable state. The state counts are pinned: a change means that a
//! program or the explorer has changed.

use lockkeeper_lab::checker::counterexample::Counterexample;
use lockkeeper_lab::checker::registers::{ALL, RegisterKind};
use lockkeeper_lab::checker::{CheckReport, CheckSpec, SearchLimits, Verdict};
use lockkeeper_lab::property::Property;
use lockkeeper_lab::{Error, UsageError};

const ATOMIC: RegisterKind = RegisterKind::Atomic;
const REGULAR: RegisterKind = RegisterKind::Regular;
const SAFE: RegisterKind = RegisterKind::Safe;

fn spec(name: &str, processes: usize, registers: RegisterKind) -> CheckSpec {
    CheckSpec { registers, ..CheckSpec::new(name, processes) }
}

fn check(spec: &CheckSpec) -> Result<CheckReport, Error> {
    lockkeeper_lab::checker::check(spec, |_| true)
}

fn complete(name: &str, processes: usize, registers: RegisterKind) -> CheckReport {
    let report = check(&spec(name, processes, registers)).expect("a valid spec");
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
    for (processes, registers, steps) in [(2, SAFE, 8), (3, ATOMIC, 10), (3, SAFE, 12)] {
        let broken = complete("bakery-without-choosing", processes, registers);
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
    assert_eq!(found.violation.what, "P2 tries for ever and does not enter");
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
        rejected(CheckSpec { registers: SAFE, ..CheckSpec::new("lamport", 2) }),
        "'safe-registers' cannot be used with 'lamport': it does not apply to message-passing algorithms"
    );
}

/// The verdicts on mutual exclusion, deadlock, starvation and order, as in the documentation: + holds, - violated.
fn signs(report: &CheckReport) -> String {
    let order = [MutualExclusion, NoDeadlock, NoStarvation, FirstComeFirstServed];
    order
        .map(|property| if report.properties[&property] == Verdict::Holds { '+' } else { '-' })
        .iter()
        .collect()
}

/// Name, number of processes, registers, size and verdicts.
type Pinned = (&'static str, usize, RegisterKind, (u64, u64), &'static str);

fn assert_pinned(rows: &[Pinned]) {
    for &(name, processes, registers, (states, steps), expected) in rows {
        let report = complete(name, processes, registers);
        let what = format!("{name}, {processes} processes, {registers} registers");
        assert_eq!(size(&report), (states, steps, 0), "{what}");
        assert_eq!(signs(&report), expected, "{what}");
        // A mutant violates what its twin guarantees with atomic registers.
        let right =
            registers != ATOMIC || ALL.iter().any(|about| about.slug == name && about.mutant_of.is_none());
        assert_eq!(report.is_verified(), right, "{what}");
    }
}

#[test]
fn locks_for_threads_are_verified_with_atomic_registers() {
    assert_pinned(&[
        ("eisenberg-mcguire", 2, ATOMIC, (194, 388), "+++-"),
        ("eisenberg-mcguire", 3, ATOMIC, (6_409, 19_227), "+++-"),
        ("peterson", 2, ATOMIC, (44, 88), "++++"),
        ("peterson", 3, ATOMIC, (1_770, 5_310), "+++-"),
        ("filter", 2, ATOMIC, (44, 88), "++++"),
        ("filter", 3, ATOMIC, (9_392, 28_176), "+++-"),
        ("szymanski", 2, ATOMIC, (104, 208), "+++-"),
        ("szymanski", 3, ATOMIC, (6_102, 18_306), "+++-"),
        ("ticket", 2, ATOMIC, (18, 36), "++++"),
        ("ticket", 3, ATOMIC, (93, 279), "++++"),
        ("mcs", 2, ATOMIC, (50, 100), "++++"),
        ("mcs", 3, ATOMIC, (1_280, 3_840), "++++"),
        ("clh", 2, ATOMIC, (120, 240), "++++"),
        ("clh", 3, ATOMIC, (3_864, 11_592), "++++"),
    ]);
}

#[test]
fn weaker_registers_break_all_but_the_bakery() {
    assert_pinned(&[
        ("dijkstra", 2, REGULAR, (882, 1_800), "++--"),
        ("dijkstra", 3, REGULAR, (247_405, 792_533), "+---"),
        ("eisenberg-mcguire", 2, REGULAR, (688, 1_458), "+++-"),
        ("eisenberg-mcguire", 3, REGULAR, (52_853, 172_208), "+++-"),
        ("eisenberg-mcguire", 3, SAFE, (89_491, 313_471), "+---"),
        ("peterson", 2, REGULAR, (192, 418), "-+++"),
        ("peterson", 2, SAFE, (155, 342), "-+++"),
        ("peterson", 3, REGULAR, (43_436, 142_036), "----"),
        ("filter", 3, REGULAR, (227_592, 762_907), "-+--"),
        ("szymanski", 2, REGULAR, (448, 1_002), "-++-"),
        ("szymanski", 3, SAFE, (90_879, 390_153), "----"),
        ("ticket", 2, REGULAR, (168, 388), "----"),
        ("ticket", 3, SAFE, (5_433, 22_689), "----"),
        ("mcs", 2, REGULAR, (2_318, 5_030), "+--+"),
        ("mcs", 2, SAFE, (2_262, 5_144), "+--+"),
        ("clh", 2, REGULAR, (2_112, 4_584), "----"),
        ("clh", 2, SAFE, (1_566, 3_528), "----"),
    ]);
}

#[test]
fn bakery_is_verified_with_regular_registers() {
    for (processes, expected) in [(2, (809, 1_690, 18)), (3, (96_223, 298_919, 8_982))] {
        let bakery = complete("bakery", processes, REGULAR);
        assert_eq!(size(&bakery), expected);
        assert_eq!(verdicts(&bakery), EVERYTHING);
        assert!(bakery.is_verified());
    }
}

#[test]
fn mutants_of_locks_for_threads_are_caught() {
    assert_pinned(&[
        ("eisenberg-mcguire-without-look", 2, ATOMIC, (200, 400), "-++-"),
        ("peterson-turn-first", 2, ATOMIC, (58, 116), "-+++"),
        ("filter-victim-first", 3, ATOMIC, (23_427, 70_281), "-++-"),
        ("szymanski-without-order", 2, ATOMIC, (120, 240), "-+--"),
        ("ticket-without-fetch-and-add", 2, ATOMIC, (146, 292), "----"),
        ("mcs-without-compare-and-swap", 2, ATOMIC, (144, 288), "+---"),
        ("clh-reuses-its-node", 2, ATOMIC, (54, 108), "+--+"),
    ]);
    let caught = ALL.iter().filter(|about| about.mutant_of.is_some());
    for about in caught {
        assert!(!complete(about.slug, 2, ATOMIC).is_verified(), "{}", about.slug);
    }
}

#[test]
fn ticket_without_fetch_and_add_gives_one_ticket_to_two() {
    let broken = complete("ticket-without-fetch-and-add", 2, ATOMIC);
    let story = counterexample(&broken, MutualExclusion).to_string();
    assert!(story.contains("reads next = 0") && story.contains("P1 and P2 are both inside"), "{story}");
}

#[test]
fn read_modify_write_is_one_step() {
    let broken = complete("mcs-without-compare-and-swap", 2, ATOMIC);
    let (before, _) = lasso(counterexample(&broken, NoDeadlock));
    let swaps: Vec<&String> = before.iter().filter(|step| step.contains("in one step")).collect();
    assert_eq!(swaps[0], "P1 reads tail = none and writes tail := P1 in one step (enters)");
}
