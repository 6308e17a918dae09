//! Daemons in this process, over real sockets, and a client for them.

#![allow(dead_code, reason = "each test uses a part of it")]

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use lockkeeper_cluster::{JoinToken, MemberId, Times};
use lockkeeper_daemon::{Config, Daemon, Limits, MemberConfig};
use lockkeeper_testbed::ports;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpStream;

/// Far longer than any step takes, so that only a hang fails.
pub const LONG: Duration = Duration::from_secs(120);

pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.unwrap_or_else(|_| panic!("{what}: nothing after {LONG:?}"))
}

/// Waits until a condition holds.
pub async fn until<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) {
    let waiting = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(what, waiting).await;
}

/// A token for the locks of one prefix, and one for everything.
pub const TOKENS: &str = r#"
[[token]]
name = "ci"
sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of "secret"
acquire = ["ci/"]
[[token]]
name = "root"
sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # of "test"
acquire = [""]
observe = [""]
admin = [""]
"#;

/// The configuration of the daemons.
#[derive(Default)]
pub struct Plan {
    pub limits: Limits,
    pub tokens: Option<&'static str>,
    /// The index of a daemon that runs on a runtime of its own, which a test can stall.
    pub elsewhere: Option<(usize, tokio::runtime::Handle)>,
    /// Factor for all durations. Default: 4.
    pub times: Option<u32>,
    /// Whether the daemons serve the native protocol, too.
    pub native: bool,
}

pub struct Daemons {
    pub all: Vec<Daemon>,
    pub directory: TempDir,
    configs: Vec<Config>,
}

fn any() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

impl Daemons {
    pub async fn start(count: u32) -> Self {
        Self::start_with(count, Plan::default()).await
    }

    pub async fn start_with(count: u32, plan: Plan) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str| directory.path().join(name);
        // No connection and no other test gets these ports.
        let free = || SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free().expect("a free port")));
        let addresses: Vec<SocketAddr> = (0..count).map(|_| free()).collect();
        let all_members: BTreeMap<_, _> =
            (1..).map(MemberId).zip(addresses.iter().map(ToString::to_string)).collect();
        if let Some(tokens) = plan.tokens {
            std::fs::write(file("tokens"), tokens).expect("written");
        }
        let join_token = JoinToken::random().expect("random");
        let (mut all, mut configs) = (Vec::new(), Vec::new());
        for (&id, &listen) in all_members.keys().zip(&addresses) {
            let mut member = MemberConfig::new(id, listen, file(&id.0.to_string()));
            member.first_members.clone_from(&all_members);
            member.join_token = Some(join_token.clone());
            // On a loaded machine a process may pause for long, and these tests are not about speed.
            member.times = Times::default().times(plan.times.unwrap_or(4));
            let mut config = Config::of(member, any(), any());
            config.clients = plan.native.then(any);
            config.tokens = plan.tokens.map(|_| file("tokens"));
            config.audit = Some(file("audit"));
            config.limits = plan.limits.clone();
            config.leave_timeout = Duration::ZERO;
            configs.push(config.clone());
            let start = Daemon::start(config);
            let daemon = match &plan.elsewhere {
                Some((place, runtime)) if *place == all.len() => {
                    runtime.spawn(start).await.expect("no panic")
                }
                _ => start.await,
            };
            all.push(daemon.expect("it starts"));
        }
        let daemons = Self { all, directory, configs };
        daemons.serve().await;
        daemons
    }

    /// Waits until all daemons are in the view and serve.
    async fn serve(&self) {
        let all = &self.all;
        for daemon in all {
            let mut changes = daemon.member().status_changes();
            let joined = async {
                while daemon.member().status().view.is_none_or(|view| view.members.len() != all.len()) {
                    changes.changed().await.expect("it lives");
                }
                daemon.member().ready().await.expect("it serves");
            };
            soon("all members in the view", joined).await;
        }
    }

    /// Stops all daemons as in a crash, and starts them again with their disks.
    pub async fn restart_all(&mut self) {
        for daemon in self.all.drain(..) {
            daemon.stop().await;
        }
        for config in &self.configs {
            self.all.push(Daemon::start(config.clone()).await.expect("it starts"));
        }
        self.serve().await;
    }

    pub fn address(&self, place: usize) -> SocketAddr {
        self.all[place].addresses().http.expect("it serves HTTP")
    }

    /// The address of the native protocol of a daemon.
    pub fn native(&self, place: usize) -> SocketAddr {
        self.all[place].addresses().clients.expect("it serves the native protocol")
    }

    /// The entries of the audit log so far.
    pub fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.directory.path().join("audit")).expect("an audit log");
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Stops a daemon as in a crash.
    pub async fn kill(&mut self, place: usize) {
        self.all.remove(place).stop().await;
    }
}

