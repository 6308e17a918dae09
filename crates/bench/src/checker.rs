//! Speed and memory of the checker, compared with stateright on the same model: Lamport's algorithm as
//! specified in TLA+.
//!
//! Each search is a process of its own, so that its memory can be measured: by how much the peak resident
//! memory exceeds that before the search. (The lab's benchmark of the same name counts allocations instead.)

use lockkeeper_checker_models::lamport_mutex::LamportMutex;
use lockkeeper_lab::checker::explore::{Search, SearchLimits};
use lockkeeper_lab::checker::mutual_exclusion::net::Net;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// A checker to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Searcher {
    /// The checker of this project.
    Lockkeeper,
    /// The crate `stateright`.
    Stateright,
}

impl Searcher {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Searcher::Lockkeeper => "lockkeeper",
            Searcher::Stateright => "stateright",
        }
    }

    /// The checkers that this build contains.
    pub fn built() -> &'static [Searcher] {
        if cfg!(feature = "stateright") {
            &[Searcher::Lockkeeper, Searcher::Stateright]
        } else {
            &[Searcher::Lockkeeper]
        }
    }
}

/// The cost of a search.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Searched {
    /// The checker that searched.
    pub by: Searcher,
    /// Number of distinct states.
    pub states: u64,
    /// Elapsed time, in seconds.
    pub seconds: f64,
    /// Processor time in seconds, which is meaningful on a busy machine, too.
    pub cpu_s: f64,
    /// Memory in addition to that before the search, in bytes.
    pub bytes: f64,
}

/// The reason why a search cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum CheckerError {
    /// This build does not contain stateright.
    #[error("this build has no stateright: cargo build --release -p lockkeeper-cli --features stateright")]
    NotBuilt,
    /// The memory of this process cannot be read.
    #[error("{0}")]
    Status(#[source] std::io::Error),
    /// The kernel does not report a value.
    #[error("the kernel does not report {what}")]
    NotReported {
        /// The name of the value.
        what: &'static str,
    },
}

/// Searches in this process. `max_clock` 6 is the published size: 724,274 distinct states.
pub fn search(by: Searcher, max_clock: u8) -> Result<Searched, CheckerError> {
    let spec = LamportMutex { processes: 3, max_clock };
    let before = memory("VmRSS:")?;
    let (started, cpu) = (Instant::now(), cpu_s());
    let states = match by {
        Searcher::Lockkeeper => lockkeeper(spec),
        #[cfg(feature = "stateright")]
        Searcher::Stateright => stateright(spec),
        #[cfg(not(feature = "stateright"))]
        Searcher::Stateright => return Err(CheckerError::NotBuilt),
    };
    let (seconds, cpu_s) = (started.elapsed().as_secs_f64(), cpu_s() - cpu);
    Ok(Searched { by, states, seconds, cpu_s, bytes: (memory("VmHWM:")? - before).max(0.0) })
}

fn lockkeeper(spec: LamportMutex) -> u64 {
    let net = Net::new(spec);
    let mut search = Search::new(&net, 1);
    let _ = search.run(SearchLimits::NONE, |_| true);
    search.progress().distinct
}

#[cfg(feature = "stateright")]
fn stateright(spec: LamportMutex) -> u64 {
    use ::stateright::{Checker, Model};
    lockkeeper_checker_models::stateright_model::Spec(spec)
        .checker()
        .threads(1)
        .spawn_bfs()
        .join()
        .unique_state_count() as u64
}

fn cpu_s() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9
}

/// A value of /proc/self/status, in bytes.
fn memory(what: &'static str) -> Result<f64, CheckerError> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(CheckerError::Status)?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(what)?.trim().split(' ').next()?.parse::<f64>().ok());
    line.map(|kib| kib * 1024.0).ok_or(CheckerError::NotReported { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_checkers_count_the_same_states() {
        let ours = search(Searcher::Lockkeeper, 2).unwrap().states;
        assert!(ours > 10);
        match search(Searcher::Stateright, 2) {
            Ok(theirs) => assert_eq!(theirs.states, ours),
            Err(why) => {
                assert!(!cfg!(feature = "stateright") && matches!(why, CheckerError::NotBuilt), "{why}")
            }
        }
    }
}
