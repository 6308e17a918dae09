//! Exercises: the same seed gives the same ones, every kind comes up, and the right answer is accepted.

use lockkeeper_lab::quiz::{AnswerError, Exercise, Key};
use std::collections::{BTreeMap, BTreeSet};

fn exercise(seed: u64, number: u64) -> Exercise {
    Exercise::new(seed, number).unwrap_or_else(|error| panic!("{seed}.{number}: {error}"))
}

#[test]
fn right_answers_are_right_and_others_are_wrong() {
    for number in 1..=24 {
        let exercise = exercise(3, number);
        let question = &exercise.question;
        let right = exercise.grade(&exercise.key().to_string()).unwrap();
        assert!(right.right && !right.because.is_empty() && !right.command.is_empty(), "{question:?}");
        let other = match exercise.key() {
            Key::Number(number) => (number + 1).to_string(),
            Key::Choices(key) => {
                assert!(key.iter().all(|choice| *choice < question.choices.len()), "{question:?}");
                let other = (0..question.choices.len()).find(|choice| !key.contains(choice));
                other.map_or("a".into(), |choice| char::from(b'a' + choice as u8).to_string())
            }
        };
        let wrong = exercise.grade(&other).unwrap();
        assert!(!wrong.right && wrong.expected == right.expected, "{question:?}");
    }
}

#[test]
fn equal_seeds_give_equal_exercises() {
    for number in 1..=6 {
        let as_text = |seed| {
            let exercise = exercise(seed, number);
            (serde_json::to_string(&exercise.question).unwrap(), exercise.key().clone())
        };
        assert_eq!(as_text(5), as_text(5));
        assert_ne!(as_text(5).0, as_text(6).0);
    }
}

#[test]
fn every_kind_of_exercise_comes_up() {
    let mut topics: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for number in 1..=240 {
        let question = exercise(1, number).question;
        topics.entry(question.topic).or_default().insert(question.text + &question.given.join(" "));
    }
    let names: Vec<&str> = topics.keys().copied().collect();
    assert_eq!(names, ["changed guard", "cost", "messages", "next entry", "next message", "textbook"]);
    assert_eq!(topics["textbook"].len(), 9, "every question of the lectures");
    assert!(topics["changed guard"].len() >= 15 && topics["next entry"].len() >= 20, "{topics:#?}");
}

/// The answer is the simulator's: a figure with a known number of messages.
#[test]
fn answers_are_those_of_the_textbooks() {
    let find = |part: &str| {
        let mut all = (1..=240).map(|number| exercise(1, number));
        all.find(|exercise| exercise.question.text.contains(part)).unwrap_or_else(|| panic!("no '{part}'"))
    };
    // Two deposits: 11000 if one is lost, 21000 if none is.
    assert_eq!(find("What's wrong?").key(), &Key::Choices([1, 2].into()));
    // A crashed site never replies.
    assert_eq!(find("Processes do not fail").key(), &Key::Choices([0].into()));
    assert_eq!(find("Bandwidth").key(), &Key::Number(1));
    assert_eq!(find("in the order in which they are made").key(), &Key::Choices([1].into()));
    assert_eq!(find("which site enters first").key(), &Key::Choices([1].into()));
    assert_eq!(find("timestamped REPLY here").key(), &Key::Choices([2].into()));
    assert_eq!(find("network partition").key(), &Key::Number(2));
    assert_eq!(find("crashes during an election").key(), &Key::Choices([1].into()));
}

#[test]
fn run_so_far_ends_before_the_answer() {
    let mut next_entries = (1..=60).map(|number| exercise(2, number));
    let exercise = next_entries.find(|exercise| exercise.question.topic == "next entry").unwrap();
    let shown = exercise.question.recording.as_ref().unwrap();
    let whole = exercise.solution().recording.unwrap();
    assert!(shown.steps.len() < whole.steps.len());
    let next = whole.steps[shown.steps.len()..].iter().find(|step| step.kinds.contains(&"enter")).unwrap();
    assert_eq!(exercise.key(), &Key::Choices([next.site.unwrap().index()].into()));
    assert!(shown.messages.iter().all(|message| message.ended.is_none_or(|end| end < shown.steps.len())));
}

#[test]
fn other_texts_than_answers_are_rejected() {
    let all: Vec<Exercise> = (1..=12).map(|number| exercise(1, number)).collect();
    let number = all.iter().find(|exercise| exercise.question.choices.is_empty()).unwrap();
    assert_eq!(number.grade("x").unwrap_err(), AnswerError::Number { answer: "x".into() });
    let one = all.iter().find(|exercise| !exercise.question.choices.is_empty() && !exercise.question.several);
    let error = one.unwrap().grade("a, b").unwrap_err().to_string();
    assert_eq!(error, "the answer to this question is one letter, not 'a, b'");
    assert!(one.unwrap().grade(" A ").is_ok());
    assert!(one.unwrap().grade("z").is_err());
    let several = all.iter().find(|exercise| exercise.question.several).unwrap();
    assert_eq!(several.grade("b a").unwrap().expected, several.key().to_string());
}
