//! The errors of this crate. Each message states what happened and what to do next.

use crate::acquire::MOST_PERMITS;
use crate::config::ConfigError;
use crate::settings::ValueError;
use lockkeeper_member::{Acquisition, BadText};

/// The reason why an operation on the cluster failed.
///
/// A lock that is held by another client is not an error: `try_acquire` and the acquires with a timeout return `None`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is invalid.
    #[error("bad configuration: {0}")]
    Config(#[from] ConfigError),
    /// The name of a lock is invalid.
    #[error("bad lock name: {0}")]
    BadName(#[source] BadText),
    /// An option of a request is out of range, or does not fit the lock.
    #[error("bad option: {0}")]
    BadOption(#[from] OptionError),
    /// The hold ended before it was released.
    #[error("the lock `{name}` was lost: {reason}")]
    Lost {
        /// The lock's name.
        name: String,
        /// The reason for the loss.
        reason: String,
    },
    /// The member grants no locks at the moment because it has no lease. The text contains the reason, such as a
    /// missing leader or majority.
    #[error("{0}")]
    NoLease(String),
    /// The member has stopped.
    #[error("this member has stopped: {0}")]
    Stopped(String),
    /// A limit of the member is reached.
    #[error("{0}")]
    LimitExceeded(String),
    /// The disk, the network or a peer failed.
    #[error("{0}")]
    Unavailable(String),
}

/// The reason why an option of a request is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The lock cannot be requested in this mode.
    #[error("`{name}` cannot be requested in this mode")]
    Mode {
        /// The lock's name.
        name: String,
    },
    /// The owner or the purpose is invalid.
    #[error("bad owner or purpose: {0}")]
    Tag(#[source] BadText),
    /// A semaphore cannot have this number of permits.
    #[error("a semaphore has 1 to {MOST_PERMITS} permits, not {permits}")]
    Permits {
        /// The number of permits.
        permits: u32,
    },
    /// The acquisition to revoke is not a hold on the lock.
    #[error("{acquisition} does not hold `{lock}` at any member that answers")]
    NotHeld {
        /// The acquisition that was to be revoked.
        acquisition: Acquisition,
        /// The lock's name.
        lock: String,
    },
    /// The value of a setting cannot be read.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The leader rejects the settings, for this reason.
    #[error("{0}")]
    Settings(String),
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<crate::net::Error> for Error {
    fn from(error: crate::net::Error) -> Self {
        use crate::net::Error as Net;
        match error {
            Net::Listen(..) => Self::Unavailable(error.to_string()),
            _ => Self::Config(ConfigError::Network(error)),
        }
    }
}

impl From<lockkeeper_consensus::Error> for Error {
    fn from(error: lockkeeper_consensus::Error) -> Self {
        use lockkeeper_consensus::Error as Consensus;
        match error {
            Consensus::Settings(why) => Self::Config(ConfigError::Consensus(why)),
            Consensus::Stopped(_) => Self::Stopped(error.to_string()),
            Consensus::Store(_) | Consensus::Remove(_) => Self::Unavailable(error.to_string()),
        }
    }
}
