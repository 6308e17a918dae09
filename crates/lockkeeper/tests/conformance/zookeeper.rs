//! The suite on ZooKeeper, and tests of the guarantees of this engine.

use crate::backend::{Backend, Environment, Server, acquire, open, until, until_waiting};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testbed::servers::{self, LocalServer};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use zookeeper_client::{Acls, Client, CreateMode};

/// The paths in Debian; the jar lists its dependencies.
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// ... and does not list this one, which connections over TLS need.
const CLASSES: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/netty-codec.jar";

/// A ZooKeeper server with its own data.
pub struct ZooKeeper {
    pub daemon: LocalServer,
    _data: Arc<tempfile::TempDir>,
}

impl ZooKeeper {
    /// Returns `None` if there is no ZooKeeper and the user is not root.
    pub fn start() -> Option<ZooKeeper> {
        Self::start_with(|port| format!("clientPortAddress=127.0.0.1\nclientPort={port}\n"))
    }

    /// Starts a server with the settings of its port.
    pub fn start_with(settings: impl Fn(u16) -> String + Send + Sync + 'static) -> Option<ZooKeeper> {
        Self::start_member(1, settings)
    }

    /// Starts a server with further variables in its environment.
    pub fn start_in(environment: &Environment) -> Option<ZooKeeper> {
        let settings = |port| format!("clientPortAddress=127.0.0.1\nclientPort={port}\n");
        Self::start_any(1, environment, settings)
    }

    /// Starts a server with this id in its ensemble.
    pub fn start_member(
        id: usize,
        settings: impl Fn(u16) -> String + Send + Sync + 'static,
    ) -> Option<ZooKeeper> {
        Self::start_any(id, &[], settings)
    }

    fn start_any(
        id: usize,
        environment: &Environment,
        settings: impl Fn(u16) -> String + Send + Sync + 'static,
    ) -> Option<ZooKeeper> {
        let environment = environment.to_vec();
        let java = servers::program("java", &[], "default-jre-headless")?;
        let jar = Path::new(JAR);
        let name = jar.file_name().unwrap().to_str().unwrap();
        servers::program(name, &["/usr/share/java"], "zookeeper")?;
        let data = Arc::new(tempfile::tempdir().unwrap());
        std::fs::create_dir(data.path().join("data")).unwrap();
        std::fs::write(data.path().join("data/myid"), id.to_string()).unwrap();
        let directory = data.clone();
        let daemon = LocalServer::start(move |port| {
            let config = directory.path().join("zoo.cfg");
            let data = directory.path().join("data");
            // Session timeouts from 1 s to 2 h, for quick tests and for tests without expiry.
            let text = format!(
                "tickTime=500\nmaxSessionTimeout=7200000\ndataDir={}\nadmin.enableServer=false\nmaxClientCnxns=0\n{}",
                data.display(),
                settings(port)
            );
            std::fs::write(&config, text).unwrap();
            // Ends with this process, even if that is killed.
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--"]).arg(&java).envs(environment.clone());
            command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", CLASSES]);
            command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(config);
            command
        });
        Some(ZooKeeper { daemon, _data: data })
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.daemon.port())
    }

    /// Opens a session for an administrator.
    async fn admin(&self) -> Client {
        Client::connect(&self.address()).await.unwrap()
    }
}

impl Backend for ZooKeeper {
    fn url(&self) -> String {
        format!("zookeeper://{}", self.address())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.daemon)
    }

    /// Fewer kills, as each kill costs a session timeout.
    fn kills(&self) -> usize {
        6
    }
}

/// Starts the server, or returns from the test.
macro_rules! zookeeper {
    () => {
        match ZooKeeper::start() {
            Some(zookeeper) => zookeeper,
            None => return,
        }
    };
}

crate::conformance! { zookeeper!() }

/// The children of a lock's node, by number.
async fn line(admin: &Client, path: &str) -> Vec<String> {
    let mut children = admin.list_children(path).await.unwrap();
    children.sort_by_key(|child| child.rsplit_once('-').unwrap().1.to_owned());
    children
}

