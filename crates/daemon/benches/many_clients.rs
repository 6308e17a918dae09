//! Many clients at one daemon: the memory of a session and of a waiter, the number of clients that a handoff wakes,
//! and the time to serve all clients that reconnect at once after the daemon was killed.
//!
//! ```sh
//! cargo bench -p lockkeeper-daemon --bench many_clients            # 10,000 clients
//! cargo bench -p lockkeeper-daemon --bench many_clients -- 1000    # fewer
//! ```
//!
//! The daemon is a separate process; the clients are connections of this one, each with a session that is kept alive.

use lockkeeper_daemon::{Config, Daemon};
use lockkeeper_session::protocol::{Frames, FromDaemon, Greeting, Hello, Secret, ToDaemon};
use lockkeeper_session::{LockName, LockRequest, ToClient, ToMember};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, watch};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let [role, data, port] = &arguments[..]
        && role == "daemon"
    {
        return serve(Path::new(data), port.parse().unwrap());
    }
    let clients = arguments.first().map_or(10_000, |count| count.parse().expect("a number of clients"));
    more_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(measure(clients));
}

/// Raises the limit of open files, since each connection is one, in both processes.
fn more_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("up to the hard limit");
}

fn serve(data: &Path, port: u16) {
    more_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut config = Config { clients: Some(at(port)), http: None, ..Config::alone(data) };
        config.member.listen = at(0);
        // Thousands of clients share two cores with the daemon: leave enough time for all keep-alives.
        config.member.times = config.member.times.times(10);
        let daemon = Daemon::start(config).await.unwrap();
        daemon.member().ready().await.unwrap();
        println!("{}", daemon.addresses().clients.unwrap());
        daemon.ends().await;
    });
}

/// The daemon's process.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(data: &Path, port: u16) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["daemon", data.to_str().unwrap(), &port.to_string()]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().parse().expect("the daemon prints its address") }
    }

    /// Its resident memory, in bytes.
    fn memory(&self) -> f64 {
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        pages.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The state that all clients share.
struct SharedState {
    alive: AtomicU64,
    granted: AtomicU64,
    notified: AtomicU64,
    ask: watch::Sender<()>,
    release: Notify,
    leave: AtomicU64,
}

impl SharedState {
    fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        let (ask, release) = (watch::Sender::new(()), Notify::new());
        Arc::new(Self { alive: zero(), granted: zero(), notified: zero(), ask, release, leave: zero() })
    }
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn measure(count: u64) {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), 0);
    let (address, empty) = (server.address, server.memory());
    let began = Instant::now();
    let state = gather(address, count).await;
    let with_sessions = server.memory();
    println!("{count} clients connected, each with a session, in {:.1} s", began.elapsed().as_secs_f64());
    println!("  {:.0} bytes of the daemon's memory for each", (with_sessions - empty) / count as f64);

    state.ask.send_replace(());
    until(|| state.granted.load(Ordering::Relaxed) == 1).await;
    // A connection keeps its messages in order: once two further keep-alives of every client are answered, all
    // requests have arrived.
    let alive = state.alive.load(Ordering::Relaxed);
    until(|| state.alive.load(Ordering::Relaxed) >= alive + 2 * count).await;
    let with_waiters = server.memory();
    println!("one holds a lock, {} wait for it", count - 1);
    println!(
        "  {:.0} bytes of the daemon's memory for each waiter",
        (with_waiters - with_sessions) / count as f64
    );

    let notified = state.notified.load(Ordering::Relaxed);
    let mut handoffs = Vec::new();
    for entry in 2..=101 {
        let began = Instant::now();
        state.release.notify_one();
        until(|| state.granted.load(Ordering::Relaxed) == entry).await;
        handoffs.push(began.elapsed());
    }
    handoffs.sort();
    // Each handoff sends a message to the previous holder and to the next one.
    let woken = state.notified.load(Ordering::Relaxed) - notified;
    println!(
        "100 handoffs: {woken} clients were notified: each time the one that left and the one that entered"
    );
    println!(
        "  {:.1} ms for each, in the median (with {count} clients kept alive meanwhile)",
        handoffs[50].as_secs_f64() * 1e3
    );
    assert!(woken <= 200, "a handoff wakes one waiter");

    state.leave.store(1, Ordering::Relaxed);
    drop(server);
    let server = Server::start(data.path(), address.port());
    let began = Instant::now();
    let again = gather(server.address, count).await;
    println!("the daemon was killed, started again, and {count} clients came back at once");
    println!("  all of them have a session again after {:.1} s", began.elapsed().as_secs_f64());
    again.leave.store(1, Ordering::Relaxed);
}

/// Connects `count` clients and waits until each has a session.
async fn gather(address: SocketAddr, count: u64) -> Arc<SharedState> {
    let (state, dialling) = (SharedState::new(), Arc::new(Semaphore::new(512)));
    for number in 1..=count {
        tokio::spawn(client(address, number, state.clone(), dialling.clone()));
    }
    until(|| state.alive.load(Ordering::Relaxed) >= count).await;
    state
}

async fn client(address: SocketAddr, number: u64, state: Arc<SharedState>, dialling: Arc<Semaphore>) {
    let permit = dialling.acquire().await.unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut bytes = lockkeeper_session::protocol::opening().to_vec();
    let secret = Secret::new(u128::from(number).to_le_bytes());
    lockkeeper_session::protocol::encode(&Hello { secret, token: None, for_locks: true }, &mut bytes);
    stream.write_all(&bytes).await.unwrap();
    let mut frames = Frames::new(1 << 20);
    stream.read_exact(&mut [0; 6]).await.unwrap();
    while frames.take::<Greeting>().unwrap().is_none() {
        assert_ne!(stream.read_buf(&mut frames.arrived).await.unwrap(), 0);
    }
    drop(permit);
    let session = 1;
    let mut asked = state.ask.subscribe();
    let mut keep_alive = tokio::time::interval(Duration::from_secs(3));
    let (mut first, mut held) = (true, false);
    loop {
        let message = tokio::select! {
            _ = keep_alive.tick() => ToMember::KeepAlive { sent_ns: 1, first: std::mem::take(&mut first), settled: 1, generation: None },
            Ok(()) = asked.changed() => {
                ToMember::Acquire { number: 1, settled: 1, request: LockRequest::exclusive(LockName::new("crowded")) }
            }
            () = state.release.notified(), if held => {
                held = false;
                ToMember::Release { number: 1 }
            }
            read = stream.read_buf(&mut frames.arrived) => {
                if !matches!(read, Ok(1..)) || state.leave.load(Ordering::Relaxed) == 1 {
                    return;
                }
                while let Some(message) = frames.take::<FromDaemon>().unwrap() {
                    match message {
                        FromDaemon::Session(_, ToClient::Alive { .. }) => {
                            state.alive.fetch_add(1, Ordering::Relaxed);
                        }
                        FromDaemon::Session(_, ToClient::Granted { .. }) => {
                            held = true;
                            state.notified.fetch_add(1, Ordering::Relaxed);
                            state.granted.fetch_add(1, Ordering::Relaxed);
                        }
                        FromDaemon::Session(_, ToClient::Ended { .. }) => {
                            state.notified.fetch_add(1, Ordering::Relaxed);
                        }
                        other => panic!("{other:?}"),
                    }
                }
                continue;
            }
        };
        let mut bytes = Vec::new();
        lockkeeper_session::protocol::encode(&ToDaemon::Session(session, message), &mut bytes);
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
