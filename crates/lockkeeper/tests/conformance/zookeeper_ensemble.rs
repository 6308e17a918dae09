//! Three ZooKeeper servers, with TLS, client certificates and a password: the suite, and clients that take turns while
//! leaders are killed.

use crate::backend::{Backend, Guarantee, Nodes, Server, Step, open, until, until_waiting};
use crate::shared::{Shared, Used};
use crate::zookeeper::ZooKeeper;
use crate::zookeeper_tls::{options_of, tls_settings};
use lockkeeper_testbed::certificates::Certificates;
use lockkeeper_testbed::ports;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Starts the servers, or returns from the test.
macro_rules! ensemble {
    () => {
        match Ensemble::start() {
            Some(ensemble) => ensemble,
            None => return,
        }
    };
}

struct Ensemble {
    servers: Vec<ZooKeeper>,
    /// The ports for clients over TLS. The others are for the command `srvr`.
    secure: Vec<u16>,
    /// The options of the URL.
    options: String,
    _certificates: Certificates,
}

impl Ensemble {
    fn start() -> Option<Ensemble> {
        let certificates = Certificates::new();
        let stores = Arc::new(tempfile::tempdir().unwrap());
        let tls = tls_settings(stores.path(), &certificates, &certificates.server(), "need");
        let secure: Vec<u16> = (0..3).map(|_| ports::free().unwrap()).collect();
        let peers: String = (1..=3)
            .map(|id| {
                let (quorum, election) = (ports::free().unwrap(), ports::free().unwrap());
                format!("server.{id}=127.0.0.1:{quorum}:{election}\n")
            })
            .collect();
        let member = |id: usize| {
            let (peers, tls, secure, stores) = (peers.clone(), tls.clone(), secure[id - 1], stores.clone());
            ZooKeeper::start_member(id, move |port| {
                // The files exist as long as the server.
                let _stores = &stores;
                format!(
                    "clientPortAddress=127.0.0.1\nclientPort={port}\ninitLimit=20\nsyncLimit=10\n\
                     4lw.commands.whitelist=srvr\nsecureClientPortAddress=127.0.0.1\nsecureClientPort={secure}\n\
                     {tls}{peers}"
                )
            })
        };
        let servers = (1..=3).map(member).collect::<Option<Vec<_>>>()?;
        let options = options_of(&certificates);
        Some(Ensemble { servers, secure, options, _certificates: certificates })
    }

