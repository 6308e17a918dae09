//! The errors of a client.

use crate::error::BoxError;

/// The reason why a client cannot connect, acquire a lock or release it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The library failed.
    #[error(transparent)]
    Library(#[from] lockkeeper::Error),
    /// The member inside this process failed.
    #[error(transparent)]
    Member(#[from] lockkeeper_cluster::Error),
    /// The job names a member whose address is unknown.
    #[error("the member is not in the list of members")]
    UnknownMember,
    /// The job has no member, but its clients need one.
    #[error("there is no member in this process")]
    NoMember,
    /// The member stopped before it was in the view of all members.
    #[error("the member stopped")]
    MemberStopped,
    /// The join token of the members cannot be read.
    #[error("{0}")]
    JoinToken(#[source] BoxError),
    /// The echo process does not accept the connection.
    #[error("cannot reach the floor's process: {0}")]
    FloorUnreachable(#[source] std::io::Error),
    /// The echo process closed the connection.
    #[error("the floor's process has ended: {0}")]
    FloorEnded(#[source] std::io::Error),
    /// The connection to etcd failed.
    #[cfg(feature = "etcd")]
    #[error("{0}")]
    EtcdTransport(#[from] tonic::transport::Error),
    /// etcd rejects a request.
    #[cfg(feature = "etcd")]
    #[error("{0}")]
    Etcd(#[source] Box<tonic::Status>),
    /// PostgreSQL rejects a request.
    #[cfg(feature = "postgres")]
    #[error("{0}")]
    Postgres(#[from] tokio_postgres::Error),
    /// PostgreSQL does not know the hold that is released.
    #[cfg(feature = "postgres")]
    #[error("PostgreSQL reports that the lock was not held")]
    NotHeld,
    /// Redis rejects a request.
    #[cfg(feature = "redis")]
    #[error("{0}")]
    Redis(#[from] redis::RedisError),
    /// Redis sends another reply than those of the recipe.
    #[cfg(feature = "redis")]
    #[error("Redis replied {reply:?}")]
    RedisReply {
        /// The reply of the server.
        reply: redis::Value,
    },
    /// The system's random number generator failed.
    #[cfg(feature = "redis")]
    #[error("the system gives no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    /// The lock expired in Redis, and another client has acquired it.
    #[cfg(feature = "redis")]
    #[error("{lock} had been granted to another client")]
    Expired {
        /// The lock's name.
        lock: String,
    },
    /// The lock expired in most Redis servers, and another client has acquired it.
    #[cfg(feature = "redis")]
    #[error("a majority of the Redis servers had granted {lock} to another client")]
    ExpiredAtMajority {
        /// The lock's name.
        lock: String,
    },
    /// ZooKeeper rejects a request.
    #[cfg(feature = "zookeeper")]
    #[error("{0}")]
    ZooKeeper(#[from] zookeeper_client::Error),
}
