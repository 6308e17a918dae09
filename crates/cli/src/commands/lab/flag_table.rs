//! The tables of flags of `check`, `sim` and `compare`, and the jobs to which each flag applies.
//!
//! These commands do several jobs: `check` explores message-passing algorithms, elections, algorithms for shared
//! registers, or whole clusters. A flag that a job does not use is an error. Otherwise the result of `check bakery --crashes 1`
//! would seem to cover crashes.
//!
//! The tables below are complete: a test compares them with the flags that `--help` shows. [`Applied`] compares them
//! with the command line.

use crate::exit::CliError;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches, Id};
use std::process::ExitCode;

/// A job of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// One message-passing algorithm, or a mutant of one.
    Algorithm,
    /// One algorithm for shared registers.
    Registers,
    /// `check` of one election, or of a mutant of one.
    ElectionModel,
    /// `check --all`.
    All,
    /// `check --mutants`.
    Mutants,
    /// `--cluster`.
    Cluster,
    /// `sim --election`.
    Election,
    /// `compare --elections`.
    Elections,
    /// `sim --scenario`.
    Scenario,
}

use Job::{Algorithm, All, Cluster, Election, ElectionModel, Elections, Mutants, Registers, Scenario};

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Algorithm => "message-passing algorithms",
            Registers => "algorithms for shared registers",
            ElectionModel => "elections",
            All => "--all",
            Mutants => "--mutants",
            Cluster => "--cluster",
            Election => "--election",
            Elections => "--elections",
            Scenario => "--scenario",
        })
    }
}

/// A flag, by its long name, and the jobs that use it.
pub type Row = (&'static str, &'static [Job]);

/// The flags of `check`.
pub const CHECK: &[Row] = &[
    ("all", &[All]),
    ("mutants", &[Mutants]),
    ("sites", &[Algorithm, ElectionModel, Registers, All]),
    ("requests", &[Algorithm, All]),
    ("forever", &[Algorithm, Registers, All]),
    ("non-fifo", &[Algorithm, ElectionModel, All]),
    ("fifo", &[Algorithm, ElectionModel, All]),
    ("crashes", &[Algorithm, ElectionModel, All, Cluster]),
    ("restarts", &[Algorithm, All, Cluster]),
    ("losses", &[Algorithm, All]),
    ("duplicates", &[Algorithm, All]),
    ("forgets", &[Algorithm, All]),
    ("suspicions", &[Algorithm, All]),
    ("holder", &[Algorithm, All]),
    ("only", &[Algorithm, ElectionModel, Registers, All]),
    ("set", &[Algorithm, ElectionModel]),
    ("initiators", &[ElectionModel]),
    ("partition", &[ElectionModel]),
    ("short-timeouts", &[ElectionModel]),
    ("safe-registers", &[Registers]),
    ("regular-registers", &[Registers]),
    ("tickets", &[Registers]),
    ("json", &[Algorithm, ElectionModel, Registers, All, Mutants, Cluster]),
    ("svg", &[Algorithm, ElectionModel]),
    ("trace", &[Algorithm, ElectionModel]),
    ("tla", &[Algorithm, Registers]),
    ("max-states", &[Algorithm, ElectionModel, Registers, All, Cluster]),
    ("max-depth", &[Algorithm, ElectionModel, Registers, All, Cluster]),
    ("max-memory", &[Algorithm, ElectionModel, Registers, All, Cluster]),
    ("max-seconds", &[Algorithm, ElectionModel, Registers, All, Mutants, Cluster]),
    ("threads", &[Algorithm, ElectionModel, Registers, All]),
    ("full", &[Algorithm, All]),
    ("symmetry", &[Algorithm]),
    ("cluster", &[Cluster]),
    ("members", &[Cluster]),
    ("units", &[Cluster]),
    ("leader-changes", &[Cluster]),
    ("sleeps", &[Cluster]),
    ("lock-requests", &[Cluster]),
    ("recorded-hold", &[Cluster]),
    ("granted-hold", &[Cluster]),
    ("contacts", &[Cluster]),
    ("holder-releases", &[Cluster]),
    ("holder-gone", &[Cluster]),
    ("leaves", &[Cluster]),
    ("readers", &[Cluster]),
    ("views", &[Cluster]),
    ("late-leases", &[Cluster]),
    ("drift", &[Cluster]),
    ("service", &[Cluster]),
    ("bug", &[Cluster]),
];

