//! What can go wrong, each with a sentence that says what happened and what to do next.

/// Why an operation on the cluster failed.
///
/// "Somebody else holds it" is not an error: `try_acquire` and the timed acquires answer `None`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration cannot work.
    #[error("bad configuration: {0}")]
    Config(String),
    /// The name of a lock breaks a rule.
    #[error("bad lock name: {0}")]
    BadName(String),
    /// An option of a request is out of range, or does not go with the lock.
    #[error("bad option: {0}")]
    BadOption(String),
    /// The hold ended before it was released.
    #[error("the lock `{name}` was lost: {reason}")]
    Lost {
        /// The lock's name.
        name: String,
        /// What ended it.
        reason: String,
    },
    /// The member grants no lock at the moment, and why: it has no lease, for want of a leader or of a majority.
    #[error("{0}")]
    NoLease(String),
    /// The member does not serve any more.
    #[error("this member has stopped: {0}")]
    Stopped(String),
    /// The disk, the network or a peer stands in the way.
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
