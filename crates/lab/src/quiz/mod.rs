//! Exercises with checked answers. Each is generated from a seed, and its answer is what the simulator or the checker
//! finds, not a stored text.
//!
//! ```
//! use lockkeeper_lab::quiz::Exercise;
//!
//! let exercise = Exercise::new(7, 1).unwrap();
//! let answer = exercise.key().to_string();
//! assert!(exercise.grade(&answer).unwrap().right);
//! ```
//!
//! | module | questions |
//! |---|---|
//! | `generated` | made from random runs: messages, the next entry, the next message, a changed guard, the cost |
//! | `textbook` | the questions that lectures ask, each answered by a run |

mod generated;
mod textbook;

use crate::simulator::rng::{Purpose, Rng};
use crate::simulator::runner::Error;
use crate::trace::recording::{Limits, Recording};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// The limits of the runs that are shown with exercises.
const LIMITS: Limits = Limits { processes: 31, steps: 5_000, messages: 10_000 };

/// A question.
#[derive(Clone, Debug, Serialize)]
pub struct Question {
    /// The seed and the number from which it was generated.
    pub seed: u64,
    /// Its number.
    pub number: u64,
    /// The kind of question.
    pub topic: &'static str,
    /// The question.
    pub text: String,
    /// What is given: the system, and what happens in it.
    pub given: Vec<String>,
    /// The possible answers. Empty: the answer is a number.
    pub choices: Vec<String>,
    /// Whether several of the choices can be right together.
    pub several: bool,
    /// The run so far, where the question is about the next step of one.
    pub recording: Option<Recording>,
}

/// A right answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// A number.
    Number(u64),
    /// The indices of the right choices.
    Choices(BTreeSet<usize>),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Choices(choices) => {
                let letters: Vec<String> = choices.iter().map(|&choice| letter(choice).to_string()).collect();
                f.write_str(&letters.join(", "))
            }
        }
    }
}

/// The letter of a choice: `a` for the first.
pub fn letter(choice: usize) -> char {
    (b'a'..=b'z').nth(choice).map_or('?', char::from)
}

/// The verdict on an answer.
#[derive(Clone, Debug, Serialize)]
pub struct Grade {
    /// Whether the answer is right.
    pub right: bool,
    /// The right answer: `6`, or `b, c`.
    pub expected: String,
    /// The reason, in sentences.
    pub because: Vec<String>,
    /// The command that shows it.
    pub command: String,
    /// The whole run.
    pub recording: Option<Recording>,
}

/// The reason why a text is not an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The question asks for a number.
    #[error("the answer to this question is a number, not '{answer}'")]
    Number {
        /// The text.
        answer: String,
    },
    /// The question has choices.
    #[error("the answer to this question is {}, not '{answer}'", if *several { "one or more letters, as in a, c" } else { "one letter" })]
    Letter {
        /// The text.
        answer: String,
        /// Whether several choices can be right.
        several: bool,
    },
}

/// A question with its answer.
#[derive(Clone, Debug)]
pub struct Exercise {
    /// The question.
    pub question: Question,
    key: Key,
    because: Vec<String>,
    command: String,
    recording: Option<Recording>,
}

/// The content of an exercise, before it has a seed and a number.
struct Draft {
    topic: &'static str,
    text: String,
    given: Vec<String>,
    choices: Vec<String>,
    several: bool,
    shown: Option<Recording>,
    key: Key,
    because: Vec<String>,
    command: String,
    recording: Option<Recording>,
}

impl Draft {
    /// An exercise whose answer is a number.
    fn number(topic: &'static str, text: String, number: u64) -> Self {
        Self {
            topic,
            text,
            given: Vec::new(),
            choices: Vec::new(),
            several: false,
            shown: None,
            key: Key::Number(number),
            because: Vec::new(),
            command: String::new(),
            recording: None,
        }
    }

    /// An exercise whose answer is one of the choices.
    fn choice(topic: &'static str, text: String, choices: Vec<String>, right: usize) -> Self {
        Self { choices, key: Key::Choices([right].into()), ..Self::number(topic, text, 0) }
    }
}

/// A generator: `None` if the random numbers give no sensible exercise, and other ones have to be drawn.
type Generator = fn(&mut Rng) -> Result<Option<Draft>, Error>;

/// The kinds of exercises. Successive numbers take them in turn, so that every kind comes up.
const GENERATORS: [Generator; 6] = [
    generated::messages_of_a_run,
    generated::next_to_enter,
    textbook::question,
    generated::may_arrive_next,
    generated::what_breaks,
    generated::cost,
];

/// The number of draws after which a generator is given up.
const MOST_DRAWS: usize = 200;

impl Exercise {
    /// The exercise with this number, of this seed.
    pub fn new(seed: u64, number: u64) -> Result<Self, Error> {
        let mut rng = Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(number), Purpose::Quiz);
        let kinds = GENERATORS.len() as u64;
        let mut kind = (seed.wrapping_add(number) % kinds) as usize;
        loop {
            for _ in 0..MOST_DRAWS {
                if let Some(draft) = GENERATORS[kind](&mut rng)? {
                    return Ok(Self::of(draft, seed, number));
                }
            }
            // The first generator always succeeds, so that this ends.
            kind = (kind + 1) % GENERATORS.len();
        }
    }

    fn of(draft: Draft, seed: u64, number: u64) -> Self {
        let Draft { topic, text, given, choices, several, shown, key, because, command, recording } = draft;
        let question = Question { seed, number, topic, text, given, choices, several, recording: shown };
        Self { question, key, because, command, recording }
    }

    /// The right answer.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Grades an answer: a number, or letters of choices.
    pub fn grade(&self, answer: &str) -> Result<Grade, AnswerError> {
        let given = match self.key {
            Key::Number(_) => {
                let number =
                    answer.trim().parse().map_err(|_| AnswerError::Number { answer: answer.into() })?;
                Key::Number(number)
            }
            Key::Choices(_) => Key::Choices(self.letters(answer)?),
        };
        Ok(self.graded(given == self.key))
    }

    /// The grade without an answer, for a reader who gives up.
    pub fn solution(&self) -> Grade {
        self.graded(false)
    }

    fn graded(&self, right: bool) -> Grade {
        Grade {
            right,
            expected: self.key.to_string(),
            because: self.because.clone(),
            command: self.command.clone(),
            recording: self.recording.clone(),
        }
    }

    /// The choices that an answer names.
    fn letters(&self, answer: &str) -> Result<BTreeSet<usize>, AnswerError> {
        let several = self.question.several;
        let invalid = || AnswerError::Letter { answer: answer.into(), several };
        let is_separator = |letter: &char| matches!(letter, ',' | ' ' | ';');
        let letters = answer.trim().chars().filter(|letter| !is_separator(letter));
        let chosen: Option<BTreeSet<usize>> = letters
            .map(|given| {
                (0..self.question.choices.len()).find(|&at| letter(at) == given.to_ascii_lowercase())
            })
            .collect();
        chosen.filter(|chosen| !chosen.is_empty() && (several || chosen.len() == 1)).ok_or_else(invalid)
    }
}
