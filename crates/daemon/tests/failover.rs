//! A client whose connection breaks repeats its waiting requests at another daemon, and leaves no request behind at
//! the first one.

use lockkeeper::Lockkeeper;
use lockkeeper_cluster::Times;
use lockkeeper_daemon::{Config, Daemon, Limits, MemberConfig, MemberId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Far longer than any step takes, so that only a hang fails.
const LONG: Duration = Duration::from_secs(120);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.unwrap_or_else(|_| panic!("{what}: nothing after {LONG:?}"))
}

/// The captured log, one JSON object per line.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures everything that is logged from now on. All tests in this file share one log.
    fn begin() -> Self {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().json().with_max_level(tracing::Level::DEBUG);
        subscriber.with_writer(move || writer.clone()).init();
        log
    }

    /// The acquisitions of this lock, each with its trace.
    fn traces(&self, lock: &str) -> BTreeMap<String, String> {
        let bytes = self.0.lock().expect("no panic").clone();
        let lines = String::from_utf8(bytes).expect("text");
        let spans = lines.lines().filter_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            let span = line["span"].clone();
            let text = |key: &str| span[key].as_str().map(String::from);
            (text("lock")? == lock && text("by")? == "native")
                .then_some((text("acquisition")?, text("trace")?))
        });
        spans.collect()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A proxy to a daemon that can be closed and opened again.
struct Proxy {
    address: SocketAddr,
    open: Arc<watch::Sender<bool>>,
    passing: Arc<watch::Sender<usize>>,
}

impl Proxy {
    async fn to(daemon: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (open, passing) = (Arc::new(watch::Sender::new(true)), Arc::new(watch::Sender::new(0)));
        let (opened, passes) = (open.clone(), passing.clone());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut closed = opened.subscribe();
                if !*closed.borrow() {
                    continue;
                }
                let passes = passes.clone();
                tokio::spawn(async move {
                    let Ok(mut onward) = TcpStream::connect(daemon).await else { return };
                    passes.send_modify(|count| *count += 1);
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut onward) => {}
                        _ = closed.wait_for(|open| !open) => {}
                    }
                    passes.send_modify(|count| *count -= 1);
                });
            }
        });
        Self { address, open, passing }
    }

    async fn has(&self, connections: usize) {
        let mut passing = self.passing.subscribe();
        soon("connections", passing.wait_for(|count| *count == connections)).await.expect("it lives");
    }
}

/// Starts one daemon.
async fn one_daemon(folder: &Path, limits: Limits) -> (Daemon, SocketAddr) {
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let mut config = Config { http: None, limits, clients: Some(any), ..Config::alone(folder) };
    config.member.listen = any;
    config.member.times = Times::default().times(10);
    let daemon = Daemon::start(config).await.expect("it starts");
    soon("a daemon that serves", daemon.member().ready()).await.expect("it lives");
    let address = daemon.addresses().clients.expect("it serves clients");
    (daemon, address)
}

