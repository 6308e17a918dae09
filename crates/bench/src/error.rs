//! The errors of a bench.

use crate::engine::NotBuilt;
use crate::process::ServerError;
use crate::servers::NetError;
use crate::worker::WorkerError;
use std::io;
use std::path::{Path, PathBuf};

/// An error of any type, as the source of another.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a bench ended early.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Mutual exclusion was violated.
    #[error("{engine} violated mutual exclusion in {workload}: {what}; its figures are void")]
    Violated {
        /// The name of the engine.
        engine: String,
        /// The name of the workload.
        workload: String,
        /// A description of the violation.
        what: String,
    },
    /// Programs are missing: for each engine, the required program and its Debian package.
    #[error("{}", joined(.0))]
    Missing(Vec<Missing>),
    /// This build does not contain the clients of some engines.
    #[error("{}", joined(.0))]
    NotBuilt(Vec<NotBuilt>),
    /// One run failed.
    #[error("{engine}, {workload}: {source}")]
    Run {
        /// The name of the engine.
        engine: &'static str,
        /// The name of the workload.
        workload: &'static str,
        /// The underlying error.
        source: Box<BenchError>,
    },
    /// The servers of an engine did not start.
    #[error("{engine} failed to start: {source}")]
    Start {
        /// The name of the engine.
        engine: &'static str,
        /// The underlying error.
        source: ServerError,
    },
    /// A server failed.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A process of clients failed.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The temporary folder of the servers cannot be made.
    #[error("cannot make a folder for servers: {0}")]
    FolderOfServers(#[source] io::Error),
    /// The temporary folder of members cannot be made.
    #[error("{0}")]
    FolderOfMembers(#[source] io::Error),
    /// Another folder or file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// There are no free ports.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The join token of the members cannot be created.
    #[error("{0}")]
    JoinToken(#[source] BoxError),
    /// A member inside this process failed.
    #[error(transparent)]
    Member(#[from] lockkeeper_cluster::Error),
    /// A member inside this process stopped before it was in the view of all members.
    #[error("a member stopped")]
    MemberStopped,
    /// A lock that is held during the whole measurement was lost.
    #[error("a lock that was held was lost during the measurement")]
    HoldLost,
    /// The process that holds a lock cannot be started.
    #[error("cannot start the holder: {0}")]
    Holder(#[source] io::Error),
    /// The servers do not list the holder or the waiter in time.
    #[error("the holder does not have the lock, or the waiter does not wait for it, after {} s", within.as_secs())]
    NotWaiting {
        /// The time that they had.
        within: std::time::Duration,
    },
    /// The library's client failed.
    #[error(transparent)]
    Client(#[from] lockkeeper::Error),
    /// Latencies cannot be recorded.
    #[error("{0}")]
    Histogram(#[from] hdrhistogram::errors::CreationError),
    /// The simulation failed.
    #[error(transparent)]
    Simulation(#[from] lockkeeper_lab::Error),
}

/// Errors of one kind as one text.
fn joined<T: ToString>(errors: &[T]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A program that is not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{engine} needs {program} (Debian: apt-get install {package})")]
pub struct Missing {
    /// The engine that needs it.
    pub engine: String,
    /// The name of the program.
    pub program: String,
    /// The Debian package that contains it.
    pub package: &'static str,
}

/// A file or a folder that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A folder cannot be made.
    #[error("cannot make {path}: {source}")]
    MakeFolder {
        /// The path of the folder.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
}

impl FileError {
    /// Makes a folder, and those around it.
    pub(crate) fn make_folder(path: &Path) -> Result<(), FileError> {
        std::fs::create_dir_all(path).map_err(|source| FileError::MakeFolder { path: path.into(), source })
    }

    /// Makes the error of a file that cannot be written.
    pub(crate) fn write(path: &Path) -> impl Fn(io::Error) -> FileError {
        |source| FileError::Write { path: path.into(), source }
    }
}
