//! The commands of the lab, in builds with the feature `lab`.

pub mod table;

mod causality;
mod check;
mod check_cluster;
mod check_many;
mod choose;
mod compare;
mod election;
mod explain;
mod explain_registers;
mod flag_table;
mod flp;
mod lab_error;
mod page;
mod progress;
mod proof;
mod properties;
mod quiz;
mod quorums;
mod replay;
mod run_text;
mod scenarios;
mod sim;
mod sim_cluster;
mod stabilise;
mod step;
mod step_registers;
mod threads;

use flag_table::Applied;
use std::process::ExitCode;

/// A command of the lab.
#[derive(clap::Subcommand)]
pub enum LabCommand {
    Sim(Box<Applied<sim::Sim>>),
    Scenarios(scenarios::Scenarios),
    Check(Box<Applied<check::Check>>),
    Replay(replay::Replay),
    Compare(Applied<compare::Compare>),
    Properties(properties::Properties),
    Explain(explain::Explain),
    Choose(choose::Choose),
    Quorums(quorums::Quorums),
    Stabilise(stabilise::Stabilise),
    Threads(threads::Threads),
    Lab(page::Lab),
    Step(step::Step),
    Quiz(quiz::Quiz),
    Flp(flp::Flp),
    Causality(causality::Causality),
    Proof(proof::Proof),
}

impl LabCommand {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        match self {
            Self::Sim(command) => command.run(sim::Sim::run),
            Self::Scenarios(command) => command.run(),
            Self::Check(command) => command.run(check::Check::run),
            Self::Replay(command) => command.run(),
            Self::Compare(command) => command.run(compare::Compare::run),
            Self::Properties(command) => command.run(),
            Self::Explain(command) => command.run(),
            Self::Choose(command) => command.run(),
            Self::Quorums(command) => command.run(),
            Self::Stabilise(command) => command.run(),
            Self::Threads(command) => command.run(),
            Self::Lab(command) => command.run(),
            Self::Step(command) => command.run(),
            Self::Quiz(command) => command.run(),
            Self::Flp(command) => command.run(),
            Self::Causality(command) => command.run(),
            Self::Proof(command) => command.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LabCommand;
    use super::flag_table::{CHECK, COMPARE, SIM};
    use clap::Subcommand;

    #[test]
    fn every_flag_is_in_the_table_of_its_command() {
        let cli = LabCommand::augment_subcommands(clap::Command::new("lockkeeper"));
        for (name, table) in [("check", CHECK), ("sim", SIM), ("compare", COMPARE)] {
            let command = cli.find_subcommand(name).expect("the command exists");
            let mut flags: Vec<&str> = command.get_arguments().filter_map(|flag| flag.get_long()).collect();
            flags.sort_unstable();
            let mut known: Vec<&str> = table.iter().map(|(flag, _)| *flag).collect();
            known.sort_unstable();
            assert_eq!(flags, known, "the flags of `{name}`, and those of its table in flag_table.rs");
        }
    }
}
