//! Small textbook figures, written by hand and never re-recorded.
//!
//! Each text file names a scenario and then lists the events at each instant: requests, entries, exits and
//! deliveries. Events at the same instant may be listed in any order.

use lockkeeper_lab::trace::{EventKind, Record, Sink};
use lockkeeper_lab::{Progress, Scenario, Time, trace_run};
use std::collections::BTreeMap;
use std::io;

/// Writes a run in the format of the transcripts.
#[derive(Default)]
struct Transcript(BTreeMap<Time, Vec<String>>);

impl Sink for Transcript {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let name = record.name();
        let line = match record.what {
            EventKind::Request { .. } => format!("{name} asks"),
            EventKind::Enter { .. } => format!("{name} enters"),
            EventKind::Exit => format!("{name} leaves"),
            EventKind::Crash => format!("{name} crashes"),
            EventKind::Receive { from, message, .. } => {
                format!("{message}: {} -> {name}", record.names.of(from))
            }
            EventKind::Lost { from, message, .. } => {
                format!("{message}: {} -> {name} is lost", record.names.of(from))
            }
            _ => return Ok(()),
        };
        self.0.entry(record.at).or_default().push(line);
        Ok(())
    }

    fn finish(&mut self, _end: Time) -> io::Result<()> {
        self.0.values_mut().for_each(|lines| lines.sort());
        Ok(())
    }
}

/// Reads a transcript: the scenario's name, and the events by time.
fn read(text: &str) -> (String, BTreeMap<Time, Vec<String>>) {
    let mut scenario = String::new();
    let mut expected: BTreeMap<Time, Vec<String>> = BTreeMap::new();
    let mut at = Time::ZERO;
    for line in text
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").trim_end())
        .filter(|line| !line.is_empty())
    {
        if let Some(name) = line.strip_prefix("scenario: ") {
            scenario = name.into();
            continue;
        }
        let (time, what) = line.split_at(6);
        if !time.trim().is_empty() {
            at = Time::parse(time.trim()).expect("a time in the first column");
        }
        expected.entry(at).or_default().push(what.trim().into());
    }
    expected.values_mut().for_each(|lines| lines.sort());
    (scenario, expected)
}

fn check(text: &str) {
    let (name, expected) = read(text);
    let scenario = Scenario::open(&name).unwrap();
    let mut transcript = Transcript::default();
    trace_run(&scenario.spec, 1, &mut transcript, &Progress::default()).unwrap();
    for (at, lines) in &expected {
        assert_eq!(transcript.0.get(at), Some(lines), "{name}, at {at} T");
    }
    assert_eq!(
        transcript.0.len(),
        expected.len(),
        "{name}: an event occurs at a time that the figure does not have"
    );
}

macro_rules! transcripts {
    ($($test:ident: $file:literal,)+) => {
        $(#[test] fn $test() { check(include_str!($file)); })+
    };
}

transcripts! {
    lamport_two_of_three_sites_ask: "lamport-two-requests.txt",
    ricart_agrawala_two_of_three_sites_ask: "ricart-agrawala-two-requests.txt",
    the_coordinator_queues_and_grants: "centralized-queue.txt",
    the_token_goes_round_the_ring: "token-ring.txt",
    a_reply_overtakes_a_request: "lamport-overtaken.txt",
    one_late_reply_answers_two_requests: "k-mutual-exclusion-late-reply.txt",
    readers_share_and_a_writer_is_not_passed: "readers-writers.txt",
}