#[tokio::test]
async fn an_idle_lock_leaves_only_an_empty_container() {
    let zookeeper = zookeeper!();
    let (locks, admin) = (open(&zookeeper).await, zookeeper.admin().await);
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
    drop(locks.mutex("a").acquire().await.unwrap());
    until(|| async { line(&admin, "/lockkeeper/a").await.is_empty() }).await;
    assert!(locks.list().await.unwrap().is_empty());
    // The container can become another type of lock.
    locks.semaphore("a", 3).acquire().await.unwrap().release().await.unwrap();
    let (kind, _) = admin.get_data("/lockkeeper/a").await.unwrap();
    assert_eq!(kind, b"p3");
    // The lock also works after the container is removed, as ZooKeeper does in time.
    admin.delete("/lockkeeper/a", None).await.unwrap();
    admin.delete("/lockkeeper", None).await.unwrap();
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
}

/// The node of a detached hold is persistent, and is removed by the next client when its deadline has passed.
#[tokio::test]
async fn a_detached_hold_is_a_persistent_node() {
    let zookeeper = zookeeper!();
    let (locks, admin) = (open(&zookeeper).await, zookeeper.admin().await);
    let hour = Duration::from_secs(3600);
    locks.semaphore("a", 3).hold_as("web 3", hour).acquire().await.unwrap();
    assert_eq!(admin.list_children("/lockkeeper/a").await.unwrap(), ["dp.web%203"]);
    let (data, stat) = admin.get_data("/lockkeeper/a/dp.web%203").await.unwrap();
    let text = String::from_utf8(data).unwrap();
    assert!(
        text.contains(r#""detached":{"owner":"web 3","fence":"#) && text.contains(r#""lasts_ms":3600000"#)
    );
    assert_eq!(stat.ephemeral_owner, 0);
    let error = locks.mutex("a").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("a semaphore of 3 permits"), "{error}");
    locks.semaphore("a", 3).hold_as("web 3", Duration::from_millis(1)).acquire().await.unwrap();
    until(|| async { locks.mutex("a").try_acquire().await.is_ok_and(|guard| guard.is_some()) }).await;
    until(|| async { admin.list_children("/lockkeeper/a").await.unwrap().is_empty() }).await;
    admin
        .create("/lockkeeper/a/dx.strange", b"?", &CreateMode::Persistent.with_acls(Acls::anyone_all()))
        .await
        .unwrap();
    let error = locks.mutex("a").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("not Lockkeeper's"), "{error}");
}

/// A holder or waiter whose node an administrator removes is notified at once, not when the session would have
/// expired.
#[tokio::test]
async fn a_forced_release_is_noticed_at_once() {
    let zookeeper = zookeeper!();
    let (locks, admin) = (open(&zookeeper).await, zookeeper.admin().await);
    let hour = Duration::from_secs(3600);
    let holder = locks.mutex("a").ttl(hour).acquire().await.unwrap();
    let waiter = tokio::spawn(locks.mutex("a").ttl(hour).acquire());
    until_waiting(&locks, "a", 1).await;
    let next = acquire(locks.mutex("a").ttl(hour));
    until_waiting(&locks, "a", 2).await;
    let in_order = line(&admin, "/lockkeeper/a").await;
    admin.delete(&format!("/lockkeeper/a/{}", in_order[1]), None).await.unwrap();
    let error = waiter.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::SessionLost { .. }), "{error}");
    admin.delete(&format!("/lockkeeper/a/{}", in_order[0]), None).await.unwrap();
    assert!(holder.lost().await.to_string().contains("by another client"));
    assert!(!holder.is_valid());
    let fence = holder.fence();
    let error = holder.release().await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(next.await.unwrap().fence() > fence);
}

#[tokio::test]
async fn a_restart_of_the_server_within_the_session_loses_nothing() {
    let zookeeper = zookeeper!();
    let (locks, other) = (open(&zookeeper).await, open(&zookeeper).await);
    let hour = Duration::from_secs(3600);
    let holder = locks.mutex("a").ttl(hour).acquire().await.unwrap();
    let waiter = acquire(other.mutex("a").ttl(hour));
    until_waiting(&locks, "a", 1).await;
    let mut watch = locks.watch().await.unwrap();
    zookeeper.daemon.stop();
    zookeeper.daemon.start();
    assert!(holder.is_valid());
    until(|| async { locks.mutex("a").ttl(hour).try_acquire().await.is_ok_and(|guard| guard.is_none()) })
        .await;
    let fence = holder.fence();
    holder.release().await.unwrap();
    assert!(waiter.await.unwrap().fence() > fence);
    watch.changed().await.unwrap();
}

