//! Errors of the commands that run algorithms in the lab.

use super::sim::AlgorithmError;
use crate::exit::{BoxError, CliError};
use crate::file_error::FileError;
use lockkeeper_cluster_lab::SimulationError;
use lockkeeper_lab::Error;
use lockkeeper_lab::simulator::scenario::ScenarioError;
use lockkeeper_lab::trace::UnknownFormat;

/// The reason why a command of the lab failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The algorithm does not exist, or is not one for this command.
    #[error(transparent)]
    Algorithm(#[from] AlgorithmError),
    /// A setting has no value.
    #[error("--set takes NAME=VALUE, not '{setting}'")]
    Setting {
        /// The setting as given.
        setting: String,
    },
    /// The service time of one site has no value.
    #[error("--service-at takes SITE=T, not '{text}'")]
    ServiceAt {
        /// The text as given.
        text: String,
    },
    /// A flag names a site that does not exist.
    #[error("there is no site '{text}': sites are numbered from 1 to {processes}")]
    NoSite {
        /// The site as given.
        text: String,
        /// The number of sites.
        processes: usize,
    },
    /// The lab rejects the value of a flag.
    #[error("{0}")]
    Parameter(#[source] BoxError),
    /// The scenario cannot be read.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The name of the trace file has no known extension.
    #[error(transparent)]
    TraceFormat(#[from] UnknownFormat),
    /// A trace was requested of several runs.
    #[error("a trace tells one run: leave --seeds out")]
    TraceOfSeveralRuns,
    /// The trace cannot be written.
    #[error("cannot write the trace: {0}")]
    Trace(#[source] FileError),
    /// The saved trace cannot be read.
    #[error(transparent)]
    SavedTrace(FileError),
    /// The first line of a saved trace has another command than `sim`.
    #[error("this is no command of 'lockkeeper sim': {command}")]
    NoSimCommand {
        /// The command.
        command: String,
    },
    /// The first line of a saved trace has a command of another version.
    #[error("the trace was made by a command that this version does not take: {0}")]
    OtherVersion(#[source] clap::Error),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] Error),
    /// The run of a cluster failed.
    #[error(transparent)]
    Cluster(#[from] SimulationError),
}

impl LabError {
    /// Makes the error for a value that the lab rejects.
    pub fn parameter(error: impl Into<BoxError>) -> Self {
        Self::Parameter(error.into())
    }

    /// The error of a command whose files are not only traces: of a failure to write, it shows the file and the reason
    /// alone.
    pub fn of_any_file(self) -> CliError {
        match self {
            Self::Trace(error) => CliError::io(error),
            Self::Run(Error::Trace(error)) => CliError::io(error),
            other => other.into(),
        }
    }
}

impl From<LabError> for CliError {
    fn from(error: LabError) -> Self {
        match error {
            LabError::Run(Error::Interrupted) | LabError::Cluster(SimulationError::Interrupted) => {
                Self::Interrupted
            }
            LabError::Trace(_) | LabError::Run(Error::Trace(_)) => Self::io(error),
            other => Self::usage(other),
        }
    }
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        LabError::Run(error).into()
    }
}
