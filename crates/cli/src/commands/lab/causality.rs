//! `lockkeeper causality`: happened-before, logical clocks and cuts of a run.

use super::explain::hanging;
use super::lab_error::LabError;
use super::sim::known;
use crate::file_error::FileError;
use crate::print_line;
use clap::Args;
use lockkeeper_lab::Scenario;
use lockkeeper_lab::causality::drawing::{Marks, draw};
use lockkeeper_lab::causality::history::{MOST_EVENTS, Stamp};
use lockkeeper_lab::causality::{Cut, CutVerdict, History, Relation};
use lockkeeper_lab::trace::clocks::ClockUpdate;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show which events of a run happened before which, with Lamport and vector clocks; judge a cut
///
/// A step of a process with all messages that it sends is one event, and so is an entry. S2:3 is the third event of S2.
/// An event happened before another if a path of events of one process and of messages leads to it; two events are
/// concurrent if neither happened before the other.
#[derive(Args)]
#[command(after_help = "\
Examples:
  lockkeeper causality lamport-two-requests
  lockkeeper causality lamport-two-requests --event S2:2
  lockkeeper causality lamport-two-requests --cut S1=2,S2=1 --svg cut.svg
  lockkeeper causality my-own.scenario --seed 3
  lockkeeper scenarios                       the figures of the lab

Exit codes: 0 done, or the cut is consistent; 2 the cut is inconsistent; 64 wrong usage; 74 the picture cannot be
written.")]
pub struct Causality {
    /// A figure's name, or a scenario file.
    scenario: String,
    /// Show the past, the future and the concurrent events of this event.
    #[arg(long, value_name = "SITE:NUMBER")]
    event: Option<String>,
    /// Judge the cut after these numbers of events of the sites; a site that is not named has no event before it.
    #[arg(long, value_name = "SITE=NUMBER,…")]
    cut: Option<String>,
    /// The seed of a scenario with random delays.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the space-time diagram.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Causality {
    pub fn run(self) -> ExitCode {
        match self.show() {
            Ok(None) => ExitCode::SUCCESS,
            Ok(Some(verdict)) if verdict.is_consistent() => ExitCode::SUCCESS,
            Ok(Some(_)) => crate::exit::VIOLATED.into(),
            Err(error) => error.of_any_file().report(),
        }
    }

    fn show(&self) -> Result<Option<CutVerdict>, LabError> {
        let scenario = Scenario::open(&self.scenario)?;
        if !scenario.election {
            known(&scenario.spec.algorithm)?;
        }
        let history = History::of_run(&scenario.run_spec(), self.seed)?;
        let stamps = history.stamps(ClockUpdate::Maximum);
        let event = self.event.as_deref().map(|text| history.find(text)).transpose();
        let event = event.map_err(LabError::parameter)?;
        let cut = self.cut.as_deref().map(|text| Cut::parse(&history, text)).transpose();
        let cut = cut.map_err(LabError::parameter)?.map(|cut| (cut.judge(&history), cut));

        print_line!("{}\n", scenario.title);
        print_rows(&history, &stamps, event, cut.as_ref().map(|(_, cut)| cut));
        if history.cut_off {
            print_line!("The run goes on; only its first {MOST_EVENTS} events are shown.");
        }
        print_clocks(&history, &stamps);
        match event {
            Some(event) => print_event(&history, event),
            None => print_concurrent(&history),
        }
        if let Some((verdict, _)) = &cut {
            print_cut(&history, verdict);
        }
        if let Some(path) = &self.svg {
            let marks = Marks { event, cut: cut.as_ref().map(|(verdict, cut)| (cut, verdict)) };
            let drawn = draw(&history, &stamps, &scenario.title, marks);
            std::fs::write(path, drawn)
                .map_err(|source| LabError::Trace(FileError::Write { path: path.clone(), source }))?;
            print_line!("\ndrawn in {}", path.display());
        }
        Ok(cut.map(|(verdict, _)| verdict))
    }
}

/// Prints the diagram in text, with both clocks beside each event.
fn print_rows(history: &History, stamps: &[Stamp], chosen: Option<usize>, cut: Option<&Cut>) {
    let width = history.rows.iter().filter(|(event, _)| event.is_some());
    let width = width.map(|(_, row)| row.chars().count()).max().unwrap_or(0);
    for (event, row) in &history.rows {
        let Some(event) = *event else {
            print_line!("{:<11}{row}", "");
            continue;
        };
        let mark = match chosen.map(|chosen| history.relation(event, chosen)) {
            None => ' ',
            Some(Relation::Same) => '●',
            Some(Relation::Before) => '←',
            Some(Relation::After) => '→',
            Some(Relation::Concurrent) => '∥',
        };
        let side = match cut.map(|cut| cut.contains(history, event)) {
            None => "",
            Some(true) => "  before the cut",
            Some(false) => "  after the cut",
        };
        print_line!("{mark} {:<9}{row:<width$}  {}{side}", history.name(event), stamps[event]);
    }
    print_line!("");
}

/// Compares both clocks with happened-before.
fn print_clocks(history: &History, stamps: &[Stamp]) {
    let sentences = history.clock_sentences(stamps);
    print_line!("{}", sentences.counts);
    hanging("  Lamport clocks: ", &sentences.lamport);
    hanging("  Vector clocks:  ", &sentences.vector);
}

/// For each event, the later events of the list that are concurrent with it: each pair once.
fn print_concurrent(history: &History) {
    print_line!("\nConcurrent");
    let (_, concurrent) = history.pairs();
    if concurrent.is_empty() {
        print_line!("  none: the events are totally ordered");
    }
    for event in 0..history.events.len() {
        let others = |other: usize| other > event && history.relation(event, other) == Relation::Concurrent;
        if (0..history.events.len()).any(others) {
            hanging(&format!("  {:<6} ∥ ", history.name(event)), &history.names_of(others));
        }
    }
}

fn print_event(history: &History, event: usize) {
    print_line!("\n{}: {}", history.name(event), history.events[event].say);
    for (title, relation) in [
        ("← happened before it  ", Relation::Before),
        ("→ happened after it   ", Relation::After),
        ("∥ concurrent with it  ", Relation::Concurrent),
    ] {
        hanging(&format!("  {title}"), &history.related(event, relation));
    }
}

fn print_cut(history: &History, verdict: &CutVerdict) {
    print_line!("");
    for sentence in history.cut_sentences(verdict) {
        print_line!("{sentence}");
    }
}
