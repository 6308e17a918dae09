//! The tables of flags of `check`, `sim` and `compare`, and the jobs to which each flag applies.
//!
//! These commands do several jobs: `check` explores message-passing algorithms, algorithms for shared registers, or
//! whole clusters. A flag that a job does not use is an error. Otherwise the result of `check bakery --crashes 1`
//! would seem to cover crashes.
//!
//! The tables below are complete: a test compares them with the flags that `--help` shows. [`Applied`] compares them
//! with the command line.

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

use Job::{Algorithm, All, Cluster, Election, Elections, Mutants, Registers, Scenario};

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Algorithm => "message-passing algorithms",
            Registers => "algorithms for shared registers",
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
    ("sites", &[Algorithm, Registers, All]),
    ("requests", &[Algorithm, All]),
    ("forever", &[Algorithm, All]),
    ("non-fifo", &[Algorithm, All]),
    ("fifo", &[Algorithm, All]),
    ("crashes", &[Algorithm, All, Cluster]),
    ("restarts", &[Algorithm, All, Cluster]),
    ("losses", &[Algorithm, All]),
    ("duplicates", &[Algorithm, All]),
    ("forgets", &[Algorithm, All]),
    ("suspicions", &[Algorithm, All]),
    ("holder", &[Algorithm, All]),
    ("only", &[Algorithm, Registers, All]),
    ("set", &[Algorithm]),
    ("safe-registers", &[Registers]),
    ("json", &[Algorithm, Registers, All, Mutants, Cluster]),
    ("svg", &[Algorithm]),
    ("trace", &[Algorithm]),
    ("max-states", &[Algorithm, Registers, All, Cluster]),
    ("max-seconds", &[Algorithm, All, Cluster]),
    ("threads", &[Algorithm, All]),
    ("full", &[Algorithm, All]),
    ("cluster", &[Cluster]),
    ("members", &[Cluster]),
    ("units", &[Cluster]),
    ("leader-changes", &[Cluster]),
    ("sleeps", &[Cluster]),
    ("lock-requests", &[Cluster]),
    ("readers", &[Cluster]),
    ("views", &[Cluster]),
    ("late-leases", &[Cluster]),
    ("drift", &[Cluster]),
    ("service", &[Cluster]),
    ("flaw", &[Cluster]),
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
    ("flaw", &[Cluster]),
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
}

/// The arguments of a command, and an error if a flag on the command line does not apply to the job.
pub struct Applied<T> {
    args: T,
    misplaced: Option<String>,
}

impl<T: Jobs> Applied<T> {
    /// Runs the command, or rejects it with the exit code for wrong usage.
    pub fn run(self, run: impl FnOnce(T) -> ExitCode) -> ExitCode {
        match self.misplaced {
            Some(what) => crate::exit::fail(crate::exit::USAGE, &what),
            None => run(self.args),
        }
    }
}

/// The error for the first of these flags that the job does not use.
fn misplaced(flags: &[Row], given: &[&str], job: Job) -> Option<String> {
    let (flag, jobs) = flags.iter().find(|(flag, jobs)| given.contains(flag) && !jobs.contains(&job))?;
    let names: Vec<String> = jobs.iter().map(Job::to_string).collect();
    let applies = match names.as_slice() {
        [] => String::from("nothing"),
        [one] => one.clone(),
        [start @ .., last] => format!("{} and {last}", start.join(", ")),
    };
    Some(format!("--{flag} cannot be used with {job}: it applies to {applies}"))
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
        let misplaced = misplaced(T::FLAGS, &given, args.job());
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
        let error = |given: &[&str], job| misplaced(CHECK, given, job);
        assert_eq!(error(&["sites", "max-states"], Registers), None);
        assert_eq!(
            error(&["sites", "crashes"], Registers).as_deref(),
            Some(
                "--crashes cannot be used with algorithms for shared registers: it applies to message-passing \
                 algorithms, --all and --cluster"
            )
        );
        assert_eq!(
            error(&["safe-registers"], Algorithm).as_deref(),
            Some(
                "--safe-registers cannot be used with message-passing algorithms: it applies to algorithms for shared \
                 registers"
            )
        );
    }
}
