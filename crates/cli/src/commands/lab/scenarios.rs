//! `lockkeeper scenarios`: the figures of the textbooks, described step by step.

use super::lab_error::LabError;
use super::sim::known;
use crate::exit::CliError;
use crate::print_line;
use clap::Args;
use lockkeeper_lab::simulator::figures;
use lockkeeper_lab::trace::Story;
use lockkeeper_lab::{Error, Progress, Scenario};
use std::process::ExitCode;

/// List the figures of the textbooks, or describe one step by step
#[derive(Args)]
#[command(after_help = "\
Examples:
  lockkeeper scenarios
  lockkeeper scenarios lamport-two-requests
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
    known(&scenario.spec.algorithm)?;
    if text {
        let figure = figures::find(name).map(|figure| figure.text.to_string());
        let text = figure.map_or_else(|| std::fs::read_to_string(name), Ok).map_err(Error::Trace)?;
        print_line!("{}", text.trim_end());
        return Ok(());
    }
    print_line!("{}", scenario.title);
    if !scenario.about.is_empty() {
        print_line!("{}", scenario.about);
    }
    print_line!("");
    let mut story = Story::default();
    let report = lockkeeper_lab::trace_run(&scenario.spec, 1, &mut story, &Progress::default())?;
    let width = story.lines.iter().map(|(at, _)| at.to_string().len()).max().unwrap_or(0);
    for (number, (at, line)) in story.lines.iter().enumerate() {
        print_line!("{:>3}. {:>width$} T  {line}", number + 1, at.to_string());
    }
    print_line!("");
    for found in &report.violations {
        print_line!("{}", found.violation);
    }
    if report.held() {
        print_line!("{} entries, {} messages; every property held.", report.entries, report.messages);
    }
    Ok(())
}