/// A response of a daemon.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The JSON body, after checking the status.
    #[track_caller]
    pub fn is(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        if self.text.is_empty() { Value::Null } else { self.json() }
    }
}

/// Sends a request over a connection of its own, which ends when the future is dropped.
pub async fn ask(address: SocketAddr, request: Request<Full<Bytes>>) -> Answer {
    let stream = TcpStream::connect(address).await.expect("the daemon listens");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    let asking = async {
        let response = sender.send_request(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("all of it").to_bytes();
        let text = String::from_utf8(body.to_vec()).expect("text");
        Answer { status: parts.status, headers: parts.headers, text }
    };
    tokio::pin!(asking);
    tokio::select! {
        answer = &mut asking => answer,
        _ = connection => asking.await,
    }
}

pub fn request(method: &str, path: &str, body: Option<&Value>) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    match body {
        Some(body) => {
            let request = request.header("content-type", "application/json");
            request.body(Full::from(body.to_string())).expect("a request")
        }
        None => request.body(Full::default()).expect("a request"),
    }
}

pub async fn get(address: SocketAddr, path: &str) -> Answer {
    soon(path, ask(address, request("GET", path, None))).await
}

pub async fn post(address: SocketAddr, path: &str, body: Value) -> Answer {
    soon(path, ask(address, request("POST", path, Some(&body)))).await
}

pub async fn delete(address: SocketAddr, path: &str) -> Answer {
    soon(path, ask(address, request("DELETE", path, None))).await
}

/// Sends a request with a token.
pub async fn post_as(address: SocketAddr, token: &str, path: &str, body: Value) -> Answer {
    let mut asked = request("POST", path, Some(&body));
    asked.headers_mut().insert("authorization", format!("Bearer {token}").parse().expect("text"));
    soon(path, ask(address, asked)).await
}

/// Creates a session.
pub async fn session(address: SocketAddr, ttl_ms: u64) -> String {
    let made = post(address, "/v1/sessions", json!({ "ttl_ms": ttl_ms, "owner": "test" })).await.is(201);
    made["session"].as_str().expect("a number").into()
}

/// Waits until a lock has `count` waiters.
pub async fn waiters(address: SocketAddr, name: &str, count: usize) {
    let path = format!("/v1/locks/{name}");
    until("waiters", || async {
        get(address, &path).await.is(200)["waiters"].as_array().is_some_and(|waiters| waiters.len() == count)
    })
    .await;
}

impl Answer {
    /// Checks the status and the beginning of a plain text.
    #[track_caller]
    pub fn is_text(&self, status: u16, begins: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.text.starts_with(begins), "{self:?}");
    }
}

/// Waits until a lock has `count` waiters, with a token.
pub async fn waiters_with(token: &str, address: SocketAddr, name: &str, count: usize) {
    let path = format!("/v1/locks/{name}");
    until("waiters", || async {
        let mut asked = request("GET", &path, None);
        asked.headers_mut().insert("authorization", format!("Bearer {token}").parse().expect("text"));
        let seen = soon(&path, ask(address, asked)).await.is(200);
        seen["waiters"].as_array().is_some_and(|waiters| waiters.len() == count)
    })
    .await;
}
