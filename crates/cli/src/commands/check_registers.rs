//! `lockkeeper check bakery`: algorithms for shared memory.

use super::check::grouped;
use crate::{exit, say};
use lockkeeper_lab::registers::{self, Finding, Limits, Outcome, Property};
use std::process::ExitCode;

/// Checks one of them.
pub fn check_registers(algorithm: &str, processes: usize, flickering: bool, as_json: bool) -> ExitCode {
    let outcome = match registers::check(algorithm, processes, flickering, Limits::default()) {
        Ok(outcome) => outcome,
        Err(error) => return exit::complain(exit::USAGE, &error),
    };
    let held = outcome.held();
    if as_json {
        say!("{}", serde_json::to_string(&outcome).expect("an outcome is plain data"));
    } else {
        print(&outcome);
    }
    let unknown =
        outcome.verdicts.iter().any(|verdict| verdict.promised && verdict.finding == Finding::Unknown);
    match (held, unknown) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ExitCode::from(exit::UNFINISHED),
        (false, false) => ExitCode::from(exit::VIOLATED),
    }
}

fn print(outcome: &Outcome) {
    let registers = if outcome.flickering { "flickering" } else { "atomic" };
    say!(
        "{}, {} processes that ask again and again, {registers} registers",
        outcome.algorithm,
        outcome.processes
    );
    let tickets = outcome.tickets.map(|most| format!(", tickets up to {most}")).unwrap_or_default();
    say!(
        "{} states, {} steps, {} deep{tickets}\n",
        grouped(outcome.states),
        grouped(outcome.steps),
        outcome.depth
    );
    for verdict in &outcome.verdicts {
        let finding = match (verdict.finding, verdict.promised) {
            (Finding::Holds, _) => "holds",
            (Finding::Violated, true) => "VIOLATED",
            (Finding::Violated, false) => "does not hold, and is not promised",
            (Finding::Unknown, _) => "not known",
        };
        say!("  {:<24} {finding}", title(verdict.property));
    }
    for verdict in &outcome.verdicts {
        if let Some(story) = &verdict.story {
            say!("\n{}:\n{story}", title(verdict.property));
        }
    }
}

fn title(property: Property) -> &'static str {
    match property {
        Property::MutualExclusion => "mutual exclusion",
        Property::NoDeadlock => "no deadlock",
        Property::NoStarvation => "no starvation",
        Property::FirstComeFirstServed => "first come, first served",
    }
}
