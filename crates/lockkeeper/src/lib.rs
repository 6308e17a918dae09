//! Distributed locks: mutual exclusion between processes and machines, on one of several engines.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let url = format!("file://{}", dir.path().display());
//! use lockkeeper::Lockkeeper;
//!
//! let locks = Lockkeeper::open(&url).await?;      // file:///var/lib/locks: one machine, no server
//! let guard = locks.mutex("orders/42").acquire().await?;
//! println!("write with fence {:?}", guard.fence()); // the resource rejects lower fences: see `fence`
//! guard.release().await?;                         // or just drop it
//! # Ok(()) }
//! ```
//!
//! - [`Lockkeeper`] opens an engine and builds requests: mutexes, shared holds, semaphores, several at once.
//! - [`Guard`] is a hold. It has the [`fence`](Guard::fence), a warning [before the hold is lost](Guard::lost), and
//!   the release.
//! - [`HoldAs`] requests a hold that outlives its process, for a named owner; [`Acquire::at_least`] keeps a lock for a
//!   while after its holder has ended.
//! - [`Election`] elects one leader among candidates.
//! - [`fence`] has ready-made checkers for the resource that a lock protects.
//!
//! # A lock alone is not enough
//!
//! A process can be paused for any length of time between the check that it holds the lock and its write. If its hold
//! can expire (on every engine with a server), the lock may have been granted to another client by then. Only the
//! resource itself can detect this: pass [`Guard::fence`] with every write, and let the resource reject a fence lower
//! than the highest it has seen.

#![cfg_attr(
    not(feature = "file"),
    allow(dead_code, unused_variables, reason = "some of what engines share is used by `file` alone")
)]

mod client;
#[cfg(feature = "cluster")]
pub mod cluster;
mod detached;
mod election;
mod engine;
mod error;
pub mod fence;
#[cfg(test)]
mod golden;
mod guard;
mod hold_state;
mod info;
mod lease;
mod loss;
mod name;
mod several;

pub use client::{Acquire, Lockkeeper, Watch};
pub use detached::{DetachedHold, HoldAs};
pub use election::{Candidate, Election, Leader, Leadership, Observer};
#[cfg(any(test, feature = "fuzzing"))]
pub use engine::fuzz;
pub use engine::{Capabilities, EngineUrl, redact};
pub use error::{Error, Result};
pub use fence::Fence;
pub use guard::Guard;
pub use hold_state::HoldState;
pub use info::{Detached, LockInfo, LockMode, Participant, Tag};
pub use loss::Loss;
pub use name::LockName;
pub use several::{AcquireAll, GuardAll};
