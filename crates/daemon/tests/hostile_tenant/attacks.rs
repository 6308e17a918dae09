//! The attacks of the hostile tenant. Each one runs for a given time, with the tenant's own token, in a process of
//! its own.
//!
//! An attack is contained if it reaches nothing that belongs to other tenants. The parent process observes whether it
//! harms them.

use crate::client::{self, Native, ask, bytes, connect, get, http2, post, pour};
use crate::cluster::{Ports, TENANTS, secret};
use lockkeeper_session::protocol::{DaemonQuery, DaemonReply, FromDaemon, ToDaemon};
use lockkeeper_session::{LockName, LockRequest, ToClient, ToMember};
use serde_json::json;
use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

/// The number of the attacker's session on each connection.
const SESSION: u64 = 1;

/// One of the attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Connects under identities of other tenants' sessions.
    Sessions,
    /// Releases other tenants' holds by force, with its right to release its own.
    ForceRelease,
    /// Sends bytes to the ports of members, or stays silent there.
    MemberPorts,
    /// Looks for names and owners of other tenants' locks.
    Look,
    /// Opens many watch streams on one connection.
    Watches,
    /// Requests long lists, many at a time.
    Lists,
    /// Requests long lists over HTTP/2 and reads none of the bytes.
    ZeroWindow,
    /// Opens connections and sends nothing.
    Idle,
    /// Creates as many sessions as it can.
    ManySessions,
    /// Uses up lock names.
    Names,
    /// Sends requests that are refused and logged.
    Refusals,
    /// Sends malformed names, owners and bytes.
    Malformed,
}

impl Attack {
    pub const ALL: [Self; 12] = [
        Self::Sessions,
        Self::ForceRelease,
        Self::MemberPorts,
        Self::Look,
        Self::Watches,
        Self::Lists,
        Self::ZeroWindow,
        Self::Idle,
        Self::ManySessions,
        Self::Names,
        Self::Refusals,
        Self::Malformed,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::ForceRelease => "force-release",
            Self::MemberPorts => "member-ports",
            Self::Look => "look",
            Self::Watches => "watches",
            Self::Lists => "lists",
            Self::ZeroWindow => "zero-window",
            Self::Idle => "idle",
            Self::ManySessions => "many-sessions",
            Self::Names => "names",
            Self::Refusals => "refusals",
            Self::Malformed => "malformed",
        }
    }
}

/// The state of the attacking process.
struct Attacker {
    until: Instant,
    ports: Vec<Ports>,
    /// Acquisitions of other tenants.
    acquisitions: Vec<String>,
    token: String,
    /// The index of the daemon for the next connection.
    turn: usize,
}

/// `attack NAME MILLISECONDS PORTS ACQUISITIONS`
pub fn main(arguments: &[String]) -> ExitCode {
    let [name, lasts, ports, acquisitions] = arguments else { return ExitCode::FAILURE };
    let attack = Attack::ALL.into_iter().find(|attack| attack.name() == name).expect("the judge names it");
    let lasts = Duration::from_millis(lasts.parse().expect("the judge counts"));
    let port = |text: &str| text.parse::<u16>().expect("the judge knows the ports");
    let ports = ports.split(';').map(|ports| {
        let mut ports = ports.split(',').map(port);
        let mut next = || ports.next().expect("three ports");
        Ports { members: next(), clients: next(), http: next() }
    });
    let mut attacker = Attacker {
        until: Instant::now() + lasts,
        ports: ports.collect(),
        acquisitions: acquisitions.split(';').map(String::from).collect(),
        token: secret(0),
        turn: 0,
    };
    let _ = rustix::process::nice(19);
    more_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime.expect("a runtime").block_on(attacker.run(attack)) {
        Ok(did) => {
            println!("{:<20} {did}", "");
            ExitCode::SUCCESS
        }
        Err(achieved) => {
            println!("{name}: {achieved}");
            ExitCode::FAILURE
        }
    }
}

/// Raises the limit of open files, since each connection is one.
fn more_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// An error if a text contains the name of a lock or an owner of another tenant.
fn names_no_other_tenant(text: &str) -> Result<(), String> {
    let foreign = (1..TENANTS)
        .find(|tenant| text.contains(&format!("t{tenant}/")) || text.contains(&format!("tenant {tenant}")));
    match foreign {
        Some(tenant) => {
            Err(format!("it sees what belongs to tenant {tenant}: {}", &text[..text.len().min(300)]))
        }
        None => Ok(()),
    }
}

