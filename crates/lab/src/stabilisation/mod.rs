//! Self-stabilisation: from any state, however it came about, a system reaches a legitimate one and never leaves it.
//!
//! The machines of a ring share memory: a machine reads the state of its left neighbour. A machine that may move has a
//! *privilege*, and a *daemon* chooses which of the privileged machines move next. A state is *legitimate* if it has
//! exactly one privilege, which is then the right to enter the critical section.
//!
//! | module | contents |
//! |---|---|
//! | [`k_state`] | Dijkstra's ring of K-state machines, beside its paper |
//! | [`simulation`] | runs from random states: the moves until the ring is stable |
//! | [`exhaustive`] | all states of a small ring: closure, convergence, and the worst run |

pub mod exhaustive;
pub mod k_state;
pub mod simulation;

pub use k_state::KState;

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// A ring of machines, each with a state from 0 to K−1.
pub trait Ring: Sync {
    /// Number of machines.
    fn machines(&self) -> usize;

    /// Number of states of a machine, K.
    fn states(&self) -> u32;

    /// The state of a machine after its move; `None` if it has no privilege.
    fn next(&self, numbers: &[u32], machine: usize) -> Option<u32>;

    /// The machines that may move.
    fn privileged(&self, numbers: &[u32]) -> Vec<usize> {
        (0..self.machines()).filter(|&machine| self.next(numbers, machine).is_some()).collect()
    }

    /// The states after these machines have moved at the same time.
    fn moved(&self, numbers: &[u32], machines: &[usize]) -> Vec<u32> {
        let mut after = numbers.to_vec();
        for &machine in machines {
            if let Some(next) = self.next(numbers, machine) {
                after[machine] = next;
            }
        }
        after
    }
}

/// The choice of the machines that move in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Daemon {
    /// One privileged machine.
    #[default]
    Central,
    /// Any privileged machines, at least one.
    Distributed,
    /// All privileged machines.
    Synchronous,
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Central => "central",
            Self::Distributed => "distributed",
            Self::Synchronous => "synchronous",
        })
    }
}

/// The error of a name that is not that of a [`Daemon`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a daemon is central, distributed or synchronous, not '{0}'")]
pub struct UnknownDaemon(String);

impl FromStr for Daemon {
    type Err = UnknownDaemon;

    fn from_str(name: &str) -> Result<Self, UnknownDaemon> {
        [Self::Central, Self::Distributed, Self::Synchronous]
            .into_iter()
            .find(|daemon| daemon.to_string() == name)
            .ok_or_else(|| UnknownDaemon(name.into()))
    }
}
