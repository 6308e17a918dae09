//! An explanation of an algorithm: the header of its source file, and a small run of it.
//!
//! The text comes from the header of the algorithm's file, the messages and rules from its types, and the run
//! from a textbook figure or, if there is none, from three sites that request at the same time.

use crate::algorithm;
use crate::simulator::figures;
use crate::simulator::run_spec::RunSpec;
use crate::simulator::runner::{Error, Progress};
use crate::simulator::scenario::Scenario;
use crate::simulator::spec::{LoadSpec, Spec};
use crate::trace::recording::{Limits, Step, record_run};
use crate::usage::UsageError;
use lockkeeper_core::registry::{self, Entry};
use lockkeeper_core::{About, MessageKind, Purpose};

/// The parsed header of an algorithm's source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The paper and where to find it.
    pub paper: String,
    /// The sections, under their names: Idea, Assumes, Cost, Pitfalls.
    pub sections: Vec<(String, String)>,
    /// The other paragraphs.
    pub notes: Vec<String>,
}

impl Header {
    /// Reads the lines that start with `//!`.
    pub fn parse(source: &str) -> Self {
        let text: String = source
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .map(|line| format!("{}\n", line.trim()))
            .collect();
        let mut header = Self::default();
        for paragraph in text.split("\n\n") {
            let words: Vec<&str> = paragraph.split_whitespace().collect();
            let paragraph = words.join(" ");
            match paragraph.strip_prefix("**").and_then(|rest| rest.split_once("**")) {
                _ if paragraph.is_empty() || paragraph.starts_with("# ") => {}
                Some((name, rest)) => {
                    let text = plain(rest.trim());
                    // "Assumes" is the verb of its sentence; the others are titles with a full stop.
                    let text = if name.ends_with('.') { text } else { capitalized(&text) };
                    header.sections.push((name.trim_end_matches('.').into(), text));
                }
                None if header.paper.is_empty() => header.paper = plain(&paragraph),
                None => header.notes.push(plain(&paragraph)),
            }
        }
        header
    }

    /// A section by its name.
    pub fn section(&self, name: &str) -> Option<&str> {
        self.sections.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The text without rustdoc markup: links keep their text, emphasis its letters.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['*', '`', '\\', '[']) {
        plain.push_str(&rest[..at]);
        let mark = rest.as_bytes()[at];
        rest = &rest[at + 1..];
        match mark {
            b'\\' => {
                let escaped = rest.chars().next().map_or(0, char::len_utf8);
                plain.push_str(&rest[..escaped]);
                rest = &rest[escaped..];
            }
            b'[' => {
                match rest.split_once("](").and_then(|(words, end)| Some((words, end.split_once(')')?.1))) {
                    Some((words, end)) => {
                        plain.push_str(&words.replace('`', ""));
                        rest = end;
                    }
                    None => plain.push('['),
                }
            }
            _ => {}
        }
    }
    plain + rest
}

/// A message type.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in the paper.
    pub name: &'static str,
    /// Whether it only reports an exit.
    pub only_on_exit: bool,
}

/// A small run, step by step.
#[derive(Clone, Debug)]
pub struct AnnotatedRun {
    /// The title of the run.
    pub title: String,
    /// What to look at in it.
    pub about: String,
    /// The steps.
    pub steps: Vec<Step>,
    /// The lines of the algorithm's pseudo-code, to which the steps refer.
    pub code: Vec<&'static str>,
    /// How the run ended.
    pub ending: String,
    /// The command that draws the run.
    pub draw: String,
}

/// A small run is shorter than this.
const LIMITS: Limits = Limits { processes: 100, steps: 10_000, messages: 10_000 };

impl AnnotatedRun {
    /// Runs it once.
    pub fn of(title: String, about: String, run: &RunSpec) -> Result<Self, Error> {
        let mut recording = record_run(run, 1, LIMITS, &Progress::default())?;
        let ending = match recording.wrong.first() {
            Some(violation) => violation.to_string(),
            None => format!("{}; every property held.", recording.summary),
        };
        // The first step is the start; only an initial holder or leader makes it say something.
        if recording.steps.first().is_some_and(|start| start.say.is_empty()) {
            recording.steps.remove(0);
        }
        let draw = format!("{} --trace {}.svg", run.command(1), run.system().algorithm);
        Ok(Self { title, about, steps: recording.steps, code: recording.code, ending, draw })
    }
}

/// The explanation of an algorithm.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Its entry in the registry.
    pub about: &'static About,
    /// The header of its file.
    pub header: Header,
    /// Its message types.
    pub messages: Vec<Kind>,
    /// Its rules. Each is the rest of a sentence that starts with the site's name.
    pub rules: Vec<&'static str>,
    /// A small run.
    pub run: AnnotatedRun,
}

/// Explains an algorithm.
pub fn explain(slug: &str) -> Result<Explanation, Error> {
    let entry = registry::find(slug).ok_or_else(|| UsageError::UnknownAlgorithm { name: slug.into() })?;
    let algorithm = algorithm::find(slug).expect("every entry of the registry is an algorithm");
    let kind = |kind: &MessageKind| Kind { name: kind.name, only_on_exit: kind.purpose == Purpose::Exit };
    Ok(Explanation {
        about: entry.about,
        header: Header::parse(entry.source),
        messages: algorithm.kinds().iter().map(kind).collect(),
        rules: algorithm.rules(),
        run: annotated_run(entry)?,
    })
}

/// The first figure of the algorithm, or three sites that request at the same time.
fn annotated_run(entry: &Entry) -> Result<AnnotatedRun, Error> {
    let slug = entry.about.slug;
    let figure = figures::ALL
        .iter()
        .filter_map(|figure| Scenario::parse(figure.name, figure.text).ok())
        .find(|scenario| scenario.spec.algorithm == slug);
    match figure {
        Some(scenario) => {
            AnnotatedRun::of(scenario.title.clone(), scenario.about.clone(), &scenario.run_spec())
        }
        None => {
            let run = RunSpec::MutualExclusion(burst(slug));
            AnnotatedRun::of("Three sites ask at the same time".into(), String::new(), &run)
        }
    }
}

fn burst(slug: &str) -> Spec {
    let mut spec = Spec::new(slug, 3);
    spec.load = LoadSpec::Burst;
    spec.entries = 3;
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_parsed_into_paper_sections_and_notes() {
        let source = "//! # Title\n//!\n//! A. Author: *A Paper*.\n//! Journal, 1999.\n//!\n//! **Idea.** First\n//! second.\n\
                      //!\n//! **Assumes** luck.\n//!\n//! See [`other`](super::other), RN\\[j\\].\n\nuse x;\n//! no\n";
        let header = Header::parse(source);
        assert_eq!(header.paper, "A. Author: A Paper. Journal, 1999.");
        assert_eq!(header.section("Idea"), Some("First second."));
        assert_eq!(header.section("Assumes"), Some("Luck."));
        assert_eq!(header.notes, ["See other, RN[j]."]);
    }
}
