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
//! # A tour of five minutes
//!
//! **Wait, or do not.** A request is built, and then sent by the method that sets how long to wait:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let locks = lockkeeper::Lockkeeper::open(format!("file://{}", dir.path().display())).await?;
//! use std::time::Duration;
//!
//! let first = locks.mutex("nightly").metadata("job", "backup").acquire().await?;      // as long as it takes
//! assert!(locks.mutex("nightly").try_acquire().await?.is_none());                     // not at all
//! let waited = locks.mutex("nightly").acquire_within(Duration::from_millis(20)).await?;
//! assert!(waited.is_none(), "another client held it all the time: no error");
//! drop(first);                                                                        // or `release().await?`
//! # Ok(()) }
//! ```
//!
//! Dropping the future of a request removes it from the queue; so it fits into `select!` and timeouts.
//!
//! **Share, count, combine.** A name is one lock, in several modes:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let locks = lockkeeper::Lockkeeper::open(format!("file://{}", dir.path().display())).await?;
//! let (one, two) = (locks.shared("cache").acquire().await?, locks.shared("cache").acquire().await?);
//! assert!(locks.mutex("cache").try_acquire().await?.is_none(), "a writer waits for the readers");
//! let permit = locks.semaphore("downloads", 3).acquire().await?;                      // one of three
//! let both = locks.all(["a", "b"]).acquire().await?;                                  // without deadlock
//! # drop((one, two, permit, both));
//! # Ok(()) }
//! ```
//!
//! **Notice a loss.** Where holds expire, [`Guard::lost`] resolves before another client can be granted the lock:
//!
//! ```
//! # async fn work() {}
//! # async fn example(guard: lockkeeper::Guard) -> lockkeeper::Result<()> {
//! tokio::select! {
//!     () = work() => guard.release().await?,
//!     loss = guard.lost() => eprintln!("stopped, {:?} before the lock can be granted: {loss}", guard.valid_for()),
//! }
//! # Ok(()) }
//! ```
//!
//! **Reject what comes too late.** The resource keeps the highest fence, in memory, [in SQL](fence::sql) or behind HTTP:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let locks = lockkeeper::Lockkeeper::open(format!("file://{}", dir.path().display())).await?;
//! use lockkeeper::fence::Fenced;
//!
//! let account = Fenced::new(100);
//! let guard = locks.mutex("account").acquire().await?;
//! let fence = guard.fence().ok_or("this engine has fences")?;
//! account.write(fence, |balance| *balance -= 30)?;                                    // an error if it is stale
//! # Ok(()) }
//! ```
//!
//! **Elect, observe, operate.** [`Lockkeeper::election`] has one leader at a time; [`Lockkeeper::list`] and
//! [`Lockkeeper::watch`] show holders and waiters; [`engines`] and [`Lockkeeper::diagnose`] report what an engine offers
//! and what is risky about a server. The [`Error`] has a variant for each thing that a caller can do.
//!
//! **Change the engine.** Only the URL changes: `file:` on one machine, `file:///run/lock/lockkeeper?shared` for several
//! users, and a server for several machines; or the application's own processes are the cluster, with the module
//! `member` (cargo feature `member`). [`Capabilities`] lists the differences, and a request for what an engine lacks is
//! rejected before it is sent. The examples of the package are complete programs: `axum_handler`, `cron`,
//! `leader_handover`, `work_queue`, `cache_directory`, `embedded_cluster`, `paused_holder`.
//!
//! # A lock alone is not enough
//!
//! A process can be paused for any length of time between the check that it holds the lock and its write. If its hold
//! can expire (on every engine with a server), the lock may have been granted to another client by then. Only the
//! resource itself can detect this: pass [`Guard::fence`] with every write, and let the resource reject a fence lower
//! than the highest it has seen.

#![warn(missing_debug_implementations)]
#![cfg_attr(
    not(feature = "file"),
    allow(dead_code, unused_variables, reason = "some of what engines share is used by `file` alone")
)]

mod client;
#[cfg(feature = "cluster")]
pub mod cluster;
mod detached;
mod diagnose;
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
#[cfg(feature = "member")]
pub mod member;
mod name;
mod several;

pub use client::{Acquire, Lockkeeper, Watch};
pub use detached::{DetachedHold, HoldAs};
pub use diagnose::{Diagnosis, Finding, Severity, diagnose};
pub use election::{Candidate, Election, Leader, Leadership, Observer};
#[cfg(any(test, feature = "fuzzing"))]
pub use engine::fuzz;
pub use engine::{Capabilities, EngineInfo, EngineUrl, engines, redact};
pub use error::{Cause, Error, Result};
pub use fence::Fence;
pub use guard::Guard;
pub use hold_state::HoldState;
pub use info::{Detached, LockInfo, LockMode, Participant, Tag};
#[cfg(feature = "clock-jumps")]
#[doc(hidden)]
pub use lockkeeper_system::lease_clock::jump as jump_lease_clock;
pub use loss::Loss;
pub use name::LockName;
pub use several::{AcquireAll, GuardAll};
