//! Converts a run given as sentences into a recording that can be drawn. The first name in a sentence is the
//! process that acts; a name after `from` is the sender of a message.
//!
//! Example: "M2 receives the report for epoch 1 from M1.1: it holds nothing" is a step of M2, with an arrow from M1.

use crate::simulator::time::Time;
use crate::trace::SiteState;
use crate::trace::recording::{Message, Recording, Step};
use lockkeeper_core::{Field, Mode, Phase, SiteId};
use std::collections::BTreeSet;

/// The prefix of the last line, which states the violation.
const ENDING: &str = "=> ";

/// The text of a run: one sentence per line, then the violation.
pub fn text(steps: &[String], ending: &str) -> String {
    let mut text = steps.join("\n");
    text += &format!("\n{ENDING}{ending}\n");
    text
}

/// The recording of such a text.
pub fn recording(text: &str) -> Recording {
    let names: BTreeSet<&str> = text.lines().flat_map(str::split_whitespace).filter_map(name).collect();
    let names: Vec<String> = names.into_iter().map(Into::into).collect();
    let mut reader = StoryReader { recording: Recording::of(names), knows: Vec::new() };
    reader.recording.steps.push(Step::new(Time::ZERO, None, "start", String::new()));
    reader.knows = vec![Known::default(); reader.recording.names.len()];
    for line in text.lines() {
        reader.line(line);
    }
    reader.recording
}

/// The process that a word names: a letter and a number, optionally followed by an incarnation (`M1.2`).
fn name(word: &str) -> Option<&str> {
    let word = word.trim_end_matches([',', '.', ':']);
    let word = word.split('.').next()?;
    let digits = word.strip_prefix(['S', 'P', 'M'])?;
    (!digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())).then_some(word)
}

/// The state of a process as far as the sentences reveal it.
#[derive(Clone, Default)]
struct Known {
    phase: Phase,
    /// The last value that it wrote to each register.
    written: Vec<(&'static str, String)>,
}

/// A recording that is made sentence by sentence.
struct StoryReader {
    recording: Recording,
    knows: Vec<Known>,
}

impl StoryReader {
    fn site(&self, name: &str) -> Option<SiteId> {
        self.recording.names.iter().position(|known| known == name).map(SiteId::new)
    }

    fn line(&mut self, line: &str) {
        let now = self.recording.steps.len();
        let at = Time::from_milli_t(1000 * now as u64);
        if let Some(ending) = line.strip_prefix(ENDING) {
            let say = format!("{}.", capital(ending));
            self.recording.steps.push(Step::new(at, None, "ending", say));
            self.recording.end = at;
            return;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let site = words.iter().find_map(|word| name(word)).and_then(|name| self.site(name));
        if let Some(to) = site {
            self.message(&words, line, to, now);
            self.state(&words, line, to, now);
        }
        let say = format!("{}.", capital(line));
        self.recording.steps.push(Step::new(at, site, "sentence", say));
        self.recording.end = at;
    }

    /// Records a message from another process. Its arrow starts one step before it ends.
    fn message(&mut self, words: &[&str], line: &str, to: SiteId, now: usize) {
        let after = words.windows(2).find(|pair| pair[0] == "from").map(|pair| pair[1]);
        let Some(from) = after.and_then(name).and_then(|name| self.site(name)) else { return };
        let text = line.to_string();
        let (sent, ended) = (now.saturating_sub(1), Some(now));
        self.recording.messages.push(Message { from, to, text, sent, ended, lost: false });
    }

    /// Updates the registers and the phase of a process.
    fn state(&mut self, words: &[&str], line: &str, site: SiteId, now: usize) {
        let known = &mut self.knows[site.index()];
        if let [_, "writes", register, ":=", value, ..] = words {
            let register = if register.starts_with("number") { "number" } else { "writes" };
            known.written.retain(|(name, _)| *name != register);
            known.written.push((register, (*value).to_string()));
        }
        for (mark, phase) in [("wants to enter", Phase::Waiting), ("(enters)", Phase::Inside)] {
            if line.contains(mark) {
                known.phase = phase;
            }
        }
        let state = SiteState {
            phase: known.phase,
            mode: Mode::Exclusive,
            up: !line.ends_with("crashes"),
            paused: false,
            tokens: 0,
            timers: 0,
            fields: known.written.iter().map(|(name, value)| Field::new(name, value)).collect(),
            points_to: None,
            waits_for: Vec::new(),
            quorum: Vec::new(),
        };
        self.recording.states[site.index()].push((now, state));
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_converted_to_steps_messages_and_states() {
        let steps = [
            "P1 writes number[1] := 2 (is through its doorway)",
            "M2 receives the report for epoch 1 from M1.1: it holds nothing",
        ];
        let run = recording(&text(&steps.map(String::from), "P1 waits for ever"));
        assert_eq!(run.names, ["M1", "M2", "P1"]);
        assert_eq!(run.steps.len(), 4);
        assert_eq!(run.steps[3].say, "P1 waits for ever.");
        assert_eq!(run.states[2][0].1.fields[0], Field::new("number", "2"));
        let message = &run.messages[0];
        assert_eq!((message.from, message.to, message.ended), (SiteId(0), SiteId(1), Some(2)));
    }
}
