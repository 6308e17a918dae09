//! `lockkeeper quiz`: exercises in the terminal.

use super::explain::hanging;
use crate::exit::CliError;
use crate::print_line;
use clap::Args;
use lockkeeper_lab::quiz::{Exercise, Grade, letter};
use std::io::BufRead;
use std::process::ExitCode;

/// Answer exercises about the algorithms; each is generated from a seed and graded by running it
///
/// The kinds of exercises take turns: the messages of a run, the site that enters next, the messages that may arrive
/// now, the violation after a guard is changed, the cost of an entry, and the questions that lectures ask.
#[derive(Args)]
#[command(after_help = "\
Examples:
  lockkeeper quiz
  lockkeeper quiz --seed 7 --questions 12
  lockkeeper quiz --seed 7 --from 3 --questions 1 --answers   # the third question, with its answer

An answer is a number, or letters such as a or b, c. An empty line shows the answer; the end of the input ends the
quiz. In a browser: the tab Quiz of 'lockkeeper lab'.

Exit codes: 0 done; 64 wrong usage.")]
pub struct Quiz {
    /// The seed of the questions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first question.
    #[arg(long, value_name = "N", default_value_t = 1)]
    from: u64,
    /// The number of questions.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    questions: u64,
    /// Print the questions with their answers, and ask for none.
    #[arg(long)]
    answers: bool,
    /// Print each question as a JSON object in one line, with --answers also its answer, and ask for none.
    #[arg(long)]
    json: bool,
}

impl Quiz {
    pub fn run(self) -> ExitCode {
        match self.ask() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => error.report(),
        }
    }

    fn ask(&self) -> Result<(), CliError> {
        let (mut right, mut answered) = (0, 0);
        for number in self.from..self.from.saturating_add(self.questions) {
            let exercise = Exercise::new(self.seed, number)?;
            if self.json {
                self.print_json(&exercise);
                continue;
            }
            print_question(&exercise);
            if self.answers {
                print_grade(&exercise.solution(), None);
                continue;
            }
            match answer(&exercise) {
                Answer::Given(grade) => {
                    answered += 1;
                    right += u64::from(grade.right);
                    print_grade(&grade, Some(grade.right));
                }
                Answer::Skipped => print_grade(&exercise.solution(), None),
                Answer::End => break,
            }
        }
        if !self.answers && !self.json {
            print_line!("{right} of {answered} right.");
        }
        Ok(())
    }

    fn print_json(&self, exercise: &Exercise) {
        let mut question = serde_json::to_value(&exercise.question).expect("a question is plain data");
        if self.answers
            && let Some(object) = question.as_object_mut()
        {
            let solution = exercise.solution();
            object.insert("answer".into(), solution.expected.into());
            object.insert("because".into(), solution.because.into());
            object.insert("command".into(), solution.command.into());
        }
        print_line!("{question}");
    }
}

enum Answer {
    Given(Box<Grade>),
    Skipped,
    /// The input has ended.
    End,
}

/// Reads lines until one is an answer.
fn answer(exercise: &Exercise) -> Answer {
    loop {
        let mut line = String::new();
        match std::io::stdin().lock().read_line(&mut line) {
            Ok(0) | Err(_) => return Answer::End,
            Ok(_) if line.trim().is_empty() => return Answer::Skipped,
            Ok(_) => {}
        }
        match exercise.grade(line.trim()) {
            Ok(grade) => return Answer::Given(Box::new(grade)),
            Err(error) => print_line!("{error}"),
        }
    }
}

fn print_question(exercise: &Exercise) {
    let question = &exercise.question;
    print_line!("── {}. {} {}\n", question.number, question.topic, "─".repeat(50));
    for line in &question.given {
        hanging("  ", line);
    }
    print_line!("");
    hanging("", &question.text);
    for (place, choice) in question.choices.iter().enumerate() {
        hanging(&format!("  {}  ", letter(place)), choice);
    }
    print_line!("");
}

fn print_grade(grade: &Grade, right: Option<bool>) {
    match right {
        Some(true) => print_line!("✓ right: {}\n", grade.expected),
        Some(false) => print_line!("✗ wrong; the answer is {}\n", grade.expected),
        None => print_line!("The answer is {}\n", grade.expected),
    }
    for line in &grade.because {
        hanging("  ", line);
    }
    print_line!("\nSee it: {}\n", grade.command.trim_end());
}
