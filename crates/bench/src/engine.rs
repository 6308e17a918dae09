//! The engines that can be measured: the servers of each, and the behaviour of its clients.

use serde::{Deserialize, Serialize};

/// The servers of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Servers {
    /// The engine has no servers.
    None,
    /// This number of lockkeeper daemons.
    Daemons(usize),
    /// The same, but the daemons record no hold: each hold ends with its member.
    DaemonsWithoutRecords(usize),
    /// This number of lockkeeper members, inside the clients' processes.
    Members(usize),
    /// This number of nodes of one etcd cluster.
    Etcd(usize),
    /// This number of independent Redis servers.
    Redis(usize),
    /// This number of nodes of one ZooKeeper ensemble.
    ZooKeeper(usize),
    /// One PostgreSQL server.
    Postgres,
    /// A process that echoes its input.
    Floor,
}

/// How a client acquires and releases a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// The library's own client with its defaults: uncontended locks are delegated to it for a short time.
    Native,
    /// The same without delegation: each release goes to the daemon, and the client waits for the reply.
    NativeAck,
    /// The same without delegation: a release is sent, and the client does not wait for the reply.
    NativeAsync,
    /// A member inside the client's process.
    Member,
    /// The library's engine for files.
    File,
    /// etcd's lock API.
    Etcd,
    /// `SET NX PX`, and a script that compares and deletes.
    Redis,
    /// The same at several servers at once; a majority decides.
    Redlock,
    /// ZooKeeper's lock recipe: an ephemeral sequential node, and a watch on the preceding one.
    ZooKeeper,
    /// Session-level advisory locks.
    Postgres,
    /// A request and its reply, without a lock.
    Floor,
}

/// An engine: a row of the tables.
#[derive(Debug)]
pub struct Engine {
    /// The name on the command line.
    pub name: &'static str,
    /// The servers to start.
    pub servers: Servers,
    /// The behaviour of its clients.
    pub client: Client,
    /// Whether each grant has a fence, which must rise.
    pub fenced: bool,
    /// A description of its clients.
    pub how: &'static str,
    /// The failures that a hold survives, with the measured settings.
    pub durability: &'static str,
}

const OURS: &str = "a hold of less than 50 ms is in the memory of the members, and ends with the lease of a member that \
                    crashes; a longer one is synced to the disks of a majority, and survives; fences keep rising";
const UNRECORDED: &str = "a hold is in the memory of the members, and ends with the lease of a member that crashes; \
                          fences keep rising";
const ETCD: &str = "default: every change is synced to the disks of a majority";
const ZOOKEEPER: &str = "default: every change is synced to the disks of a majority (forceSync=yes)";
const REDIS: &str = "default: snapshots now and then (RDB), no append-only file; nothing is replicated; a \
                     crash loses the grants since the last snapshot";
const NATIVE: &str = "the library's client (crate lockkeeper, lockkeeper://), one connection for each client; a \
                      handoff is pushed; an uncontended lock is delegated to the client for a short time";
const IN_PROCESS: &str = "lockkeeper_cluster::Member in the clients' process; clients are tasks there, each with \
                          a session of its own";
const V3LOCK: &str = "gRPC: Lock and Unlock of v3lock, one connection and one lease for each client, kept alive; \
                      the server queues waiters";
const SET_NX: &str = "redis: SET NX PX with a random value, EVALSHA of a script that compares and deletes, one \
                      connection for each client; waiters ask again after a pause (--redis-pause-ms)";
const REDLOCK: &str = "redis: the same at five servers at once, acquired when three agree; a client that fails \
                       releases and pauses for a random time up to twice that of redis1";
const RECIPE: &str = "zookeeper-client: an ephemeral sequential node, the children, a watch on the preceding one; \
                      one session for each client";
const ADVISORY: &str =
    "tokio-postgres: pg_advisory_lock and pg_advisory_unlock, prepared; one connection for each client";

