//! Partial-order reduction finds the same results as the full search.

use lockkeeper_core::registry;
use lockkeeper_lab::check::{Answer, Fault, Faults, Question, check, gallery};

/// Systems with more states than this in the full search are skipped: where tokens are regenerated, there may
/// be infinitely many.
const MOST_STATES: u64 = 100_000;

/// The numbers of states, full and reduced.
fn same(question: &Question) -> (u64, u64) {
    same_within(u64::MAX, question).expect("the search is not limited")
}

fn same_within(most: u64, question: &Question) -> Option<(u64, u64)> {
    let full = check(&Question { full: true, ..question.clone() }, |sofar| sofar.distinct < most).unwrap();
    if !full.complete {
        return None;
    }
    let reduced = check(&Question { full: false, ..question.clone() }, |_| true).unwrap();
    let name = format!("{} at {} × {:?}", question.algorithm, question.sites, question.requests);
    assert_eq!(full.properties, reduced.properties, "{name}");
    let found = |answer: &Answer| answer.counterexample.as_ref().map(|found| found.story.clone());
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
            same(&Question::new(entry.about.slug, sites).requests(requests));
        }
    }
}

#[test]
fn reduction_finds_the_same_without_fifo() {
    for entry in registry::ALL {
        same(&Question { fifo: Some(false), ..Question::new(entry.about.slug, 2).requests(2) });
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
            let question = Question { faults, ..Question::new(entry.about.slug, 2) };
            compared += u32::from(same_within(MOST_STATES, &question).is_some());
        }
    }
    assert!(compared > 100, "{compared} systems were small enough");
}

#[test]
fn reduction_finds_the_same_for_every_exhibit() {
    for exhibit in gallery::all() {
        for question in
            exhibit.questions.iter().filter(|question| question.requests.is_some() && question.sites < 3)
        {
            same(question);
        }
    }
}

#[test]
fn reduction_visits_less_than_a_third_of_the_states() {
    let (full, reduced) = same(&Question::new("lamport", 3));
    assert!(full > 3 * reduced, "{full} states, {reduced} without silent deliveries");
}
