//! Shared-memory algorithms in every reachable state. The state counts are pinned: a change means that a
//! program or the explorer has changed.

use lockkeeper_lab::Error;
use lockkeeper_lab::registers::{Finding, Limits, Outcome, Property, Story, check};

const ATOMIC: bool = false;
const FLICKERING: bool = true;

fn outcome(name: &str, processes: usize, flickering: bool) -> Outcome {
    let limits = Limits { tickets: 4, ..Limits::default() };
    let outcome = check(name, processes, flickering, limits).expect("a machine");
    assert!(outcome.complete);
    outcome
}

/// Number of states, of steps, and of steps that were cut.
fn size(outcome: &Outcome) -> (u64, u64, u64) {
    (outcome.states, outcome.steps, outcome.cut)
}

fn findings(outcome: &Outcome) -> Vec<(Property, bool)> {
    outcome.verdicts.iter().map(|verdict| (verdict.property, verdict.finding == Finding::Holds)).collect()
}

fn story(outcome: &Outcome, property: Property) -> &Story {
    let verdict = outcome.verdict(property).expect("every property has a verdict");
    verdict.story.as_ref().expect("it is violated")
}

use Property::{FirstComeFirstServed, MutualExclusion, NoDeadlock, NoStarvation};
const EVERYTHING: [(Property, bool); 4] =
    [(MutualExclusion, true), (NoDeadlock, true), (NoStarvation, true), (FirstComeFirstServed, true)];

#[test]
fn bakery_is_verified_with_atomic_registers() {
    for (processes, expected) in [(2, (294, 578, 10)), (3, (21_779, 63_555, 1_782))] {
        let bakery = outcome("bakery", processes, ATOMIC);
        assert_eq!(size(&bakery), expected);
        assert_eq!(findings(&bakery), EVERYTHING);
        assert!(bakery.held());
    }
}

#[test]
fn bakery_is_verified_with_safe_registers() {
    for (processes, expected) in [(2, (899, 1_948, 24)), (3, (98_853, 324_038, 13_238))] {
        let bakery = outcome("bakery", processes, FLICKERING);
        assert_eq!(size(&bakery), expected);
        assert_eq!(findings(&bakery), EVERYTHING);
        assert!(bakery.held());
    }
}

#[test]
fn bakery_without_choosing_violates_mutual_exclusion() {
    let broken = outcome("bakery-without-choosing", 2, ATOMIC);
    assert!(!broken.held());
    let expected = "   1. P1 reads number[2] = 0 (wants to enter)
   2. P2 reads number[1] = 0 (wants to enter)
   3. P2 writes number[2] := 1 (is through its doorway)
   4. P2 reads number[1] = 0 (enters)
   5. P1 writes number[1] := 1 (is through its doorway)
   6. P1 reads number[2] = 1 (enters)
      P1 and P2 are both inside";
    assert_eq!(story(&broken, MutualExclusion).to_string(), expected);
    for (processes, flickering, steps) in [(2, FLICKERING, 8), (3, ATOMIC, 10), (3, FLICKERING, 12)] {
        let broken = outcome("bakery-without-choosing", processes, flickering);
        assert_eq!(story(&broken, MutualExclusion).steps.len(), steps);
    }
}

#[test]
fn dijkstra_satisfies_mutual_exclusion_and_has_no_deadlock() {
    for (processes, expected) in [(2, (276, 552, 0)), (3, (20_908, 62_724, 0))] {
        let dijkstra = outcome("dijkstra", processes, ATOMIC);
        assert_eq!(size(&dijkstra), expected);
        assert_eq!(dijkstra.verdict(MutualExclusion).unwrap().finding, Finding::Holds);
        assert_eq!(dijkstra.verdict(NoDeadlock).unwrap().finding, Finding::Holds);
        assert!(dijkstra.held(), "it guarantees no more than that");
    }
}

