//! Errors. Each message states what happened and what to do next.

use crate::EngineUrl;
use std::path::{Path, PathBuf};

/// The reason why an operation on a lock failed.
///
/// A lock that is held by another client is not an error: `try_acquire` and the timed acquires return `None`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of a lock violates a rule.
    #[error("bad lock name: {0}")]
    BadName(String),
    /// The URL of the engine cannot be used.
    #[error("bad engine URL `{url}`: {reason}")]
    BadUrl {
        /// The URL as given; it is shown without its secrets.
        url: EngineUrl,
        /// The defect, without parts of the URL that may be secrets.
        reason: String,
    },
    /// An option of a request is out of range.
    #[error("bad option: {0}")]
    BadOption(String),
    /// The engine does not support this feature.
    #[error("{feature}: not supported by {engine}")]
    NotSupported {
        /// The engine's name, as in its URL.
        engine: &'static str,
        /// The requested feature, perhaps with a hint.
        feature: String,
    },
    /// The name is in use for another type of lock (a mutex, or a semaphore with another number of permits).
    #[error("`{name}` is in use as {used_as}, and was requested as {asked_as}; use one type per name")]
    KindMismatch {
        /// The lock's name.
        name: String,
        /// The type of lock for which the name is in use.
        used_as: String,
        /// The type of lock that was requested.
        asked_as: String,
    },
    /// The caller's own session ended while it waited; its request is no longer queued.
    #[error("the session with {engine} ended while waiting for `{name}`: {reason}")]
    SessionLost {
        /// The engine's name.
        engine: &'static str,
        /// The lock's name.
        name: String,
        /// The reason for the end of the session.
        reason: String,
    },
    /// The hold ended before it was released.
    #[error("the lock `{name}` was lost: {reason}")]
    Lost {
        /// The lock's name.
        name: String,
        /// The reason for the loss.
        reason: String,
    },
    /// The server cannot be reached or rejects requests.
    #[error("{engine} cannot be used: {reason}")]
    Unavailable {
        /// The engine's name.
        engine: &'static str,
        /// The failure, without credentials.
        reason: String,
    },
    /// The state directory is not safe to use.
    #[error("the directory {} is not safe for locks: {reason}", path.display())]
    UnsafeDirectory {
        /// The directory.
        path: PathBuf,
        /// The users that could interfere, and what to change.
        reason: String,
    },
    /// State on disk is damaged, and continuing with a guess would be unsafe.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage, and what to do.
        reason: String,
    },
    /// A system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The failed action, as a verb phrase.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The reason alone, for a message that names the engine itself.
    #[allow(dead_code, reason = "for the engines with servers")]
    pub(crate) fn into_reason(self) -> String {
        match self {
            Error::Unavailable { reason, .. } => reason,
            other => other.to_string(),
        }
    }

    /// Whether the error is in the request itself, rather than in the environment.
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
