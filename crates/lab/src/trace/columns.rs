//! A space-time diagram in plain text: one column for each process, time downwards.

use super::{EventKind, Record, Sink};
use crate::property::Names;
use crate::simulator::time::Time;
use lockkeeper_core::SiteId;
use std::io;

/// The width of a column, in characters.
const WIDTH: usize = 16;

/// A sink that draws the diagram as lines of text.
pub struct Columns {
    /// The lines of the drawing.
    pub lines: Vec<String>,
    inside: Vec<bool>,
}

impl Columns {
    /// An empty drawing for `processes` processes.
    pub fn new(names: Names, processes: usize) -> Self {
        let header = (0..processes).map(|who| format!("{:<WIDTH$}", names.of(SiteId::new(who)).to_string()));
        let header: String = header.collect();
        Self { lines: vec![format!("     {}", header.trim_end())], inside: vec![false; processes] }
    }

    fn columns(&self) -> Vec<char> {
        let line = |inside: &bool| format!("{:<WIDTH$}", if *inside { '█' } else { '│' });
        self.inside.iter().map(line).collect::<String>().chars().collect()
    }

    fn put(row: &mut [char], at: usize, text: &str) {
        for (place, character) in (at..row.len()).zip(text.chars()) {
            row[place] = character;
        }
    }

    /// An arrow from one column to another, with the message on it.
    fn arrow(row: &mut [char], from: usize, to: usize, text: &str, head: char) {
        let (left, right) = (from.min(to) * WIDTH + 1, from.max(to) * WIDTH);
        row[left..right].fill('─');
        let (tip, start) = if from < to { (right - 1, left + 1) } else { (left, left + 2) };
        row[tip] = head;
        let room = right - left - 3;
        let text: String = text.chars().take(room).collect();
        Self::put(row, start, &text);
    }
}

impl Sink for Columns {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let who = record.site.index();
        let at = who * WIDTH;
        let mut row = self.columns();
        row.extend([' '; WIDTH]);
        match record.what {
            EventKind::Receive { from, message, .. } => {
                let head = if from.index() < who { '>' } else { '<' };
                Self::arrow(&mut row, from.index(), who, &message.to_string(), head);
            }
            EventKind::Lost { from, message, .. } => {
                Self::arrow(&mut row, from.index(), who, &message.to_string(), '✗');
            }
            EventKind::Request { .. } => Self::put(&mut row, at, "○ asks"),
            EventKind::Enter { fence, .. } => {
                self.inside[who] = true;
                Self::put(&mut row, at, &format!("█ enters ({fence})"));
            }
            EventKind::Exit => {
                self.inside[who] = false;
                Self::put(&mut row, at, "● leaves");
            }
            EventKind::Crash => {
                self.inside[who] = false;
                Self::put(&mut row, at, "✗ crashes");
            }
            EventKind::Recover => Self::put(&mut row, at, "○ starts again"),
            EventKind::Pause => Self::put(&mut row, at, "… stops"),
            EventKind::Resume => Self::put(&mut row, at, "│ goes on"),
            EventKind::Suspect { suspect } => {
                Self::put(&mut row, at, &format!("? suspects {}", record.names.of(suspect)));
            }
            EventKind::Campaign => Self::put(&mut row, at, "○ campaigns"),
            EventKind::Elected { leader } => {
                Self::put(&mut row, at, &format!("■ leader {}", record.names.of(leader)));
            }
            EventKind::Timer => Self::put(&mut row, at, "○ wakes"),
            EventKind::Start => return Ok(()),
            EventKind::Remark { text } => row = text.chars().collect(),
        }
        let row: String = row.into_iter().collect();
        self.lines.push(format!("{:>4} {}", record.number, row.trim_end()));
        Ok(())
    }

    fn finish(&mut self, _end: Time) -> io::Result<()> {
        Ok(())
    }
}
