//! An algorithm explained from what its own file says, and a small run of it.
//!
//! Nothing here is written twice: the words come from the header of the algorithm's file, the messages and rules from
//! its types, the run from a figure of the textbooks or, where there is none, from three sites that ask at once.

use crate::figures;
use crate::runner::{Error, Progress};
use crate::scenario::Scenario;
use crate::spec::{LoadSpec, Spec};
use crate::time::Time;
use crate::trace::Story;
use lockkeeper_core::registry::{self, Entry, Visitor};
use lockkeeper_core::{About, MutualExclusion, Protocol, Purpose, Rules, Vocabulary};

/// What the header of an algorithm's file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The paper and where to find it.
    pub paper: String,
    /// The sections, under their names: Idea, Assumes, Cost, Pitfalls.
    pub sections: Vec<(String, String)>,
    /// What is said beside.
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

/// The text without the marks of rustdoc: links keep their words, emphasis its letters.
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

/// One kind of message.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in the paper.
    pub name: &'static str,
    /// Whether it only tells of an exit.
    pub only_on_exit: bool,
}

/// A small run, told step by step.
#[derive(Clone, Debug)]
pub struct Tale {
    /// What it shows.
    pub title: String,
    /// What to look at.
    pub about: String,
    /// When, and what happened.
    pub lines: Vec<(Time, String)>,
    /// How it ended.
    pub ending: String,
    /// The command that draws it.
    pub draw: String,
}

/// Everything there is to tell about an algorithm.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// What the registry says.
    pub about: &'static About,
    /// What its file says.
    pub header: Header,
    /// Its messages.
    pub messages: Vec<Kind>,
    /// Its rules, each the rest of a sentence that starts with the site's name.
    pub rules: Vec<&'static str>,
    /// A small run.
    pub tale: Tale,
}

/// Explains an algorithm.
pub fn explain(slug: &str) -> Result<Explanation, Error> {
    let entry =
        registry::find(slug).ok_or_else(|| Error::Usage(format!("there is no algorithm '{slug}'")))?;
    let (messages, rules) = registry::visit(slug, Words).unwrap_or_default();
    Ok(Explanation {
        about: entry.about,
        header: Header::parse(entry.source),
        messages,
        rules,
        tale: tale(entry)?,
    })
}

struct Words;

impl Visitor for Words {
    type Output = (Vec<Kind>, Vec<&'static str>);

    fn visit<P: MutualExclusion>(self) -> Self::Output {
        let kind = |word: &lockkeeper_core::Word| Kind {
            name: word.name,
            only_on_exit: word.purpose == Purpose::Exit,
        };
        let words = <P as Protocol>::Message::WORDS.iter().map(kind).collect();
        (words, <P as Protocol>::Rule::ALL.iter().map(|rule| rule.sentence()).collect())
    }
}

/// The first figure of the algorithm, or three sites that ask at once.
fn tale(entry: &Entry) -> Result<Tale, Error> {
    let slug = entry.about.slug;
    let figure = figures::ALL
        .iter()
        .filter_map(|figure| Scenario::parse(figure.name, figure.text).ok())
        .find(|scenario| scenario.spec.algorithm == slug);
    let (title, about, spec) = match figure {
        Some(scenario) => (scenario.title, scenario.about, scenario.spec),
        None => ("Three sites ask at the same time".into(), String::new(), burst(slug)),
    };
    let mut story = Story::default();
    let report = crate::runner::trace(&spec, 1, &mut story, &Progress::default())?;
    let ending = match report.violations.first() {
        Some(found) => found.violation.to_string(),
        None => format!("{} entries, {} messages; every property held.", report.entries, report.messages),
    };
    let draw = format!("{} --trace {slug}.svg", spec.command(1));
    Ok(Tale { title, about, lines: story.lines, ending, draw })
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
    fn a_header_is_read_as_it_is_written() {
        let source = "//! # Title\n//!\n//! Somebody: *A Paper*.\n//! Journal, 1999.\n//!\n//! **Idea.** First\n//! second.\n\
                      //!\n//! **Assumes** luck.\n//!\n//! See [`other`](super::other), RN\\[j\\].\n\nuse x;\n//! no\n";
        let header = Header::parse(source);
        assert_eq!(header.paper, "Somebody: A Paper. Journal, 1999.");
        assert_eq!(header.section("Idea"), Some("First second."));
        assert_eq!(header.section("Assumes"), Some("Luck."));
        assert_eq!(header.notes, ["See other, RN[j]."]);
    }
}
