//! What can go wrong, each with a sentence that says what happened and what to do next.

use crate::EngineUrl;
use std::path::{Path, PathBuf};

/// Why an operation on a lock failed.
///
/// "Somebody else holds it" is not an error: `try_acquire` and the timed acquires answer `None`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of a lock breaks a rule.
    #[error("bad lock name: {0}")]
    BadName(String),
    /// The URL of the engine cannot be used.
    #[error("bad engine URL `{url}`: {reason}")]
    BadUrl {
        /// The URL as given; it is shown without its secrets.
        url: EngineUrl,
        /// What is wrong with it, without parts of it that may be secrets.
        reason: String,
    },
    /// An option of a request is out of range.
    #[error("bad option: {0}")]
    BadOption(String),
    /// The engine does not offer this.
    #[error("{feature}: not supported by {engine}")]
    NotSupported {
        /// The engine's name, as in its URL.
        engine: &'static str,
        /// What was asked for, perhaps with a hint.
        feature: String,
    },
    /// The name is in use as another kind of lock.
    #[error("`{name}` is in use as {used_as}, and was asked for as {asked_as}; use one kind per name")]
    KindMismatch {
        /// The lock's name.
        name: String,
        /// What its present users take it for.
        used_as: String,
        /// What this request takes it for.
        asked_as: String,
    },
    /// The caller's own session ended while it waited; its place in the queue is gone.
    #[error("the session with {engine} ended while waiting for `{name}`: {reason}")]
    SessionLost {
        /// The engine's name.
        engine: &'static str,
        /// The lock's name.
        name: String,
        /// What ended it.
        reason: String,
    },
    /// The hold ended before it was released.
    #[error("the lock `{name}` was lost: {reason}")]
    Lost {
        /// The lock's name.
        name: String,
        /// What ended it.
        reason: String,
    },
    /// The server cannot be reached or refuses to serve.
    #[error("{engine} cannot be used: {reason}")]
    Unavailable {
        /// The engine's name.
        engine: &'static str,
        /// What happened, without credentials.
        reason: String,
    },
    /// The state directory is not safe to use.
    #[error("the directory {} is not safe for locks: {reason}", path.display())]
    UnsafeDirectory {
        /// The directory.
        path: PathBuf,
        /// Who could interfere, and what to change.
        reason: String,
    },
    /// State on disk is damaged, and guessing would be unsafe.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether the caller asked for something wrong, rather than the world being in the way.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Error::BadName(_)
                | Error::BadUrl { .. }
                | Error::BadOption(_)
                | Error::NotSupported { .. }
                | Error::KindMismatch { .. }
        )
    }

    pub(crate) fn io(
        action: &'static str,
        path: impl AsRef<Path>,
        source: impl Into<std::io::Error>,
    ) -> Error {
        Error::Io { action, path: path.as_ref().to_owned(), source: source.into() }
    }
}
