//! `lockkeeper proof`: why an algorithm is safe and live, in steps that the checker verifies.

use super::explain::hanging;
use super::lab_error::LabError;
use crate::exit;
use crate::print_line;
use clap::Args;
use lockkeeper_lab::UsageError;
use lockkeeper_lab::checker::report::grouped;
use lockkeeper_lab::proof::{Part, ProofStep, SITES, Sketch, StepVerdict};
use std::process::ExitCode;

/// Print a proof sketch of an algorithm: why it is safe and live; with --check, the checker verifies each step
///
/// Each step names the property or the invariant that the checker verifies, and the mutants that lack a guard on which
/// the step relies. The sketch of a mutant is that of its correct twin, so that --check shows the step that fails.
#[derive(Args)]
#[command(after_help = "\
Examples:
  lockkeeper proof ricart-agrawala
  lockkeeper proof ricart-agrawala --check
  lockkeeper proof ricart-agrawala-replies-inside --check   # a mutant: one step fails
  lockkeeper proof maekawa --check --sites 4
  lockkeeper proof bakery --check                           # threads and registers

Exit codes: 0 each step is as the sketch states; 2 a step is not; 3 a search ended before it was complete; 64 wrong
usage.")]
pub struct Proof {
    /// The algorithm, an election, an algorithm for shared registers, or a mutant of one.
    algorithm: String,
    /// Verify each step in every reachable state.
    #[arg(long)]
    check: bool,
    /// The number of sites to check. [default: 3, or what the sketch needs]
    #[arg(long, short = 'n', value_name = "N", requires = "check")]
    sites: Option<usize>,
    /// Requests of each site that asks for the critical section.
    #[arg(long, value_name = "N", requires = "check")]
    requests: Option<u8>,
    /// End a search after this number of states.
    #[arg(long, value_name = "N", requires = "check", default_value_t = 3_000_000)]
    most_states: u64,
}

impl Proof {
    pub fn run(self) -> ExitCode {
        match self.show() {
            Ok(code) => code,
            Err(error) => error.of_any_file().report(),
        }
    }

    fn show(&self) -> Result<ExitCode, LabError> {
        let unknown = || UsageError::UnknownAlgorithm { name: self.algorithm.clone() };
        let sketch = Sketch::of(&self.algorithm).ok_or_else(unknown).map_err(LabError::parameter)?;
        let mut spec = sketch.spec(&self.algorithm, self.sites);
        spec.requests = self.requests.or(spec.requests);
        let verdicts = match self.check {
            true => Some(sketch.verify(&spec, |progress| progress.distinct < self.most_states)?),
            false => None,
        };
        print_line!("Proof sketch of {}", self.algorithm);
        for part in [Part::Safety, Part::Liveness] {
            print_line!("\n{part}");
            for (place, step) in sketch.steps.iter().enumerate().filter(|(_, step)| step.part == part) {
                hanging(&format!("{:>3}. ", place + 1), &step.text);
                hanging("     · ", &step.claim());
                for guard in &step.guards {
                    let also =
                        if guard.alone { "" } else { ", which also fails steps that build on this one" };
                    hanging(
                        "     · relies on a guard that is missing in ",
                        &format!("{}{also}", guard.mutant),
                    );
                }
                if let Some(verdicts) = &verdicts {
                    hanging("     ", &words(step, &verdicts[place]));
                }
            }
        }
        print_line!("");
        let Some(verdicts) = verdicts else {
            print_line!("Check it:    lockkeeper proof {} --check", self.algorithm);
            return Ok(ExitCode::SUCCESS);
        };
        let faults = if sketch.crashes > 0 { ", one of which may crash" } else { "" };
        print_line!("Checked with {} sites{faults}.", self.sites.or(sketch.sites).unwrap_or(SITES));
        let mut code = ExitCode::SUCCESS;
        for (step, verdict) in sketch.steps.iter().zip(&verdicts) {
            match verdict {
                StepVerdict::Undecided { .. } if code == ExitCode::SUCCESS => code = exit::UNFINISHED.into(),
                StepVerdict::Undecided { .. } => {}
                _ if as_stated(step, verdict) => {}
                _ => code = exit::VIOLATED.into(),
            }
        }
        Ok(code)
    }
}

/// Whether the verdict is what the step states.
fn as_stated(step: &ProofStep, verdict: &StepVerdict) -> bool {
    matches!(verdict, StepVerdict::Violated { .. }) == step.refuted
}

/// The verdict in words.
fn words(step: &ProofStep, verdict: &StepVerdict) -> String {
    let mark = if as_stated(step, verdict) { "✓" } else { "✗" };
    match verdict {
        StepVerdict::Holds { states } => {
            format!("{mark} holds in every reachable state ({} states)", grouped(*states))
        }
        StepVerdict::Violated { what } => format!("{mark} violated: {what}"),
        StepVerdict::Undecided { why } => format!("? not decided: {why}"),
    }
}
