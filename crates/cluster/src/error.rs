//! The errors of this crate. Each message states what happened and what to do next.

/// The reason why an operation on the cluster failed.
///
/// A lock that is held by another client is not an error: `try_acquire` and the acquires with a timeout return `None`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is invalid.
    #[error("bad configuration: {0}")]
    Config(String),
    /// The name of a lock is invalid.
    #[error("bad lock name: {0}")]
    BadName(String),
    /// An option of a request is out of range, or does not fit the lock.
    #[error("bad option: {0}")]
    BadOption(String),
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
    /// The disk, the network or a peer failed.
    #[error("{0}")]
    Unavailable(String),
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<crate::net::Error> for Error {
    fn from(error: crate::net::Error) -> Self {
        use crate::net::Error as Net;
        match error {
            Net::Settings(_) | Net::Tls(_) | Net::PlainBeyondLoopback(_) => Self::Config(error.to_string()),
            Net::Listen(..) => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<crate::consensus::Error> for Error {
    fn from(error: crate::consensus::Error) -> Self {
        use crate::consensus::Error as Consensus;
        match error {
            Consensus::Settings(_) => Self::Config(error.to_string()),
            Consensus::Stopped(_) => Self::Stopped(error.to_string()),
            Consensus::Store(_) | Consensus::Remove(_) => Self::Unavailable(error.to_string()),
        }
    }
}