#[tokio::test]
async fn a_path_in_the_url_is_a_place_of_its_own() {
    let zookeeper = zookeeper!();
    let here = open(&zookeeper).await.mutex("a").acquire().await.unwrap();
    let elsewhere = Lockkeeper::open(&format!("{}/team/x/", zookeeper.url())).await.unwrap();
    let there = elsewhere.mutex("a").try_acquire().await.unwrap().expect("another lock");
    assert_eq!(line(&zookeeper.admin().await, "/team/x/a").await.len(), 1);
    assert_eq!(elsewhere.list().await.unwrap().len(), 1);
    drop((here, there));
}

#[tokio::test]
async fn a_node_that_is_not_ours_is_named_not_guessed() {
    let zookeeper = zookeeper!();
    let (locks, admin) = (open(&zookeeper).await, zookeeper.admin().await);
    let open_to_all =
        zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
    admin.create("/lockkeeper/a", b"what?", &open_to_all).await.unwrap();
    admin.create("/lockkeeper/b", b"m", &open_to_all).await.unwrap();
    admin.create("/lockkeeper/b/strange", b"", &open_to_all).await.unwrap();
    for name in ["a", "b"] {
        for error in
            [locks.mutex(name).acquire().await, locks.mutex(name).try_acquire().await.map(|_| unreachable!())]
        {
            let error = error.unwrap_err().to_string();
            assert!(error.contains(&format!("/lockkeeper/{name}")), "{error}");
            assert!(error.contains("not Lockkeeper's"), "{error}");
        }
        assert!(locks.inspect(name).await.unwrap().holders.is_empty());
    }
    locks.mutex("c").acquire().await.unwrap().release().await.unwrap();
}

async fn refused(url: &str) -> String {
    let error = Lockkeeper::open(url).await.expect_err("must be refused");
    assert!(!error.to_string().contains("secret"), "{error}");
    error.to_string()
}

#[tokio::test]
async fn an_error_of_the_server_names_the_cause() {
    let zookeeper = zookeeper!();
    let address = zookeeper.address();
    // The first client owns the locks.
    let owner = Lockkeeper::open(&format!("zookeeper://me:secret@{address}")).await.unwrap();
    owner.mutex("a").acquire().await.unwrap().release().await.unwrap();
    assert!(refused(&zookeeper.url()).await.contains("belong to a user"));
    let error = refused(&format!("zookeeper://me:secret2@{address}")).await;
    assert!(error.contains("the user \"me\" may not") && error.contains("password is wrong"), "{error}");
    for (path, part) in [("/a//b", "empty"), ("/../b", "`..` component")] {
        assert!(refused(&format!("{}{path}", zookeeper.url())).await.contains(part));
    }
    zookeeper.daemon.stop();
    assert!(refused(&zookeeper.url()).await.contains("is it ZooKeeper, and does it run?"));
}

#[tokio::test]
async fn a_server_that_is_not_zookeeper_is_reported() {
    for answer in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR unknown command\r\n", b"\0\0\0\0"] {
        let error = refused(&format!("zookeeper://{}", crate::network::impostor(answer).await)).await;
        assert!(error.contains("is it ZooKeeper"), "{error}");
    }
}

#[tokio::test]
async fn lost_replies_do_nothing_twice() {
    let zookeeper = zookeeper!();
    crate::network::lost_replies_do_nothing_twice(
        |address| format!("zookeeper://{address}"),
        zookeeper.address(),
    )
    .await;
}

/// The connection stays open without replies: renewals are blocked past the time to live.
#[tokio::test]
async fn a_server_that_hangs_is_noticed() {
    let zookeeper = zookeeper!();
    crate::network::a_server_that_hangs_is_noticed(&zookeeper, &zookeeper.daemon).await;
}
