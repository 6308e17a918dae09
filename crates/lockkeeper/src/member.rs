//! A cluster in the application's own processes: the engine `member` (cargo feature `member`), without any server.
//!
//! Three processes that each start a [`Member`] are a cluster. An uncontended lock costs no message and no disk write,
//! and locks go on when one of the processes crashes. [`Member::locks`] returns a [`Lockkeeper`]: an application that
//! used files changes this line, and keeps its requests, guards and errors.
//!
//! ```no_run
//! # #[tokio::main] async fn main() -> lockkeeper::Result<()> {
//! use lockkeeper::member::{Config, Member};
//!
//! let member = Member::start(Config::alone("/var/lib/my-service/locks")).await?;  // a cluster of one
//! let locks = member.locks();                                                     // was: Lockkeeper::open("file:")
//! let guard = locks.mutex("orders/42").acquire().await?;
//! println!("write with fence {:?}", guard.fence());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! The example `embedded_cluster` runs three members in one program. A hold lasts as long as its process and the
//! member's lease (1.2 s by default, renewed five times a second): if the member is cut off from the majority, its holds
//! are lost, and their holders are notified before another client is granted the lock. The requested time to live has no
//! effect. Holds that outlive their process ([`Acquire::at_least`](crate::Acquire::at_least),
//! [`Acquire::hold_as`](crate::Acquire::hold_as)) need daemons.
//!
//! A request that waits ends with [`Error::Unavailable`](crate::Error::Unavailable) once the member has granted no locks
//! for 6 s. A new cluster needs all of its first members once: wait for [`Member::ready`] before the first request.

pub use lockkeeper_cluster::authority::{Authority, AuthorityError};
pub use lockkeeper_cluster::{
    Config, ConfigError, JoinToken, JoinTokenError, MemberId, Pem, Times, Tls, TlsError,
};

use crate::engine::member::{MemberEngine, failure, not_started};
use crate::{Lockkeeper, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A member of a lock cluster in this process. Cheap to clone; it runs until the last clone, the last [`Lockkeeper`] and
/// the last guard are dropped, or until it is stopped.
#[derive(Clone)]
pub struct Member(lockkeeper_cluster::Member);

impl Member {
    /// Starts a member. It serves once it is in a view, for which it needs a majority of the members: see
    /// [`ready`](Self::ready).
    pub async fn start(config: Config) -> Result<Member> {
        lockkeeper_cluster::Member::start(config).await.map(Member).map_err(not_started)
    }

    /// Resolves when the member grants locks.
    pub async fn ready(&self) -> Result<()> {
        self.0.ready().await.map_err(|error| failure(error, &self.0))
    }

    /// The locks of the cluster, for one client of this member. Holds of different calls exclude each other, as those of
    /// different processes do; clones of one [`Lockkeeper`] are one client.
    pub fn locks(&self) -> Lockkeeper {
        Lockkeeper::with_engine(Arc::new(MemberEngine::new(&self.0)))
    }

    /// The number of this member.
    pub fn id(&self) -> MemberId {
        self.0.id()
    }

    /// The address on which it listens for other members, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.address()
    }

    /// The reason why the member grants no locks at the moment, as a sentence for operators. `None` if it does.
    pub fn not_serving(&self) -> Option<String> {
        self.0.not_serving().map(|trouble| trouble.to_string())
    }

    /// Leaves the cluster and stops: holders have `drain` to release, and the other members do not have to wait for the
    /// lease of this one. It can be started again later.
    pub async fn leave(self, drain: Duration) {
        self.0.leave(drain).await;
    }

    /// Stops at once. To the other members this is a crash: they grant its locks when its lease has expired.
    pub async fn stop(self) {
        self.0.stop().await;
    }
}

/// For programs that use more of the crate `lockkeeper-cluster`, such as its metrics and settings.
impl From<lockkeeper_cluster::Member> for Member {
    fn from(member: lockkeeper_cluster::Member) -> Member {
        Member(member)
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member").field("id", &self.id()).finish_non_exhaustive()
    }
}
