//! `lockkeeper check bakery`: algorithms for shared memory.

use super::check::{self, grouped};
use crate::{exit, print_line};
use lockkeeper_lab::property::Property as MessageProperty;
use lockkeeper_lab::registers::{self, Finding, Limits, Outcome, Property, Verdict};
use std::process::ExitCode;

/// The parameters of a check of an algorithm for registers.
pub struct RegistersQuestion<'a> {
    pub algorithm: &'a str,
    pub processes: usize,
    pub flickering: bool,
    /// The only property to check, as the flag names it.
    pub only: Option<MessageProperty>,
    pub limits: Limits,
}

/// Checks one algorithm for registers.
pub fn check_registers(question: &RegistersQuestion<'_>, as_json: bool) -> ExitCode {
    let RegistersQuestion { algorithm, processes, flickering, limits, .. } = *question;
    let only = match question.only.map(property).transpose() {
        Ok(only) => only,
        Err(what) => return exit::fail(exit::USAGE, &what),
    };
    let mut outcome = match registers::check(algorithm, processes, flickering, limits) {
        Ok(outcome) => outcome,
        Err(error) => return exit::fail(exit::USAGE, &error),
    };
    outcome.verdicts.retain(|verdict| only.is_none_or(|only| only == verdict.property));
    if as_json {
        print_line!("{}", serde_json::to_string(&outcome).expect("an outcome is plain data"));
    } else {
        print(&outcome);
    }
    // A property named by `--only` counts even if the algorithm's paper does not promise it.
    let counts = |verdict: &&Verdict| verdict.promised || only.is_some();
    let found =
        |finding: Finding| outcome.verdicts.iter().filter(counts).any(|verdict| verdict.finding == finding);
    match (found(Finding::Violated), found(Finding::Unknown)) {
        (true, _) => ExitCode::from(exit::VIOLATED),
        (false, true) => ExitCode::from(exit::UNFINISHED),
        (false, false) => ExitCode::SUCCESS,
    }
}

/// The property of registers that `--only` names.
fn property(asked: MessageProperty) -> Result<Property, String> {
    match asked {
        MessageProperty::MutualExclusion => Ok(Property::MutualExclusion),
        MessageProperty::NoDeadlock => Ok(Property::NoDeadlock),
        MessageProperty::NoStarvation => Ok(Property::NoStarvation),
        other => Err(format!(
            "--only {} cannot be used with algorithms for shared registers: they are checked for mutual-exclusion, \
             no-deadlock and no-starvation",
            check::title(other).replace(' ', "-")
        )),
    }
}

fn print(outcome: &Outcome) {
    let registers = if outcome.flickering { "safe" } else { "atomic" };
    print_line!(
        "{}, {} processes that ask again and again, {registers} registers",
        outcome.algorithm,
        outcome.processes
    );
    let tickets = outcome.tickets.map(|most| format!(", tickets up to {most}")).unwrap_or_default();
    print_line!(
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
        print_line!("  {:<24} {finding}", title(verdict.property));
    }
    for verdict in &outcome.verdicts {
        if let Some(story) = &verdict.story {
            print_line!("\n{}:\n{story}", title(verdict.property));
        }
    }
    if !outcome.complete {
        print_line!("\nThe budget was reached: not every state deeper than {} was seen.", outcome.depth);
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
