//! What the bench and the processes of its clients say to each other: JSON, one value on a line.
//!
//! ```text
//!   bench ── Job ──▶ client     connects, and warms up
//!         ◀─ Ready ─            so do all others
//!         ── Go ───▶            measures, from the same moment on as all others
//!         ◀─ Done ──
//!         ── end of input ──▶   disconnects, and ends
//! ```

use crate::engine::Client;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// What one process is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// How locks are taken.
    pub client: Client,
    /// Where the servers are, this process's first.
    pub servers: Vec<String>,
    /// What is done.
    pub workload: Workload,
    /// The numbers of the clients in this process.
    pub clients: Vec<usize>,
    /// How long things are done before anything counts.
    pub warm_up_s: f64,
    /// How long it is measured.
    pub seconds: f64,
    /// How long waiters of Redis pause before they ask again.
    pub pause_ms: u64,
    /// Where processes see each other inside; without it there is one process.
    pub oracle: Option<PathBuf>,
    /// Whether entries have fences.
    pub fenced: bool,
    /// The member inside this process.
    pub member: Option<MemberJob>,
}

/// A member inside a client's process.
#[derive(Debug, Serialize, Deserialize)]
pub struct MemberJob {
    /// Which of them, from 1.
    pub id: u32,
    /// All members, in order.
    pub members: Vec<SocketAddr>,
    /// Where it keeps its data.
    pub data: PathBuf,
    /// The file with the join token of all members.
    pub join_token: PathBuf,
}

/// When to begin, by the clock that all processes of the machine share.
#[derive(Debug, Serialize, Deserialize)]
pub struct Go {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
}

/// What a client's process says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Said {
    /// Connected and warm.
    Ready,
    /// What was measured.
    Done(Box<Figures>),
    /// What went wrong.
    Failed {
        /// A sentence.
        why: String,
        /// Whether exclusivity was violated.
        violation: bool,
    },
}

/// What one process has measured.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Turns of each client that were over in time.
    pub turns: Vec<u64>,
    /// How long acquires took, in nanoseconds, and how many took so long.
    pub acquire: Vec<(u64, u64)>,
    /// The same for releases.
    pub release: Vec<(u64, u64)>,
    /// Processor time of the process while it measured.
    pub cpu_s: f64,
    /// Entries whose exclusivity was looked at, warm-up included.
    pub checked: u64,
    /// Messages between members, if the member is inside.
    pub messages: Option<f64>,
}

/// Nanoseconds of the clock that all processes of the machine share.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