/// An error if a connection that requested nothing received a grant.
async fn receives_no_foreign_events(mut native: Native) -> Result<(), String> {
    while let Some(message) = native.receive(Duration::from_millis(2)).await {
        if let FromDaemon::Session(session, ToClient::Granted { .. }) = message {
            return Err(format!("it received a grant of session {session}"));
        }
    }
    Ok(())
}

impl Attacker {
    fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }

    async fn rest(&self) {
        tokio::time::sleep_until(self.until.into()).await;
    }

    fn next(&mut self) -> Ports {
        self.turn += 1;
        self.ports[self.turn % self.ports.len()].clone()
    }

    /// Runs an attack and describes what was tried; an error describes what it achieved.
    async fn run(&mut self, attack: Attack) -> Result<String, String> {
        match attack {
            Attack::Sessions => self.sessions().await,
            Attack::ForceRelease => self.force_release().await,
            Attack::MemberPorts => self.member_ports().await,
            Attack::Look => self.look().await,
            Attack::Watches => self.watches().await,
            Attack::Lists => self.lists().await,
            Attack::ZeroWindow => self.zero_window().await,
            Attack::Idle => self.idle().await,
            Attack::ManySessions => self.many_sessions().await,
            Attack::Names => self.names().await,
            Attack::Refusals => self.refusals().await,
            Attack::Malformed => self.malformed().await,
        }
    }

    async fn sessions(&mut self) -> Result<String, String> {
        let (mut tried, mut open) = (0, VecDeque::new());
        while self.goes_on() {
            for number in (0..64).chain(self.foreign_clients()) {
                let Ports { clients, .. } = self.next();
                tried += 1;
                let Ok(mut native) = Native::open(clients, number.into(), &self.token).await else {
                    continue;
                };
                let alive = ToMember::KeepAlive { sent_ns: 1, first: false, settled: 1, generation: None };
                let messages = [1, 2, number].map(|session| ToDaemon::Session(session, alive.clone()));
                native.send(&messages).await.ok();
                // Keep the connection for a while: a session with this identity may begin later.
                open.push_back(native);
                if open.len() > 100 {
                    receives_no_foreign_events(open.pop_front().expect("there are many")).await?;
                }
                if !self.goes_on() {
                    break;
                }
            }
        }
        for native in open {
            receives_no_foreign_events(native).await?;
        }
        Ok(format!("{tried} identities tried"))
    }

    /// Client numbers in the acquisitions of other tenants, and those that follow.
    fn foreign_clients(&self) -> Vec<u64> {
        let number = |text: &String| text.strip_prefix('C')?.split('#').next()?.parse::<u64>().ok();
        let known = self.acquisitions.iter().filter_map(number);
        known.flat_map(|number| [number, number.wrapping_add(1), number.wrapping_add(2)]).collect()
    }

    async fn force_release(&mut self) -> Result<String, String> {
        let mut tried = 0;
        while self.goes_on() {
            for acquisition in self.acquisitions.clone() {
                let Ports { http, .. } = self.next();
                let body = json!({ "acquisition": acquisition });
                let answer = ask(http, post("/v1/locks/t0%2Fown/force-release", &self.token, &body)).await;
                tried += 1;
                if answer
                    .is_ok_and(|answer| answer.contains(&acquisition) && answer.contains("\"released\":[\""))
                {
                    return Err(format!("it released {acquisition}, which holds no lock of its own"));
                }
            }
        }
        Ok(format!("{tried} holds of others named"))
    }

    async fn member_ports(&mut self) -> Result<String, String> {
        let (mut silent, mut noisy) = (Vec::new(), 0);
        for ports in &self.ports {
            for _ in 0..100 {
                silent.extend(connect(ports.members).await);
            }
        }
        while self.goes_on() {
            let Ports { members, .. } = self.next();
            let Ok(mut stream) = connect(members).await else { continue };
            let _ = stream.write_all(&vec![noisy as u8; 4096]).await;
            noisy += 1;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(format!("{} silent connections, {noisy} with nonsense", silent.len()))
    }

    async fn look(&mut self) -> Result<String, String> {
        let mut looked = 0;
        while self.goes_on() {
            let Ports { http, clients, .. } = self.next();
            for path in [
                "/v1/locks",
                "/v1/locks?prefix=t1/",
                "/v1/locks/t1%2Flong",
                "/v1/locks/t0%2Fown/why",
                "/v1/status",
                "/metrics",
            ] {
                looked += 1;
                for token in [&*self.token, "lk_no-such-token"] {
                    let seen = ask(http, get(path, token)).await.unwrap_or_default();
                    // A refusal may repeat the name in the request.
                    if !seen.contains("\"error\"") && !seen.contains("\"code\"") {
                        names_no_other_tenant(&seen).map_err(|why| format!("{path}: {why}"))?;
                    }
                }
            }
            let Ok(mut native) = Native::open(clients, self.own_secret(), &self.token).await else {
                continue;
            };
            let asked = [
                DaemonQuery::Locks(None),
                DaemonQuery::Why(String::from("t0/own")),
                DaemonQuery::Why(String::from("t1/turns")),
            ];
            let asked: Vec<_> = (1..).zip(asked).map(|(number, ask)| ToDaemon::Query(number, ask)).collect();
            native.send(&asked).await.ok();
            while let Some(message) = native.receive(Duration::from_millis(200)).await {
                looked += 1;
                if let FromDaemon::Reply(_, answer) = message
                    && !matches!(answer, DaemonReply::Refused(_))
                {
                    names_no_other_tenant(&format!("{answer:?}"))?;
                }
            }
        }
        Ok(format!("{looked} answers, none about others"))
    }

    /// A secret of its own for each connection.
    fn own_secret(&self) -> u128 {
        u128::from(std::process::id()) << 64 | self.turn as u128 | 1 << 126
    }

    /// A connection that holds as many of these locks as it is granted.
    async fn holds(&mut self, most: u64) -> Result<(Native, usize), String> {
        let Ports { clients, .. } = self.next();
        let mut native = Native::open(clients, self.own_secret(), &self.token).await?;
        native
            .send(&[ToDaemon::Session(
                SESSION,
                ToMember::KeepAlive { sent_ns: 1, first: true, settled: 1, generation: None },
            )])
            .await?;
        let mut held = 0;
        for first in (1..=most).step_by(500) {
            let acquire = |number| {
                let request =
                    LockRequest::exclusive(LockName::new(format!("t0/hoard-{}-{number}", self.turn)));
                ToDaemon::Session(SESSION, ToMember::Acquire { number, settled: 1, request })
            };
            native.send(&(first..(first + 500).min(most + 1)).map(acquire).collect::<Vec<_>>()).await?;
            while let Some(message) = native.receive(Duration::from_millis(100)).await {
                held += usize::from(matches!(message, FromDaemon::Session(_, ToClient::Granted { .. })));
            }
        }
        Ok((native, held))
    }

    async fn watches(&mut self) -> Result<String, String> {
        let (mut native, held) = self.holds(2_000).await?;
        let (mut streams, mut opened) = (Vec::new(), 0);
        while self.goes_on() {
            let Ports { http, .. } = self.next();
            let Ok(mut sender) = http2(http, 1 << 20).await else { continue };
            for _ in 0..50 {
                let answer = sender.send_request(get("/v1/watch", &self.token));
                streams.push(tokio::spawn(async move { client::text(answer.await.ok()?).await.ok() }));
                opened += 1;
            }
            // Its own locks change all the time.
            let release = (1..100).map(|number| ToDaemon::Session(SESSION, ToMember::Release { number }));
            native.send(&release.collect::<Vec<_>>()).await.ok();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(format!("{opened} watch streams over {held} own holds"))
    }

    async fn lists(&mut self) -> Result<String, String> {
        let (_holds, held) = self.holds(2_000).await?;
        let mut lists = 0;
        let many = bytes("GET", "/v1/locks", &self.token, "").repeat(200);
        while self.goes_on() {
            let Ports { http, clients, .. } = self.next();
            let _ = pour(http, &many, 0).await;
            lists += 200;
            if let Ok(mut native) = Native::open(clients, self.own_secret(), &self.token).await {
                let asked: Vec<_> =
                    (1..=512).map(|number| ToDaemon::Query(number, DaemonQuery::Locks(None))).collect();
                native.send(&asked).await.ok();
                while native.receive(Duration::from_millis(200)).await.is_some() && self.goes_on() {}
                lists += 512;
            }
        }
        Ok(format!("{lists} lists of {held} own holds requested"))
    }

    async fn zero_window(&mut self) -> Result<String, String> {
        let (_holds, held) = self.holds(2_000).await?;
        let (mut senders, mut waiting, mut requests) = (Vec::new(), Vec::new(), 0);
        for _ in 0..6 {
            let Ports { http, .. } = self.next();
            let Ok(mut sender) = http2(http, 0).await else { continue };
            for _ in 0..100 {
                waiting.push(tokio::spawn(sender.send_request(get("/v1/locks", &self.token))));
                requests += 1;
            }
            senders.push(sender);
        }
        self.rest().await;
        Ok(format!("{requests} lists of {held} own holds that are not read"))
    }

    async fn idle(&mut self) -> Result<String, String> {
        let mut open = Vec::new();
        for _ in 0..1_000 {
            let Ports { http, clients, .. } = self.next();
            for port in [http, clients] {
                let Ok(mut stream) = connect(port).await else { continue };
                let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\n").await;
                open.push(stream);
            }
            if !self.goes_on() {
                break;
            }
        }
        self.rest().await;
        Ok(format!("{} idle connections", open.len()))
    }

    async fn many_sessions(&mut self) -> Result<String, String> {
        let many = bytes("POST", "/v1/sessions", &self.token, "{\"ttl_ms\":60000}").repeat(500);
        let (mut requests, mut made) = (0, 0);
        while self.goes_on() {
            let Ports { http, .. } = self.next();
            let all = pour(http, &many, 1 << 20).await.unwrap_or_default();
            requests += 500;
            made += String::from_utf8_lossy(&all).matches(" 201 ").count();
        }
        Ok(format!("{requests} sessions requested, {made} seen to be created"))
    }

    async fn names(&mut self) -> Result<String, String> {
        let (mut connections, mut held) = (Vec::new(), 0);
        while self.goes_on() {
            match self.holds(5_000).await {
                Ok((native, more)) => {
                    held += more;
                    connections.push(native);
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        Ok(format!("{held} names held"))
    }

    async fn refusals(&mut self) -> Result<String, String> {
        let many = bytes("POST", "/v1/locks/t1%2Flong/acquire", &self.token, "{}").repeat(500);
        let strange = bytes("GET", "/v1/locks", "lk_no-such-token", "").repeat(500);
        let mut requests = 0;
        while self.goes_on() {
            let Ports { http, .. } = self.next();
            for bytes in [&many, &strange] {
                let _ = pour(http, bytes, 0).await;
                requests += 500;
            }
        }
        Ok(format!("{requests} requests that are refused"))
    }

    async fn malformed(&mut self) -> Result<String, String> {
        let mut sent = 0;
        while self.goes_on() {
            let Ports { http, clients, .. } = self.next();
            for name in ["t0%2F%1b%5b2J", "t0%2F%00", "t0%2F%0a", &"x".repeat(5_000), "%ff%fe"] {
                let body = json!({ "owner": "\u{1b}[2J\nowner", "purpose": { "a": [1, 2] }, "ttl_ms": -1 });
                let path = format!("/v1/locks/{name}/acquire");
                let _ = ask(http, post(&path, &self.token, &body)).await;
                sent += 1;
            }
            if let Ok(mut native) = Native::open(clients, self.own_secret(), &self.token).await {
                let alive = ToMember::KeepAlive { sent_ns: 1, first: true, settled: 1, generation: None };
                native.send(&[ToDaemon::Session(SESSION, alive)]).await.ok();
                let names = ["", "t0/\u{1b}[2J", "t0/\0", "t0/\n", &"t0/x".repeat(400)];
                let acquire = |(number, name): (u64, &str)| {
                    let request = LockRequest::exclusive(LockName::new(name));
                    ToDaemon::Session(SESSION, ToMember::Acquire { number, settled: 1, request })
                };
                native.send(&(1..).zip(names).map(acquire).collect::<Vec<_>>()).await.ok();
                while let Some(message) = native.receive(Duration::from_millis(20)).await {
                    if let FromDaemon::Session(_, ToClient::Granted { .. }) = message {
                        return Err(String::from("a lock with a malformed name was granted"));
                    }
                }
                sent += names.len();
                let _ = native.stream.write_all(&[0xff; 4096]).await;
            }
        }
        Ok(format!("{sent} malformed requests"))
    }
}
