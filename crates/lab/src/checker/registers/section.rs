//! The sections of a process's program.

use std::fmt;

/// The sections of a process's program. A process may stay for ever only in its remainder section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// It does not try to enter.
    Remainder,
    /// It tries to enter, and executes the part that needs no waiting.
    Doorway,
    /// It waits for its turn.
    Waiting,
    /// It is in the critical section.
    Inside,
    /// It executes its exit code.
    Leaving,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Remainder => "idle",
            Self::Doorway => "in its doorway",
            Self::Waiting => "waiting",
            Self::Inside => "inside",
            Self::Leaving => "leaving",
        })
    }
}

impl Section {
    /// Whether a process in this section tries to enter.
    pub fn tries(self) -> bool {
        matches!(self, Self::Doorway | Self::Waiting)
    }
}
