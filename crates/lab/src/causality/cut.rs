//! Cuts: for each process, the number of its events that lie before the cut.

use super::history::{History, HistoryError, Stamp};
use lockkeeper_core::SiteId;

/// A cut through a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// For each process, the number of its first events that lie before the cut.
    pub events: Vec<usize>,
}

/// A text that is no cut through a history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CutError {
    /// A part of the text is wrong.
    #[error(
        "'{text}' is no part of a cut: write S1=3,S2=1 for the first three events of S1 and the first of S2"
    )]
    Text {
        /// The part.
        text: String,
    },
    /// The history does not have the process or the event.
    #[error(transparent)]
    History(#[from] HistoryError),
}

/// The judgement of a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutVerdict {
    /// The messages that are received before the cut but sent after it. A consistent cut has none.
    pub violations: Vec<usize>,
    /// The messages that are sent before the cut, and not received before it.
    pub under_way: Vec<usize>,
}

impl Cut {
    /// Reads `S1=3,S2=1`; processes that are not named have no event before the cut.
    pub fn parse(history: &History, text: &str) -> Result<Self, CutError> {
        let mut events = vec![0; history.names.len()];
        for part in text.split(',').map(str::trim) {
            let wrong = || CutError::Text { text: part.into() };
            let (name, number) = part.split_once('=').ok_or_else(wrong)?;
            let site = history.process(name)?;
            let number: usize = number.parse().map_err(|_| wrong())?;
            let most = history.events_of(site);
            if number > most {
                return Err(HistoryError::Number { name: name.into(), events: most, number }.into());
            }
            events[site.index()] = number;
        }
        Ok(Self { events })
    }

    /// Whether an event lies before the cut.
    pub fn contains(&self, history: &History, event: usize) -> bool {
        let event = &history.events[event];
        event.number <= self.events[event.site.index()]
    }

    /// Judges the cut by the messages.
    pub fn judge(&self, history: &History) -> CutVerdict {
        let mut verdict = CutVerdict { violations: Vec::new(), under_way: Vec::new() };
        for (place, message) in history.messages.iter().enumerate() {
            let received = message.received.iter().any(|event| self.contains(history, *event));
            match (self.contains(history, message.sent), received) {
                (false, true) => verdict.violations.push(place),
                (true, false) => verdict.under_way.push(place),
                _ => {}
            }
        }
        verdict
    }

    /// Judges the cut by vector clocks: it is consistent if the last event before it of each process knows no event
    /// after it.
    pub fn is_consistent(&self, history: &History, stamps: &[Stamp]) -> bool {
        let known = |event: &usize| self.contains(history, *event);
        (0..history.events.len()).filter(known).all(|event| {
            let knows = &stamps[event].vector;
            SiteId::all(self.events.len())
                .all(|site| knows[site.index()] as usize <= self.events[site.index()])
        })
    }
}

impl CutVerdict {
    /// Whether the cut is consistent.
    pub fn is_consistent(&self) -> bool {
        self.violations.is_empty()
    }
}