/// Starts two daemons of one cluster.
async fn two_daemons(folder: &Path) -> [Daemon; 2] {
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let sockets = [any; 2].map(|any| std::net::TcpListener::bind(any).expect("a free port"));
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().expect("bound"));
    drop(sockets);
    let join_token = lockkeeper_cluster::JoinToken::random().expect("random");
    let start = async |id: u32| {
        let listen = addresses[id as usize - 1];
        let mut member = MemberConfig::new(MemberId(id), listen, folder.join(id.to_string()));
        member.first_members = [1, 2].map(|id| (MemberId(id), addresses[id as usize - 1].to_string())).into();
        member.join_token = Some(join_token.clone());
        // The connection is interrupted only briefly relative to the lease, on a slow machine, too.
        member.times = Times::default().times(10);
        let mut config = Config::of(member, any, any);
        config.http = None;
        Daemon::start(config).await.expect("it starts")
    };
    let (one, two) = tokio::join!(start(1), start(2));
    for daemon in [&one, &two] {
        soon("a daemon that serves", daemon.member().ready()).await.expect("it lives");
    }
    [one, two]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_repeated_at_another_daemon_is_withdrawn_at_the_first() {
    let log = Log::begin();
    let folder = tempfile::tempdir().expect("a folder");
    let daemons = two_daemons(folder.path()).await;
    let [one, two] = daemons.each_ref().map(|daemon| daemon.addresses().clients.expect("it serves clients"));
    let other =
        soon("a connection", Lockkeeper::open(&format!("lockkeeper://{two}"))).await.expect("it serves");
    let in_the_way = other.mutex("wanted").acquire().await.expect("it is free");

    // The client holds one lock, so that its session continues, and waits for another.
    let (first, second) = (Proxy::to(one).await, Proxy::to(two).await);
    let url = format!("lockkeeper://{},{}?in-order", first.address, second.address);
    let client = soon("a connection", Lockkeeper::open(&url)).await.expect("it serves");
    first.has(1).await;
    let held = client.mutex("held").acquire().await.expect("it is free");
    let waits = tokio::spawn(client.mutex("wanted").acquire());
    let waiting_once = async || {
        let seen = async {
            while other.inspect("wanted").await.expect("an answer").waiters.len() != 1 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        soon("one waiter", seen).await;
    };
    waiting_once().await;
    first.open.send_replace(false);
    // It waits through the second proxy, and the second daemon relays the messages of its hold to the first one: also the
    // one that withdraws the request there.
    second.has(2).await;
    waiting_once().await;
    in_the_way.release().await.expect("it was held");
    let wanted = soon("the wait", waits).await.expect("no panic").expect("it is free");
    // Both daemons have logged the request under one trace; the third acquisition is the one that held the lock
    // before.
    let traces = log.traces("wanted");
    assert_eq!(traces.len(), 3, "{traces:?}");
    assert_eq!(traces.values().collect::<BTreeSet<_>>().len(), 2, "{traces:?}");
    wanted.release().await.expect("it was held");
    held.release().await.expect("it was held, or is lost");
    // No grant is left to a request that was withdrawn, and the connection that is no longer needed ends.
    let again = soon("the lock", other.mutex("wanted").acquire()).await.expect("it is free");
    again.release().await.expect("it was held");
    second.has(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_above_the_limit_is_refused_without_endless_retries() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits { sessions: 1, ..Limits::default() };
    let (daemon, address) = one_daemon(folder.path(), limits).await;
    let url = format!("lockkeeper://{address}");
    let first = soon("a connection", Lockkeeper::open(&url)).await.expect("it serves");
    let held = soon("a lock", first.mutex("a").acquire()).await.expect("it is free");
    let second = soon("a connection", Lockkeeper::open(&url)).await.expect("a connection is no session");
    let Err(refused) = soon("an answer", second.mutex("b").acquire()).await else {
        panic!("a second session")
    };
    assert!(refused.to_string().contains("at most 1 sessions"), "{refused}");
    assert!(matches!(refused, lockkeeper::Error::LimitExceeded { .. }), "{refused:?}");
    // Once the first session has ended, there is room.
    held.release().await.expect("it was held");
    drop(first);
    let served = async {
        loop {
            match second.mutex("b").acquire().await {
                Ok(guard) => return guard,
                Err(error) => assert!(error.to_string().contains("at most 1 sessions"), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    drop(soon("room for the second", served).await);
    daemon.stop().await;
}

/// Listeners that wait for a connection do not occupy a place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_limit_applies_to_all_listeners_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let (data, socket) = (folder.path().join("data"), folder.path().join("socket"));
    let limits = Limits { connections: 1, ..Limits::default() };
    let mut config = Config { clients: Some(any), http: Some(any), limits, ..Config::alone(data) };
    (config.member.listen, config.socket) = (any, Some(socket.clone()));
    let daemon = Daemon::start(config).await.expect("it starts");
    soon("a daemon that serves", daemon.member().ready()).await.expect("it lives");
    let by_tcp = format!("lockkeeper://{}", daemon.addresses().clients.expect("it serves clients"));
    // One after the other, through each listener: each client gets the place of the one before.
    for url in [&by_tcp, &format!("lockkeeper://{}", socket.display()), &by_tcp] {
        let client = soon(url, Lockkeeper::open(url)).await.expect("it serves");
        soon(url, client.mutex("a").acquire()).await.expect("it is free").release().await.expect("held");
    }
    daemon.stop().await;
}