/// All engines, in the order of the tables.
pub static ENGINES: [Engine; 18] = [
    Engine {
        name: "lockkeeper3",
        servers: Servers::Daemons(3),
        client: Client::Native,
        fenced: true,
        how: NATIVE,
        durability: OURS,
    },
    Engine {
        name: "lockkeeper3-ack",
        servers: Servers::Daemons(3),
        client: Client::NativeAck,
        fenced: true,
        how: "as lockkeeper3, but without delegation (?keep=no): each acquire and each release waits for the \
              daemon's reply",
        durability: OURS,
    },
    Engine {
        name: "lockkeeper3-async",
        servers: Servers::Daemons(3),
        client: Client::NativeAsync,
        fenced: true,
        how: "as lockkeeper3-ack, but the client does not wait for the release: the guard is dropped",
        durability: OURS,
    },
    Engine {
        name: "lockkeeper3-unrecorded",
        servers: Servers::DaemonsWithoutRecords(3),
        client: Client::Native,
        fenced: true,
        how: "as lockkeeper3, but the daemons never record a hold (record_after = \"86400s\")",
        durability: UNRECORDED,
    },
    Engine {
        name: "lockkeeper3-ack-unrecorded",
        servers: Servers::DaemonsWithoutRecords(3),
        client: Client::NativeAck,
        fenced: true,
        how: "as lockkeeper3-ack, but the daemons never record a hold (record_after = \"86400s\")",
        durability: UNRECORDED,
    },
    Engine {
        name: "lockkeeper3-etcd",
        servers: Servers::Daemons(3),
        client: Client::Etcd,
        fenced: true,
        how: V3LOCK,
        durability: OURS,
    },
    Engine {
        name: "lockkeeper1",
        servers: Servers::Daemons(1),
        client: Client::Native,
        fenced: true,
        how: NATIVE,
        durability: OURS,
    },
    Engine {
        name: "member3",
        servers: Servers::Members(3),
        client: Client::Member,
        fenced: true,
        how: IN_PROCESS,
        durability: OURS,
    },
    Engine {
        name: "member1",
        servers: Servers::Members(1),
        client: Client::Member,
        fenced: true,
        how: IN_PROCESS,
        durability: OURS,
    },
    Engine {
        name: "file",
        servers: Servers::None,
        client: Client::File,
        fenced: true,
        how: "the library's engine for one machine (file:), flock(2) and FIFOs",
        durability: "one machine; the kernel releases the locks of a process that ends",
    },
    Engine {
        name: "etcd3",
        servers: Servers::Etcd(3),
        client: Client::Etcd,
        fenced: true,
        how: V3LOCK,
        durability: ETCD,
    },
    Engine {
        name: "etcd1",
        servers: Servers::Etcd(1),
        client: Client::Etcd,
        fenced: true,
        how: V3LOCK,
        durability: "default: every change is synced to one disk",
    },
    Engine {
        name: "redis1",
        servers: Servers::Redis(1),
        client: Client::Redis,
        fenced: false,
        how: SET_NX,
        durability: REDIS,
    },
    Engine {
        name: "redlock5",
        servers: Servers::Redis(5),
        client: Client::Redlock,
        fenced: false,
        how: REDLOCK,
        durability: REDIS,
    },
    Engine {
        name: "zookeeper1",
        servers: Servers::ZooKeeper(1),
        client: Client::ZooKeeper,
        fenced: true,
        how: RECIPE,
        durability: "default: every change is synced to one disk (forceSync=yes)",
    },
    Engine {
        name: "zookeeper3",
        servers: Servers::ZooKeeper(3),
        client: Client::ZooKeeper,
        fenced: true,
        how: RECIPE,
        durability: ZOOKEEPER,
    },
    Engine {
        name: "postgres",
        servers: Servers::Postgres,
        client: Client::Postgres,
        fenced: false,
        how: ADVISORY,
        durability: "default settings; advisory locks are in the server's memory alone, and end with the connection",
    },
    Engine {
        name: "floor",
        servers: Servers::Floor,
        client: Client::Floor,
        fenced: false,
        how: "no lock: a request and a reply over loopback TCP in place of each acquire and each release, with as \
              many bytes as lockkeeper's",
        durability: "none",
    },
];

/// A name that no engine has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no engine `{name}` to measure: there are {}", ENGINES.each_ref().map(|engine| engine.name).join(", "))]
pub struct UnknownEngine {
    /// The name that no engine has.
    pub name: String,
}

/// An engine whose client is not in this build.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{engine} needs a build with the client of {feature}: cargo build --release -p lockkeeper-cli --features bench,{feature}"
)]
pub struct NotBuilt {
    /// The engine's name.
    pub engine: &'static str,
    /// The feature of the build that contains its client.
    pub feature: &'static str,
}

impl Engine {
    /// Parses an engine's name.
    pub fn parse(name: &str) -> Result<&'static Engine, UnknownEngine> {
        let known = ENGINES.iter().find(|engine| engine.name == name);
        known.ok_or_else(|| UnknownEngine { name: name.into() })
    }

    /// Whether the engine is a lock: all but the baseline are.
    pub fn is_lock(&self) -> bool {
        self.client != Client::Floor
    }

    /// The reason why this build cannot measure the engine, if it cannot.
    pub fn not_built(&self) -> Option<NotBuilt> {
        let (feature, built) = match self.client {
            Client::Etcd => ("etcd", cfg!(feature = "etcd")),
            Client::Redis | Client::Redlock => ("redis", cfg!(feature = "redis")),
            Client::ZooKeeper => ("zookeeper", cfg!(feature = "zookeeper")),
            Client::Postgres => ("postgres", cfg!(feature = "postgres")),
            _ => return None,
        };
        (!built).then_some(NotBuilt { engine: self.name, feature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_names_are_parsed_and_unknown_ones_rejected() {
        for engine in &ENGINES {
            assert_eq!(Engine::parse(engine.name).unwrap().name, engine.name);
        }
        let unknown = Engine::parse("consul").unwrap_err();
        assert_eq!(unknown.name, "consul");
        assert!(unknown.to_string().contains("lockkeeper3, "), "{unknown}");
    }
}
