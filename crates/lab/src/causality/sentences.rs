//! What a history shows, in sentences: the comparison of its clocks with happened-before, and the verdict on a cut.

use super::cut::CutVerdict;
use super::history::{History, Relation, Stamp};

/// The comparison of the clocks of a history with happened-before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockSentences {
    /// The numbers of events, messages and pairs.
    pub counts: String,
    /// The Lamport clocks.
    pub lamport: String,
    /// The vector clocks.
    pub vector: String,
}

impl History {
    /// Compares both clocks with happened-before.
    pub fn clock_sentences(&self, stamps: &[Stamp]) -> ClockSentences {
        let (ordered, concurrent) = self.pairs();
        let smaller = |pair: &&(usize, usize)| stamps[pair.0].lamport < stamps[pair.1].lamport;
        let differs = |pair: &&(usize, usize)| stamps[pair.0].lamport != stamps[pair.1].lamport;
        let by_vector = ordered.iter().chain(&concurrent);
        let by_vector = by_vector.filter(|(one, other)| stamps[*one].is_before(&stamps[*other])).count();
        let fits = match self.misfit(stamps) {
            None => "exactly in the ordered pairs".to_string(),
            Some((one, other)) => {
                format!("but not as {} and {} are ordered", self.name(one), self.name(other))
            }
        };
        ClockSentences {
            counts: format!(
                "{} events, {} messages; of {} pairs of events {} are ordered and {} concurrent.",
                self.events.len(),
                self.messages.len(),
                ordered.len() + concurrent.len(),
                ordered.len(),
                concurrent.len()
            ),
            lamport: format!(
                "L(e) < L(f) in {} of the ordered pairs e → f; L also differs in {} of the concurrent pairs, so that a \
                 smaller L does not show that e happened before f.",
                ordered.iter().filter(smaller).count(),
                concurrent.iter().filter(differs).count()
            ),
            vector: format!("V(e) < V(f) in {by_vector} pairs, {fits}."),
        }
    }

    /// The names of the events that have a relation to an event; `none` if there is none.
    pub fn related(&self, event: usize, relation: Relation) -> String {
        self.names_of(|other| self.relation(other, event) == relation)
    }

    /// The names of the selected events; `none` if there is none.
    pub fn names_of(&self, selects: impl Fn(usize) -> bool) -> String {
        let events = (0..self.events.len()).filter(|event| selects(*event));
        let names: Vec<String> = events.map(|event| self.name(event)).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }

    /// The verdict on a cut: a sentence, and the messages that violate it; then the messages under way, with a heading.
    pub fn cut_sentences(&self, verdict: &CutVerdict) -> Vec<String> {
        let message = |place: &usize| {
            let message = &self.messages[*place];
            let sent = self.name(message.sent);
            match message.received.as_slice() {
                [] => format!("  {} of {sent}, not received", message.text),
                received => {
                    let received: Vec<String> = received.iter().map(|event| self.name(*event)).collect();
                    format!("  {} from {sent} to {}", message.text, received.join(", "))
                }
            }
        };
        let mut sentences = vec![if verdict.is_consistent() {
            "The cut is consistent: each message that is received before it is sent before it.".to_string()
        } else {
            "The cut is inconsistent: a message is received before it and sent after it.".to_string()
        }];
        sentences.extend(verdict.violations.iter().map(message));
        if !verdict.under_way.is_empty() {
            sentences.push("Under way at the cut:".into());
            sentences.extend(verdict.under_way.iter().map(message));
        }
        sentences
    }
}
