//! The list of engines: what each of them can do, and which of them this build has.

use super::{Capabilities, SCHEMES};
use serde::Serialize;

/// An engine that offers everything.
const EVERYTHING: Capabilities = Capabilities {
    fence: true,
    fifo: true,
    shared: true,
    semaphore: true,
    waiters: true,
    election: true,
    expires: true,
    at_least: true,
    detached: true,
};

/// Between the members of a cluster, its algorithm decides the order. A cluster of one member serves its clients in the
/// order of their arrival.
pub(crate) const CLUSTER: Capabilities = Capabilities { fifo: false, ..EVERYTHING };
/// A hold of a member in the application's process ends with the process.
#[cfg(feature = "member")]
pub(crate) const MEMBER: Capabilities = Capabilities { at_least: false, detached: false, ..CLUSTER };
pub(crate) const FILE: Capabilities = Capabilities { expires: false, ..EVERYTHING };
pub(crate) const SHARED_FILE: Capabilities =
    Capabilities { fifo: false, waiters: false, at_least: false, detached: false, ..FILE };
pub(crate) const ETCD: Capabilities = EVERYTHING;
pub(crate) const ZOOKEEPER: Capabilities = EVERYTHING;
pub(crate) const POSTGRES: Capabilities = EVERYTHING;
pub(crate) const MYSQL: Capabilities = EVERYTHING;
pub(crate) const REDIS: Capabilities =
    Capabilities { fifo: false, shared: false, waiters: false, ..EVERYTHING };
pub(crate) const REDLOCK: Capabilities =
    Capabilities { fence: false, semaphore: false, election: false, ..REDIS };

/// An engine, whether this build has it or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EngineInfo {
    /// The engine's name, as [`Lockkeeper::engine`](crate::Lockkeeper::engine) returns it.
    pub name: &'static str,
    /// The system that keeps the locks.
    pub about: &'static str,
    /// The schemes of its URLs.
    pub schemes: Vec<&'static str>,
    /// The cargo feature that it needs.
    pub feature: &'static str,
    /// Whether this build has it.
    pub built_in: bool,
    /// The operations that it offers. A `lockkeeper` cluster of one member is also [first come, first served](Capabilities::fifo).
    pub capabilities: Capabilities,
}

/// All engines that a URL can name, whether this build has them or not. A cluster member in the application's own process
/// (cargo feature `member`) has no URL.
pub fn engines() -> Vec<EngineInfo> {
    let engine = |name, about, feature, built_in, capabilities| {
        let schemes = SCHEMES.iter().filter(|(_, of)| *of == feature).map(|(scheme, _)| *scheme).collect();
        EngineInfo { name, about, schemes, feature, built_in, capabilities }
    };
    vec![
        engine("file", "files of this machine, without a server", "file", cfg!(feature = "file"), FILE),
        engine(
            "shared-file",
            "files of this machine, for several users: file:///run/lock/lockkeeper?shared",
            "file",
            cfg!(feature = "file"),
            SHARED_FILE,
        ),
        engine("lockkeeper", "lockkeeper's own daemons", "cluster", cfg!(feature = "cluster"), CLUSTER),
        engine("etcd", "an etcd cluster", "etcd", cfg!(feature = "etcd"), ETCD),
        engine("zookeeper", "a ZooKeeper ensemble", "zookeeper", cfg!(feature = "zookeeper"), ZOOKEEPER),
        engine("postgres", "PostgreSQL", "postgres", cfg!(feature = "postgres"), POSTGRES),
        engine("mysql", "MySQL or MariaDB", "mysql", cfg!(feature = "mysql"), MYSQL),
        engine("redis", "one Redis server", "redis", cfg!(feature = "redis"), REDIS),
        engine(
            "redlock",
            "several independent Redis servers: redis://a,b,c",
            "redis",
            cfg!(feature = "redis"),
            REDLOCK,
        ),
    ]
}

/// The name of the engine whose URLs have this scheme. `redis` and `redlock` share theirs.
pub(crate) fn name_of_scheme(scheme: &str) -> Option<&'static str> {
    let (_, feature) = SCHEMES.iter().find(|(known, _)| *known == scheme)?;
    engines().into_iter().find(|engine| engine.feature == *feature).map(|engine| engine.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_belongs_to_a_listed_engine() {
        for (scheme, feature) in SCHEMES {
            let name = name_of_scheme(scheme).expect(scheme);
            let engines = engines();
            let engine = engines.iter().find(|engine| engine.name == name).expect(name);
            assert!(engine.schemes.contains(&scheme) && engine.feature == feature, "{scheme}");
        }
        assert!(name_of_scheme("gopher").is_none());
        assert!(engines().iter().all(|engine| !engine.schemes.is_empty()));
    }
}
