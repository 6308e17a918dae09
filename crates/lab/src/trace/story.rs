//! A run told in sentences.

use super::{Record, Sink, What};
use crate::time::Time;
use std::io;

/// What happened, as a sentence that a student understands.
pub fn sentence(record: &Record<'_>) -> String {
    let name = record.name();
    let names = record.names;
    let because = |start: String| match record.why {
        [] => format!("{start}."),
        why => format!("{start}: it {}.", why.join("; it ")),
    };
    match record.what {
        What::Request => because(format!("{name} wants to enter")),
        What::Enter { fence } => format!("{name} is inside, with fence {fence}."),
        What::Exit => because(format!("{name} leaves")),
        What::Send { to, message, .. } => format!("{name} sends {message} to {}.", names.of(to)),
        What::Receive { from, message, .. } => {
            because(format!("{name} receives {message} from {}", names.of(from)))
        }
        What::Lost { from, message, .. } => format!("{message} from {} to {name} is lost.", names.of(from)),
        What::Crash => format!("{name} crashes."),
        What::Recover => because(format!("{name} starts again and remembers nothing")),
        What::Pause => format!("{name} stops for a while."),
        What::Resume => format!("{name} goes on."),
        What::Suspect { suspect } => {
            because(format!("{name} suspects that {} has crashed", names.of(suspect)))
        }
        What::Timer => because(format!("a timer of {name} runs out")),
        What::Say { text } => text.to_string(),
    }
}

/// A sink that keeps the sentences.
#[derive(Default)]
pub struct Story {
    /// When, and what.
    pub lines: Vec<(Time, String)>,
}

impl Sink for Story {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.lines.push((record.at, sentence(record)));
        Ok(())
    }

    fn finish(&mut self, _end: Time) -> io::Result<()> {
        Ok(())
    }
}