#[test]
fn dijkstra_starves_a_process_while_the_other_enters_repeatedly() {
    let dijkstra = outcome("dijkstra", 2, ATOMIC);
    let story = story(&dijkstra, NoStarvation);
    assert_eq!((story.steps.len(), story.cycle.len()), (1, 10));
    let count = |who: &str, what: &str| {
        story.cycle.iter().filter(|step| step.starts_with(who) && step.contains(what)).count()
    };
    assert_eq!((count("P1", "(enters)"), count("P1", "(leaves)")), (1, 1));
    assert_eq!((count("P2", "(enters)"), count("P2", "")), (0, 4), "it takes steps, and does not enter");
    assert_eq!(story.ending, "P2 tries for ever and does not enter");
}

#[test]
fn dijkstra_with_safe_registers_is_safe_but_can_deadlock() {
    for (processes, expected, lengths) in [(2, (766, 1_568, 0), (6, 9)), (3, (206_025, 674_865, 0), (4, 14))]
    {
        let dijkstra = outcome("dijkstra", processes, FLICKERING);
        assert_eq!(size(&dijkstra), expected);
        assert_eq!(dijkstra.verdict(MutualExclusion).unwrap().finding, Finding::Holds);
        let stuck = story(&dijkstra, NoDeadlock);
        assert_eq!((stuck.steps.len(), stuck.cycle.len()), lengths);
        assert!(!stuck.cycle.iter().any(|step| step.contains("(enters)")));
        assert!(dijkstra.held(), "its paper assumes atomic registers");
    }
}

#[test]
fn black_white_bakery_is_verified_and_its_tickets_never_exceed_n() {
    // No step is cut: no process ever wanted to write a ticket above N.
    for (processes, expected) in [(2, (1_348, 2_696, 0)), (3, (296_047, 888_141, 0))] {
        let bakery = outcome("black-white-bakery", processes, ATOMIC);
        assert_eq!(size(&bakery), expected);
        assert_eq!(findings(&bakery), EVERYTHING);
        assert!(bakery.held());
    }
}

#[test]
fn black_white_bakery_is_verified_with_safe_registers_and_two_processes() {
    let bakery = outcome("black-white-bakery", 2, FLICKERING);
    assert_eq!(size(&bakery), (5_679, 13_262, 200));
    assert_eq!(findings(&bakery), EVERYTHING);
}

#[test]
#[ignore = "four and a half million states: run it with --ignored, and a gigabyte to spare"]
fn black_white_bakery_is_violated_with_safe_registers_and_three_processes() {
    let bakery = outcome("black-white-bakery", 3, FLICKERING);
    assert_eq!(size(&bakery), (4_515_122, 16_851_750, 554_702));
    assert_eq!(story(&bakery, MutualExclusion).steps.len(), 49);
}

#[test]
fn higher_ticket_limit_changes_only_the_number_of_states() {
    let mut last = 0;
    for tickets in [1, 2, 4, 8] {
        let bakery = check("bakery", 2, FLICKERING, Limits { tickets, ..Limits::default() }).unwrap();
        assert_eq!(findings(&bakery), EVERYTHING);
        assert!(bakery.cut > 0 && bakery.states > last);
        last = bakery.states;
    }
}

#[test]
fn incomplete_search_leaves_verdicts_unknown() {
    let few = check("bakery", 3, ATOMIC, Limits { states: 1_000, ..Limits::default() }).unwrap();
    assert!(!few.complete && !few.held());
    assert!(
        few.verdicts.iter().all(|verdict| verdict.finding == Finding::Unknown && verdict.story.is_none())
    );
}

#[test]
fn invalid_parameters_are_rejected() {
    let told = |name: &str, processes: usize, limits: Limits| match check(name, processes, ATOMIC, limits) {
        Err(Error::Usage(what)) => what,
        other => panic!("{other:?}"),
    };
    let limits = Limits::default();
    assert!(
        told("bakeri", 2, limits)
            .starts_with("there are no registers for 'bakeri'; there are dijkstra, bakery,")
    );
    assert!(told("bakery", 4, limits).contains("2 to 3 processes, and 4 were asked for"));
    assert!(told("bakery", 2, Limits { tickets: 0, ..limits }).contains("between 1 and 100"));
    assert!(told("bakery", 2, Limits { states: 0, ..limits }).contains("between 1 and 50000000 states"));
}
