//! `lockkeeper`: distributed mutual exclusion on the command line.
//!
//! This file only dispatches to the commands; each command is a module under `commands`. The library exists so that the
//! modules have unit tests beside them; its only user is the binary.

mod commands;
mod exit;
mod file_error;
mod log;
mod output;
mod png;
mod progress;
mod table;

use clap::{CommandFactory, Parser, Subcommand};
use commands::flag_table::Applied;
use std::process::ExitCode;

/// Distributed mutual exclusion: run commands one at a time, and study the algorithms behind it.
#[derive(Parser)]
#[command(name = "lockkeeper", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Args),
    #[command(name = commands::supervise::DIE_WITH_PARENT, hide = true)]
    DieWithParent(commands::supervise::DieWithParent),
    Elect(commands::elect::Args),
    Locks(commands::locks::Args),
    Up(Box<commands::up::Up>),
    Join(Box<commands::up::Join>),
    Cluster(commands::cluster::Cluster),
    Members(commands::operator::Members),
    Status(commands::operator::Status),
    Release(commands::operator::Release),
    Leave(commands::operator::Leave),
    Token(commands::token::Token),
    Bench(commands::bench::Bench),
    Demo(commands::demo::Demo),
    Completions(commands::generate::Completions),
    Man(commands::generate::Man),
    Algorithms(commands::algorithms::Algorithms),
    Sim(Box<Applied<commands::sim::Sim>>),
    Scenarios(commands::scenarios::Scenarios),
    Check(Box<Applied<commands::check::Check>>),
    Replay(commands::replay::Replay),
    Compare(Applied<commands::compare::Compare>),
    Properties(commands::properties::Properties),
    Explain(commands::explain::Explain),
    Choose(commands::choose::Choose),
    Quorums(commands::quorums::Quorums),
    Threads(commands::threads::Threads),
    Lab(commands::lab::Lab),
    Step(commands::step::Step),
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    match cli.command {
        Command::Run(args) => commands::run::run(args),
        Command::DieWithParent(args) => commands::supervise::die_with_parent(args),
        Command::Elect(args) => commands::elect::run(args),
        Command::Locks(args) => commands::locks::run(args),
        Command::Up(command) => command.run(),
        Command::Join(command) => command.run(),
        Command::Cluster(command) => command.run(),
        Command::Members(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::Release(command) => command.run(),
        Command::Leave(command) => command.run(),
        Command::Token(command) => command.run(),
        Command::Bench(command) => command.run(),
        Command::Demo(command) => command.run(),
        Command::Completions(args) => commands::generate::completions(&args, Cli::command()),
        Command::Man(args) => commands::generate::man(&args, Cli::command()),
        Command::Algorithms(command) => command.run(),
        Command::Sim(command) => command.run(commands::sim::Sim::run),
        Command::Scenarios(command) => command.run(),
        Command::Check(command) => command.run(commands::check::Check::run),
        Command::Replay(command) => command.run(),
        Command::Compare(command) => command.run(commands::compare::Compare::run),
        Command::Properties(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Choose(command) => command.run(),
        Command::Quorums(command) => command.run(),
        Command::Threads(command) => command.run(),
        Command::Lab(command) => command.run(),
        Command::Step(command) => command.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commands::flag_table::{CHECK, COMPARE, SIM};

    #[test]
    fn every_flag_is_in_the_table_of_its_command() {
        let cli = Cli::command();
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
