//! Errors. Each message states what happened and what to do next.

use crate::{EngineUrl, Loss};
use std::path::{Path, PathBuf};

/// The error of a library or of the operating system that caused an [`Error`].
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The reason why an operation on a lock failed.
///
/// A lock that is held by another client is not an error: `try_acquire` and the timed acquires return `None`.
///
/// The variants are what a caller can do about the error: correct the request ([`is_usage`](Self::is_usage)), give the
/// client other credentials or rights ([`Unauthenticated`](Self::Unauthenticated),
/// [`PermissionDenied`](Self::PermissionDenied)), ask for less ([`LimitExceeded`](Self::LimitExceeded)), try again later
/// ([`Unavailable`](Self::Unavailable)), or stop the work that the lock protects ([`Lost`](Self::Lost)). The message is
/// complete without that of the `source()`.
///
/// ```no_run
/// # async fn example(locks: lockkeeper::Lockkeeper) -> lockkeeper::Result<()> {
/// use lockkeeper::Error;
/// match locks.mutex("orders/42").acquire().await {
///     Ok(guard) => guard.release().await?,
///     Err(Error::Unavailable { reason, .. }) => eprintln!("later: {reason}"),
///     Err(error @ (Error::Unauthenticated { .. } | Error::PermissionDenied { .. })) => {
///         eprintln!("an operator has to act: {error}");
///     }
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
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
    Unsupported {
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
        reason: Loss,
    },
    /// The server wants credentials, or does not accept those that it got: a user and password, a token, or a
    /// certificate.
    #[error("{engine} does not accept this client: {reason}")]
    Unauthenticated {
        /// The engine's name.
        engine: &'static str,
        /// The rejection, without credentials.
        reason: String,
        /// The error that led to this one.
        source: Option<Cause>,
    },
    /// The server knows the client and does not allow it this operation.
    #[error("{engine} denies permission: {reason}")]
    PermissionDenied {
        /// The engine's name.
        engine: &'static str,
        /// The operation that was denied, and the missing right if the server names it.
        reason: String,
        /// The error that led to this one.
        source: Option<Cause>,
    },
    /// The request exceeds a limit of the server: of its clients, connections, locks, or requests in a time.
    #[error("{engine} has reached a limit: {reason}")]
    LimitExceeded {
        /// The engine's name.
        engine: &'static str,
        /// The limit.
        reason: String,
        /// The error that led to this one.
        source: Option<Cause>,
    },
    /// The server cannot be reached, does not answer in time, or does not serve requests at the moment.
    #[error("{engine} cannot be used: {reason}")]
    Unavailable {
        /// The engine's name.
        engine: &'static str,
        /// The failure, without credentials.
        reason: String,
        /// The error that led to this one.
        source: Option<Cause>,
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

/// The kinds of a server's rejections, each with a variant of [`Error`].
#[allow(dead_code, reason = "for the engines with servers")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectionKind {
    Unauthenticated,
    PermissionDenied,
    LimitExceeded,
    Unavailable,
}

#[allow(dead_code, reason = "for the engines with servers")]
impl RejectionKind {
    /// The kind of an error, if it is the rejection or failure of a server.
    pub fn of(error: &Error) -> Option<RejectionKind> {
        match error {
            Error::Unauthenticated { .. } => Some(Self::Unauthenticated),
            Error::PermissionDenied { .. } => Some(Self::PermissionDenied),
            Error::LimitExceeded { .. } => Some(Self::LimitExceeded),
            Error::Unavailable { .. } => Some(Self::Unavailable),
            _ => None,
        }
    }

    /// The error of this kind.
    pub fn error(self, engine: &'static str, reason: impl Into<String>) -> Error {
        let (reason, source) = (reason.into(), None);
        match self {
            Self::Unauthenticated => Error::Unauthenticated { engine, reason, source },
            Self::PermissionDenied => Error::PermissionDenied { engine, reason, source },
            Self::LimitExceeded => Error::LimitExceeded { engine, reason, source },
            Self::Unavailable => Error::Unavailable { engine, reason, source },
        }
    }
}

impl Error {
    pub(crate) fn unavailable(engine: &'static str, reason: impl Into<String>) -> Error {
        RejectionKind::Unavailable.error(engine, reason)
    }

    /// Adds the error that led to this one, if this error is the rejection or failure of a server.
    #[allow(dead_code, reason = "for the engines with servers")]
    pub(crate) fn caused_by(mut self, cause: impl Into<Cause>) -> Error {
        if let Error::Unauthenticated { source, .. }
        | Error::PermissionDenied { source, .. }
        | Error::LimitExceeded { source, .. }
        | Error::Unavailable { source, .. } = &mut self
        {
            *source = Some(cause.into());
        }
        self
    }

    /// Changes the reason, if this error is the rejection or failure of a server.
    #[allow(dead_code, reason = "for the engines with servers")]
    pub(crate) fn with_reason(mut self, change: impl FnOnce(&str) -> String) -> Error {
        if let Some(reason) = self.reason_mut() {
            *reason = change(reason);
        }
        self
    }

    fn reason_mut(&mut self) -> Option<&mut String> {
        match self {
            Error::Unauthenticated { reason, .. }
            | Error::PermissionDenied { reason, .. }
            | Error::LimitExceeded { reason, .. }
            | Error::Unavailable { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// The reason alone, for a message that names the engine itself.
    #[allow(dead_code, reason = "for the engines with servers")]
    pub(crate) fn into_reason(mut self) -> String {
        match self.reason_mut() {
            Some(reason) => std::mem::take(reason),
            None => self.to_string(),
        }
    }

    /// Whether the error is in the request itself, rather than in the environment.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Error::BadName(_)
                | Error::BadUrl { .. }
                | Error::BadOption(_)
                | Error::Unsupported { .. }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn an_error_has_its_cause_as_source() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        for kind in [
            RejectionKind::Unauthenticated,
            RejectionKind::PermissionDenied,
            RejectionKind::LimitExceeded,
            RejectionKind::Unavailable,
        ] {
            let plain = kind.error("etcd", "why");
            assert!(plain.source().is_none());
            let error = plain.caused_by(refused()).with_reason(|reason| format!("{reason} (at x)"));
            assert!(error.source().is_some_and(|cause| cause.is::<std::io::Error>()), "{error:?}");
            assert!(
                error.to_string().contains("etcd") && error.to_string().ends_with("why (at x)"),
                "{error}"
            );
            assert!(!error.is_usage());
            assert_eq!(error.into_reason(), "why (at x)");
        }
        let usage = Error::BadOption("x".into()).caused_by(refused());
        assert!(usage.source().is_none() && usage.is_usage());
    }
}
