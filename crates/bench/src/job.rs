//! The protocol between the bench and the processes of its clients: JSON, one value per line.
//!
//! ```text
//!   bench ── Job ──▶ client     connects, and warms up
//!         ◀─ Ready ─            all processes are ready
//!         ── StartSignal ──▶     measures, starting at the same time as all others
//!         ◀─ Done ──
//!         ── end of input ──▶   disconnects, and ends
//! ```

use crate::engine::Client;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The job of one process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// How locks are acquired.
    pub client: Client,
    /// The addresses of the servers, the preferred one of this process first.
    pub servers: Vec<String>,
    /// The workload that the clients perform.
    pub workload: Workload,
    /// The numbers of the clients in this process.
    pub clients: Vec<usize>,
    /// Duration of the warm-up.
    pub warm_up_s: f64,
    /// Duration of the measurement.
    pub seconds: f64,
    /// Pause of waiters of Redis before they retry.
    pub pause_ms: u64,
    /// The directory of the files by which several processes check mutual exclusion; `None` if there is one process.
    pub exclusion_folder: Option<PathBuf>,
    /// Whether grants have fences.
    pub fenced: bool,
    /// The member inside this process, if there is one.
    pub member: Option<MemberJob>,
}

/// A member inside a client's process.
#[derive(Debug, Serialize, Deserialize)]
pub struct MemberJob {
    /// The member's number, from 1.
    pub id: u32,
    /// The addresses of all members, in order.
    pub members: Vec<SocketAddr>,
    /// The member's data directory.
    pub data: PathBuf,
    /// The file with the join token of all members.
    pub join_token: PathBuf,
}

/// The start of the measurement, by the clock that all processes of the machine share.
#[derive(Debug, Serialize, Deserialize)]
pub struct StartSignal {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
}

/// A message from a client's process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerMessage {
    /// The clients are connected and warmed up.
    Ready,
    /// The measurements of the process.
    Done(Box<Figures>),
    /// The process failed.
    Failed {
        /// A description of the failure.
        why: String,
        /// Whether mutual exclusion was violated.
        violation: bool,
    },
}

/// The measurements of one process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Number of completed turns of each client.
    pub turns: Vec<u64>,
    /// The latencies of acquires, in nanoseconds, each with its count.
    pub acquire: Vec<(u64, u64)>,
    /// The latencies of releases.
    pub release: Vec<(u64, u64)>,
    /// Processor time of the process during the measurement.
    pub cpu_s: f64,
    /// Number of entries checked for exclusivity, warm-up included.
    pub checked: u64,
    /// Number of messages between members, if the member is inside this process.
    pub messages: Option<f64>,
}

/// The time in nanoseconds by the clock that all processes of the machine share.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