/// The flags of `sim`.
pub const SIM: &[Row] = &[
    ("algorithm", &[Algorithm, Cluster]),
    ("election", &[Election]),
    ("initiator", &[Election]),
    ("sites", &[Algorithm, Election]),
    ("load", &[Algorithm]),
    ("entries", &[Algorithm]),
    ("warmup", &[Algorithm]),
    ("set", &[Algorithm, Election]),
    ("delay", &[Algorithm, Election]),
    ("cs", &[Algorithm]),
    ("service", &[Algorithm, Election]),
    ("service-at", &[Algorithm, Election]),
    ("non-fifo", &[Algorithm, Election]),
    ("loss", &[Algorithm, Election]),
    ("duplicate", &[Algorithm, Election]),
    ("link", &[Algorithm, Election]),
    ("crash", &[Algorithm, Election]),
    ("recover", &[Algorithm, Election]),
    ("pause", &[Algorithm, Election]),
    ("partition", &[Algorithm, Election]),
    ("detector", &[Algorithm, Election]),
    ("holder", &[Algorithm]),
    ("readers", &[Algorithm]),
    ("seed", &[Algorithm, Election, Scenario, Cluster]),
    ("seeds", &[Algorithm, Election, Scenario, Cluster]),
    ("scenario", &[Scenario]),
    ("cluster", &[Cluster]),
    ("members", &[Cluster]),
    ("faults", &[Cluster]),
    ("bug", &[Cluster]),
    ("json", &[Algorithm, Election, Scenario, Cluster]),
    ("trace", &[Algorithm, Election, Scenario, Cluster]),
];

/// The flags of `compare`.
pub const COMPARE: &[Row] = &[
    ("algorithms", &[Algorithm]),
    ("elections", &[Elections]),
    ("sites", &[Algorithm, Elections]),
    ("load", &[Algorithm]),
    ("seeds", &[Algorithm]),
    ("cs", &[Algorithm]),
    ("set", &[Algorithm]),
    ("readers", &[Algorithm]),
    ("json", &[Algorithm, Elections]),
    ("csv", &[Algorithm]),
    ("plots", &[Algorithm]),
    ("html", &[Algorithm]),
];

/// A command with several jobs.
pub trait Jobs: Args {
    /// All flags of the command.
    const FLAGS: &'static [Row];

    /// The job that this command line selects.
    fn job(&self) -> Job;

    /// The name of the job in errors.
    fn subject(&self) -> String {
        self.job().to_string()
    }
}

/// A flag that the job of the command line does not use.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{flag} cannot be used with {subject}: it applies to {}", listed(jobs))]
pub struct MisplacedFlag {
    flag: &'static str,
    /// The name of the job of the command line.
    subject: String,
    /// The jobs that use the flag.
    jobs: &'static [Job],
}

/// The names of jobs as the end of a sentence.
fn listed(jobs: &[Job]) -> String {
    let names: Vec<String> = jobs.iter().map(Job::to_string).collect();
    match names.as_slice() {
        [] => String::from("nothing"),
        [one] => one.clone(),
        [start @ .., last] => format!("{} and {last}", start.join(", ")),
    }
}

/// The arguments of a command, and an error if a flag on the command line does not apply to the job.
pub struct Applied<T> {
    args: T,
    misplaced: Option<MisplacedFlag>,
}

impl<T: Jobs> Applied<T> {
    /// Runs the command, or rejects it with the exit code for wrong usage.
    pub fn run(self, run: impl FnOnce(T) -> ExitCode) -> ExitCode {
        match self.misplaced {
            Some(error) => CliError::usage(error).report(),
            None => run(self.args),
        }
    }
}

/// The error for the first of these flags that the job does not use.
fn misplaced(flags: &[Row], given: &[&str], job: Job, subject: &str) -> Option<MisplacedFlag> {
    let (flag, jobs) = flags.iter().find(|(flag, jobs)| given.contains(flag) && !jobs.contains(&job))?;
    Some(MisplacedFlag { flag, subject: subject.into(), jobs })
}

impl<T: Jobs> FromArgMatches for Applied<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches_mut(&mut matches.clone())
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |flag: &str| {
            let id = flag.replace('-', "_");
            matches.value_source(&id) == Some(ValueSource::CommandLine)
        };
        let given: Vec<&str> = T::FLAGS.iter().map(|(flag, _)| *flag).filter(|flag| is_given(flag)).collect();
        let args = T::from_arg_matches_mut(matches)?;
        let misplaced = misplaced(T::FLAGS, &given, args.job(), &args.subject());
        Ok(Self { args, misplaced })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Jobs> Args for Applied<T> {
    fn augment_args(command: Command) -> Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }

    fn group_id() -> Option<Id> {
        T::group_id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misplaced_flag_is_named_with_the_jobs_that_use_it() {
        let error = |given: &[&str], job, subject| {
            misplaced(CHECK, given, job, subject).map(|error| error.to_string())
        };
        assert_eq!(error(&["sites", "max-states"], Registers, "bakery"), None);
        assert_eq!(
            error(&["sites", "crashes"], Registers, "bakery").as_deref(),
            Some(
                "--crashes cannot be used with bakery: it applies to message-passing algorithms, elections, --all and \
                 --cluster"
            )
        );
        assert_eq!(
            error(&["safe-registers"], Algorithm, "lamport").as_deref(),
            Some(
                "--safe-registers cannot be used with lamport: it applies to algorithms for shared registers"
            )
        );
    }
}
