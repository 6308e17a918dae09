//! The sections of a process's program.

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

impl Section {
    /// Whether a process in this section tries to enter.
    pub fn tries(self) -> bool {
        matches!(self, Self::Doorway | Self::Waiting)
    }
}
