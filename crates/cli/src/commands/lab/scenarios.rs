//! `lockkeeper scenarios`: the figures of the textbooks, described step by step.

use super::explain::hanging;
use super::lab_error::LabError;
use super::run_text::print_changed_states;
use super::sim::known;
use crate::exit::CliError;
use crate::print_line;
use clap::Args;
use lockkeeper_lab::simulator::figures;
use lockkeeper_lab::trace::recording::{self, Limits, Recording};
use lockkeeper_lab::{Error, Progress, Scenario};
use std::process::ExitCode;

/// List the figures of the textbooks, or describe one step by step, with the states that each step changes
#[derive(Args)]
#[command(after_help = "\
Examples:
  lockkeeper scenarios
  lockkeeper scenarios lamport-two-requests
  lockkeeper scenarios bully-crash-during-election
  lockkeeper scenarios my-own.scenario
  lockkeeper sim --scenario lamport-two-requests --trace figure.svg")]
pub struct Scenarios {
    /// A figure's name, or a scenario file.
    name: Option<String>,
    /// Print the scenario's source instead, as a template for new ones.
    #[arg(long, requires = "name")]
    text: bool,
}

impl Scenarios {
    pub fn run(self) -> ExitCode {
        match self.name {
            None => list(),
            Some(name) => match print_scenario(&name, self.text) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => CliError::usage(error).report(),
            },
        }
    }
}

fn list() -> ExitCode {
    let width = figures::ALL.iter().map(|figure| figure.name.len()).max().unwrap_or(0);
    for figure in figures::ALL {
        let scenario = Scenario::parse(figure.name, figure.text).expect("every figure is tested to read");
        print_line!("{:width$}  {}", figure.name, scenario.title);
    }
    print_line!(
        "\n'lockkeeper scenarios NAME' describes one; 'lockkeeper sim --scenario NAME --trace FILE.svg' draws it."
    );
    ExitCode::SUCCESS
}

fn print_scenario(name: &str, text: bool) -> Result<(), LabError> {
    let scenario = Scenario::open(name)?;
    if !scenario.election {
        known(&scenario.spec.algorithm)?;
    }
    if text {
        let figure = figures::find(name).map(|figure| figure.text.to_string());
        let text = figure.map_or_else(|| std::fs::read_to_string(name), Ok).map_err(Error::Trace)?;
        print_line!("{}", text.trim_end());
        return Ok(());
    }
    print_line!("{}", scenario.title);
    if !scenario.about.is_empty() {
        hanging("", &scenario.about);
    }
    print_line!("");
    let recording = recording::record_run(&scenario.run_spec(), 1, LIMITS, &Progress::default())?;
    print_steps(&recording);
    print_line!("");
    for violation in &recording.wrong {
        print_line!("{violation}");
    }
    if recording.cut_off {
        print_line!("The run goes on; only its first {} steps are shown.", LIMITS.steps);
    } else if recording.wrong.is_empty() {
        print_line!("{}; every property held.", recording.summary);
    }
    Ok(())
}

/// The limits of a described run.
const LIMITS: Limits = Limits { processes: 1_000, steps: 20_000, messages: 100_000 };

/// Prints each step with its time, and below it the states that it changed.
fn print_steps(recording: &Recording) {
    let width = recording.steps.iter().map(|step| step.at.to_string().len()).max().unwrap_or(0);
    let indent = " ".repeat(width + 8);
    for (number, step) in recording.steps.iter().enumerate() {
        if number > 0 {
            hanging(&format!("{number:>3}. {:>width$} T  ", step.at.to_string()), &step.say);
        } else if !step.say.is_empty() {
            hanging(&indent, &step.say);
        }
        print_changed_states(recording, number, &indent);
    }
}
