//! A trace in sentences.

use super::{EventKind, Record, Sink};
use crate::simulator::time::Time;
use lockkeeper_core::Mode;
use std::io;

/// A sentence that describes an event.
pub fn sentence(record: &Record<'_>) -> String {
    let name = record.name();
    let names = record.names;
    let because = |start: String| match record.why {
        [] => format!("{start}."),
        why => format!("{start}: it {}.", why.join("; it ")),
    };
    let happened = match record.what {
        EventKind::Start => format!("{name} starts."),
        EventKind::Request { mode: Mode::Exclusive } => because(format!("{name} wants to enter")),
        EventKind::Request { mode: Mode::Shared } => because(format!("{name} wants to enter and to share")),
        EventKind::Enter { fence, mode: Mode::Exclusive } => format!("{name} is inside, with fence {fence}."),
        EventKind::Enter { fence, mode: Mode::Shared } => {
            format!("{name} is inside and shares, with fence {fence}.")
        }
        EventKind::Exit => because(format!("{name} leaves")),
        EventKind::Campaign => because(format!("{name} misses the leader")),
        EventKind::Elected { leader } if leader == record.site => format!("{name} leads."),
        EventKind::Elected { leader } => format!("{name} takes {} for the leader.", names.of(leader)),
        EventKind::Receive { from, message, .. } => {
            because(format!("{name} receives {message} from {}", names.of(from)))
        }
        EventKind::Lost { from, message, .. } => {
            format!("{message} from {} to {name} is lost.", names.of(from))
        }
        EventKind::Crash => format!("{name} crashes."),
        EventKind::Recover => because(format!("{name} starts again and remembers nothing")),
        EventKind::Pause => format!("{name} stops for a while."),
        EventKind::Resume => format!("{name} goes on."),
        EventKind::Suspect { suspect } => {
            because(format!("{name} suspects that {} has crashed", names.of(suspect)))
        }
        EventKind::Timer => because(format!("a timer of {name} runs out")),
        EventKind::Remark { text } => text.to_string(),
    };
    happened + &sendings(record)
}

/// The messages sent in a step, equal messages grouped: ` It sends REQUEST(1) to S2, S3.`
fn sendings(record: &Record<'_>) -> String {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for sent in record.sends {
        let (text, to) = (sent.message.to_string(), record.names.of(sent.to).to_string());
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, receivers)) => receivers.push(to),
            None => groups.push((text, vec![to])),
        }
    }
    groups.iter().map(|(text, receivers)| format!(" It sends {text} to {}.", receivers.join(", "))).collect()
}

/// A sink that collects the sentences.
#[derive(Default)]
pub struct Story {
    /// Time and sentence of each event.
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
