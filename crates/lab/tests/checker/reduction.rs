//! Trying only some orders of steps that commute finds the same as trying all.

use lockkeeper_core::registry;
use lockkeeper_lab::check::{Question, check, gallery};

fn same(question: &Question) -> (u64, u64) {
    let full = check(question, |_| true).unwrap();
    let reduced = check(&Question { full: false, ..question.clone() }, |_| true).unwrap();
    let name = &question.algorithm;
    assert_eq!(full.properties, reduced.properties, "{name}");
    assert_eq!(full.max_messages_per_entry, reduced.max_messages_per_entry, "{name}");
    assert_eq!(full.never_fired, reduced.never_fired, "{name}");
    let found = |answer: &lockkeeper_lab::check::Answer| {
        answer.counterexample.as_ref().map(|found| found.story.clone())
    };
    assert_eq!(found(&full), found(&reduced), "{name}: the shortest run");
    if full.counterexample.is_none() {
        assert_eq!(full.max_bypass, reduced.max_bypass, "{name}");
    }
    (full.distinct, reduced.distinct)
}

#[test]
fn in_every_algorithm() {
    let mut saved = 0;
    for entry in registry::ALL {
        for (sites, requests) in [(2, 1), (2, 2), (2, 3), (3, 1)] {
            let (full, reduced) = same(&Question::new(entry.about.slug, sites).requests(requests));
            assert!(reduced <= full);
            saved += full - reduced;
        }
    }
    assert!(saved > 0);
}

#[test]
fn in_every_variant() {
    for exhibit in gallery::all() {
        for question in
            exhibit.questions.iter().filter(|question| question.requests.is_some() && question.sites < 3)
        {
            same(question);
        }
    }
}
