//! HTTP/2 connections that do not read, are idle, or are too many.

mod support;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lockkeeper_daemon::{Config, Daemon, Limits, MemberConfig};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use support::{get, request, soon, until};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A client connection and the task that drives it.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    ends: JoinHandle<()>,
}

impl Connection {
    /// Connects. `window` is the initial flow control window of each stream.
    async fn open(address: SocketAddr, window: Option<u32>) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let mut builder = http2::Builder::new(TokioExecutor::new());
        if let Some(window) = window {
            builder.initial_stream_window_size(window);
        }
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("HTTP/2");
        Self { sender, ends: tokio::spawn(async move { drop(connection.await) }) }
    }

    async fn get(&mut self, path: &str) -> hyper::Result<usize> {
        let mut request = request("GET", path, None);
        *request.uri_mut() = format!("http://localhost{path}").parse().expect("an address");
        let response = self.sender.send_request(request).await?;
        Ok(response.into_body().collect().await?.to_bytes().len())
    }
}

async fn daemon(folder: &std::path::Path, limits: Limits) -> (Daemon, SocketAddr) {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = Config::of(MemberConfig::alone(folder), any, any);
    config.limits = limits;
    let daemon = Daemon::start(config).await.expect("it starts");
    soon("a lease", daemon.member().ready()).await.expect("it serves");
    let address = daemon.addresses().http.expect("it serves HTTP");
    (daemon, address)
}

/// The resident memory of this process, in MiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") / 1024
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_clients_do_not_read_take_little_memory_and_end_the_connection() {
    let (locks, streams) = (number("LOCKS", 4_000), number("STREAMS", 100));
    let data = tempfile::tempdir().expect("a folder");
    let (daemon, address) =
        daemon(data.path(), Limits { request_timeout_ms: 3_000, ..Limits::default() }).await;
    let mut guards = Vec::new();
    for number in 0..locks {
        let asked = daemon.member().mutex(format!("held/by/another/{number}")).acquire();
        guards.push(soon("a lock", asked).await.expect("granted"));
    }
    let length = Connection::open(address, None).await.get("/v1/locks").await.expect("a list");
    let before = resident();
    let mut closed = Vec::new();
    let mut most = 0;
    for _ in 0..2 {
        let connection = Connection::open(address, Some(0)).await;
        for _ in 0..streams {
            let mut sender = connection.sender.clone();
            let mut request = request("GET", "/v1/locks", None);
            *request.uri_mut() = "http://localhost/v1/locks".parse().expect("an address");
            tokio::spawn(async move {
                if let Ok(response) = sender.send_request(request).await {
                    let _ = response.into_body().collect().await;
                }
            });
        }
        closed.push(connection.ends);
    }
    let all_closed = async {
        while closed.iter().any(|ends| !ends.is_finished()) {
            most = most.max(resident());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let bounded = tokio::time::timeout(Duration::from_secs(60), all_closed).await;
    let (pinned, grown) = (2 * streams * length / (1 << 20), most.saturating_sub(before));
    println!(
        "{locks} locks, 2 connections of {streams} streams: {pinned} MiB of replies, {grown} MiB more memory, closed: {}",
        bounded.is_ok()
    );
    assert!(grown < pinned / 2, "{grown} MiB for {pinned} MiB of unread replies");
    assert!(bounded.is_ok(), "a client that does not read must be disconnected");
    // Other clients are served as before.
    let again = Connection::open(address, None).await.get("/v1/locks").await.expect("a list");
    assert!(again >= length, "{again} of {length} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_concurrent_reads_of_one_connection_are_answered() {
    let data = tempfile::tempdir().expect("a folder");
    let (_daemon, address) = daemon(data.path(), Limits::default()).await;
    let connection = Connection::open(address, None).await;
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let mut same = Connection { sender: connection.sender.clone(), ends: tokio::spawn(async {}) };
        asking.spawn(async move { same.get("/openapi.json").await.expect("a document") });
    }
    let lengths = soon("all replies", asking.join_all()).await;
    assert!(lengths.len() == 50 && lengths.iter().all(|length| *length > 16 << 10), "{lengths:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_are_closed() {
    let data = tempfile::tempdir().expect("a folder");
    let (_daemon, address) = daemon(data.path(), Limits { idle_timeout_ms: 200, ..Limits::default() }).await;
    let mut connection = Connection::open(address, None).await;
    connection.get("/healthz").await.expect("it lives");
    soon("closed", connection.ends).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_with_a_watch_stream_is_not_idle() {
    let data = tempfile::tempdir().expect("a folder");
    let (daemon, address) =
        daemon(data.path(), Limits { idle_timeout_ms: 50, request_timeout_ms: 2_000, ..Limits::default() })
            .await;
    let mut connection = Connection::open(address, None).await;
    let mut request = request("GET", "/v1/watch", None);
    *request.uri_mut() = "http://localhost/v1/watch".parse().expect("an address");
    let response = connection.sender.send_request(request).await.expect("events");
    let mut events = response.into_body();
    // Much longer than either limit. There is no event to wait for, since nothing must happen.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let _guard = soon("a lock", daemon.member().mutex("seen").acquire()).await.expect("granted");
    let event = soon("an event", events.frame()).await.expect("the stream goes on").expect("a frame");
    assert!(event.data_ref().is_some_and(|data| data.windows(4).any(|text| text == b"seen")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_make_room_for_others_and_leave_places_for_native_clients() {
    let data = tempfile::tempdir().expect("a folder");
    let (daemon, address) = daemon(data.path(), Limits { connections: 8, ..Limits::default() }).await;
    let mut idle = Vec::new();
    for _ in 0..6 {
        let mut connection = Connection::open(address, None).await;
        soon("a reply", connection.get("/healthz")).await.expect("it lives");
        idle.push(connection);
    }
    let clients = daemon.addresses().clients.expect("it serves clients");
    let native = async { lockkeeper::Lockkeeper::open(&format!("lockkeeper://{clients}")).await };
    soon("a native client", native).await.expect("it has a place");
    for _ in 0..20 {
        get(address, "/healthz").await.is_text(200, "");
    }
    let idle = &idle;
    until("idle connections are closed", || async move {
        idle.iter().any(|connection| connection.ends.is_finished())
    })
    .await;
}
