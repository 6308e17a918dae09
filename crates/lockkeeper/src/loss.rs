//! [`Loss`]: the reason why a hold was lost.

use std::fmt;

/// The reason why a hold was lost. Its text is a sentence about the hold: "its lease expired without a renewal".
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The lease expired although no renewal failed: this process or its machine was paused, or too slow.
    Expired,
    /// The lease expired because no renewal succeeded: the server or daemon died, hangs or cannot be reached. The text
    /// is the failure of the last renewal.
    Unreachable(String),
    /// The hold was revoked. [`Guard::valid_for`](crate::Guard::valid_for) is the time for which the lease still
    /// protects it.
    Revoked {
        /// The operator who revoked it; `None` if the server does not report the name.
        by: Option<String>,
    },
    /// The server ended the hold, or no longer has it. The text is the cause.
    Ended(String),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Expired => f.write_str("its lease expired without a renewal"),
            Loss::Unreachable(failure) => {
                write!(f, "its lease expired, since it could not be renewed: {failure}")
            }
            Loss::Revoked { by: Some(by) } => write!(f, "it was released by force by `{by}`"),
            Loss::Revoked { by: None } => f.write_str("it was released by force, or held for too long"),
            Loss::Ended(how) => f.write_str(how),
        }
    }
}

impl From<&str> for Loss {
    fn from(how: &str) -> Loss {
        Loss::Ended(how.into())
    }
}

impl From<String> for Loss {
    fn from(how: String) -> Loss {
        Loss::Ended(how)
    }
}