    /// The server that leads, according to itself.
    async fn leader(&self) -> &ZooKeeper {
        loop {
            for server in &self.servers {
                if mode(&server.address()).await.is_some_and(|mode| mode.contains("Mode: leader")) {
                    return server;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until all servers take part.
    async fn until_complete(&self) {
        for server in &self.servers {
            until(|| async { mode(&server.address()).await.is_some_and(|mode| mode.contains("Mode: ")) })
                .await;
        }
    }
}

/// The answer to the command `srvr`; `None` while the server cannot be reached.
async fn mode(address: &str) -> Option<String> {
    let mut answer = String::new();
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(b"srvr").await.ok()?;
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

impl Ensemble {
    /// The URL of a part of its nodes.
    fn url_of(&self, path: &str) -> String {
        let hosts: Vec<String> = self.secure.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("zookeeper+tls://me:s3cret@{}{path}?{}", hosts.join(","), self.options)
    }
}

impl Backend for Ensemble {
    fn url(&self) -> String {
        self.url_of("")
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    fn nodes(&self) -> Option<&dyn Nodes> {
        Some(self)
    }

    fn short_ttl(&self) -> Duration {
        SHORT_TTL
    }

    fn kills(&self) -> usize {
        3
    }
}

impl Nodes for Ensemble {
    fn guarantee(&self) -> Guarantee {
        Guarantee::Exclusion
    }

    fn fail_over(&self) -> Step<'_> {
        Box::pin(async {
            self.leader().await.daemon.stop();
            self.leader().await;
        })
    }

    fn repair(&self) -> Step<'_> {
        Box::pin(async {
            let stopped = self.servers.iter().filter(|server| !server.daemon.is_running());
            stopped.for_each(|server| server.daemon.start());
            self.until_complete().await;
        })
    }
}

/// On a busy machine, a new connection over TLS takes the server seconds.
const SHORT_TTL: Duration = Duration::from_secs(6);

/// Stops and starts all servers.
impl Server for Ensemble {
    fn stop(&self) {
        self.servers.iter().for_each(|server| server.daemon.stop());
    }

    fn start(&self) {
        self.servers.iter().for_each(|server| server.daemon.start());
    }
}

/// A part of the nodes of an ensemble that several tests use at the same time.
struct Part {
    ensemble: Used<Ensemble>,
    path: String,
}

impl Part {
    async fn of_shared() -> Option<Part> {
        static ENSEMBLE: Shared<Ensemble> = Shared::new();
        static PARTS: AtomicUsize = AtomicUsize::new(0);
        let ensemble = ENSEMBLE.get(Ensemble::start).await?;
        ensemble.until_complete().await;
        let path = format!("/part-{}", PARTS.fetch_add(1, Ordering::Relaxed));
        let part = Part { ensemble, path };
        // Its first handshake takes the longest.
        open(&part).await;
        Some(part)
    }
}

impl Backend for Part {
    fn url(&self) -> String {
        self.ensemble.url_of(&self.path)
    }

    fn short_ttl(&self) -> Duration {
        SHORT_TTL
    }

    /// Fewer kills, as each kill costs a session timeout.
    fn kills(&self) -> usize {
        4
    }
}

mod in_part {
    use super::Part;

    macro_rules! part {
        () => {
            match Part::of_shared().await {
                Some(part) => part,
                None => return,
            }
        };
    }

    crate::conformance_without_stops! { part!() }
}

/// An ensemble whose servers have found each other.
async fn complete() -> Option<Ensemble> {
    let ensemble = Ensemble::start()?;
    ensemble.until_complete().await;
    Some(ensemble)
}

mod alone {
    use super::complete;

    macro_rules! complete {
        () => {
            match complete().await {
                Some(ensemble) => ensemble,
                None => return,
            }
        };
    }

    crate::conformance! { complete!();
        processes::a_server_that_goes_away_is_noticed,
        detached::detached_holds_survive_a_restart_of_the_server,
        // The other failovers are below.
        processes::a_stopped_holder_is_alone_or_learns_that_it_lost,
        kills::random_kills_never_admit_two_and_never_block,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_costs_no_hold() {
    let ensemble = ensemble!();
    ensemble.until_complete().await;
    let (locks, other) = (open(&ensemble).await, open(&ensemble).await);
    let hour = Duration::from_secs(3600);
    let guard = locks.mutex("a").ttl(hour).acquire().await.unwrap();
    let waiter = tokio::spawn(other.mutex("a").ttl(hour).acquire());
    until_waiting(&locks, "a", 1).await;
    let leader = ensemble.leader().await;
    leader.daemon.stop();
    ensemble.leader().await;
    assert!(guard.is_valid());
    until(|| async { other.mutex("a").ttl(hour).try_acquire().await.is_ok_and(|guard| guard.is_none()) })
        .await;
    let fence = guard.fence();
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(next.fence() > fence, "{:?} after {fence:?}", next.fence());
    leader.daemon.start();
    ensemble.until_complete().await;
    assert!(next.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_stay_alone_while_leaders_are_killed() {
    let ensemble = ensemble!();
    ensemble.until_complete().await;
    let (inside, entries, highest) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let mut clients = Vec::new();
    for _ in 0..3 {
        let locks = open(&ensemble).await;
        let (inside, entries, highest) = (inside.clone(), entries.clone(), highest.clone());
        clients.push(tokio::spawn(async move {
            while entries.load(Ordering::SeqCst) < usize::MAX / 2 {
                // While there is no leader, requests fail.
                let Ok(guard) = locks.mutex("a").ttl(Duration::from_secs(3600)).acquire().await else {
                    continue;
                };
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                let fence = guard.fence().expect("it has fences").get();
                assert!(highest.swap(fence, Ordering::SeqCst) < fence, "fences rise");
                tokio::task::yield_now().await;
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two holders");
                entries.fetch_add(1, Ordering::SeqCst);
                // A release that is not confirmed is repeated by the next request's session, or ends with it.
                let _ = guard.release().await;
            }
        }));
    }
    let after = async |count: usize| until(|| async { entries.load(Ordering::SeqCst) >= count }).await;
    after(20).await;
    for _ in 0..2 {
        let leader = ensemble.leader().await;
        leader.daemon.stop();
        let before = entries.load(Ordering::SeqCst);
        after(before + 20).await;
        leader.daemon.start();
        ensemble.until_complete().await;
    }
    entries.store(usize::MAX / 2, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
}
