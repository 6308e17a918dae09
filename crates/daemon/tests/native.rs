//! The port of the native protocol, with valid, malformed and hostile clients.

use lockkeeper_daemon::{ClientTls, Config, Daemon, Limits, hash};
use lockkeeper_session::protocol::{
    DaemonQuery, DaemonReply, Frames, FromDaemon, Greeting, Hello, Refusal, Secret, ToDaemon,
};
use lockkeeper_session::{LockName, LockRequest, ToClient, ToMember};
use lockkeeper_testbed::options::Random;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A timeout that only a hang reaches.
const LONGEST: Duration = Duration::from_secs(60);

fn config(data: &Path) -> Config {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = Config { clients: Some(any), http: None, ..Config::alone(data) };
    config.member.listen = any;
    config.limits = Limits { request_timeout_ms: 300, ..Limits::default() };
    config
}

async fn start(config: Config) -> (Daemon, SocketAddr) {
    let daemon = Daemon::start(config).await.unwrap();
    daemon.member().ready().await.unwrap();
    let address = daemon.addresses().clients.unwrap();
    (daemon, address)
}

/// A client that implements the protocol by hand.
struct Client {
    stream: TcpStream,
    frames: Frames,
    session: u64,
}

impl Client {
    async fn greet(to: SocketAddr, client: u64, token: Option<&str>) -> Result<Client, String> {
        let mut stream = TcpStream::connect(to).await.unwrap();
        let mut bytes = lockkeeper_session::protocol::opening().to_vec();
        let secret = Secret::new(u128::from(client).to_le_bytes());
        let hello = Hello { secret, token: token.map(String::from), for_locks: true };
        lockkeeper_session::protocol::encode(&hello, &mut bytes);
        stream.write_all(&bytes).await.unwrap();
        let mut reply = [0; 6];
        stream.read_exact(&mut reply).await.unwrap();
        let mut client = Client { stream, frames: Frames::new(1 << 20), session: 1 };
        match client.receive().await {
            Greeting::Welcome(_) => Ok(client),
            Greeting::NotNow(why) | Greeting::Refused(why) => Err(why),
        }
    }

    async fn receive<T: serde::de::DeserializeOwned>(&mut self) -> T {
        let receiving = async {
            loop {
                if let Some(message) = self.frames.take().unwrap() {
                    return message;
                }
                let read = self.stream.read_buf(&mut self.frames.arrived).await.unwrap();
                assert_ne!(read, 0, "the daemon closed the connection");
            }
        };
        timeout(LONGEST, receiving).await.expect("the daemon sends a message")
    }

    async fn send(&mut self, message: ToDaemon) {
        let mut bytes = Vec::new();
        lockkeeper_session::protocol::encode(&message, &mut bytes);
        self.stream.write_all(&bytes).await.unwrap();
    }

    async fn send_to_member(&mut self, message: ToMember) {
        self.send(ToDaemon::Session(self.session, message)).await;
    }

    async fn open(&mut self) {
        self.send_to_member(ToMember::KeepAlive { sent_ns: 1, first: true, settled: 1, generation: None })
            .await;
        assert!(matches!(self.receive().await, FromDaemon::Session(_, ToClient::Alive { .. })));
    }

    async fn acquire(&mut self, number: u64, name: &str) -> FromDaemon {
        let request = LockRequest::exclusive(LockName::new(name));
        self.send_to_member(ToMember::Acquire { number, settled: 1, request }).await;
        self.receive().await
    }
}

/// Resolves when the daemon has closed the connection.
async fn closed(mut stream: impl AsyncReadExt + Unpin) {
    let end = async {
        let mut bytes = [0; 1024];
        while let Ok(1..) = stream.read(&mut bytes).await {}
    };
    timeout(LONGEST, end).await.expect("the daemon closes the connection");
}

/// The resident memory of this process, in bytes.
fn memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_input_ends_the_connection_and_takes_no_memory() {
    let data = tempfile::tempdir().unwrap();
    let (daemon, address) = start(config(data.path())).await;
    let hello = |length: u32| {
        let mut bytes = lockkeeper_session::protocol::opening().to_vec();
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&[0xff; 64]);
        bytes
    };
    let openings: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        // The beginning of a TLS handshake.
        vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
        vec![0; 4096],
        b"LOCK\0\x09\0\x0aand only versions to come".to_vec(),
        hello(1 << 30),
        hello(u32::MAX),
        hello(64),
    ];
    for opening in &openings {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The daemon may close the connection before everything is written.
        let _ = stream.write_all(opening).await;
        closed(stream).await;
    }
    let before = memory();
    for round in 0..1000 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(&openings[round % openings.len()]).await;
        if round % 10 == 0 {
            closed(stream).await;
        }
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more after a thousand connections");
    // Even after the greeting, a client may not announce a frame above the limit.
    let mut client = Client::greet(address, 7, None).await.unwrap();
    client.stream.write_all(&(1_u32 << 30).to_be_bytes()).await.unwrap();
    closed(client.stream).await;
    assert!(Client::greet(address, 8, None).await.is_ok(), "other clients are served");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_slow_and_unread_connections_are_closed() {
    let data = tempfile::tempdir().unwrap();
    let (daemon, address) = start(config(data.path())).await;
    let silent = TcpStream::connect(address).await.unwrap();
    let mut slow = TcpStream::connect(address).await.unwrap();
    slow.write_all(b"LO").await.unwrap();
    closed(silent).await;
    closed(slow).await;
    // A client that sends queries and never reads.
    let mut deaf = Client::greet(address, 1, None).await.unwrap();
    let cut = async {
        let mut bytes = Vec::new();
        for number in 0..1000 {
            lockkeeper_session::protocol::encode(&ToDaemon::Query(number, DaemonQuery::Cluster), &mut bytes);
        }
        while deaf.stream.write_all(&bytes).await.is_ok() {}
    };
    timeout(LONGEST, cut).await.expect("it is disconnected");
    daemon.stop().await;
}

/// The library recognizes the daemon's sentences.
async fn rejections_have_kinds(address: SocketAddr) {
    let open = async |token| lockkeeper::Lockkeeper::open(&format!("lockkeeper://t:{token}@{address}")).await;
    let error = open("none").await.unwrap_err();
    assert!(matches!(error, lockkeeper::Error::Unauthenticated { .. }), "{error:?}");
    let ci = open("one").await.unwrap();
    let error = ci.mutex("prod/db").acquire().await.unwrap_err();
    assert!(matches!(error, lockkeeper::Error::PermissionDenied { .. }), "{error:?}");
    let error = ci.mutex("prod/db").hold_as("web", Duration::from_secs(60)).acquire().await.unwrap_err();
    assert!(matches!(error, lockkeeper::Error::PermissionDenied { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_permit_only_their_prefixes_and_changed_files_are_reloaded() {
    let data = tempfile::tempdir().unwrap();
    let (tokens, audit) = (data.path().join("tokens.toml"), data.path().join("audit"));
    let line = |name: &str, secret: &str, rights: &str| {
        let hex: String = hash(secret).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("[[token]]\nname = \"{name}\"\nsha256 = \"{hex}\"\n{rights}\n")
    };
    let old = line("old", "two", "acquire = [\"\"]\nexpires = 2001-01-01");
    let file = line("ci", "one", "acquire = [\"ci/\"]") + &old;
    std::fs::write(&tokens, &file).unwrap();
    let kept = Config { tokens: Some(tokens.clone()), audit: Some(audit.clone()), ..config(data.path()) };
    let (daemon, address) = start(kept).await;
    for token in [None, Some("none"), Some("two")] {
        assert_eq!(Client::greet(address, 1, token).await.err().unwrap(), "a valid token is needed");
    }
    rejections_have_kinds(address).await;
    let mut ci = Client::greet(address, 1, Some("one")).await.unwrap();
    ci.open().await;
    assert!(matches!(ci.acquire(1, "ci/build").await, FromDaemon::Session(_, ToClient::Granted { .. })));
    let FromDaemon::Refuse { number: 2, why: Refusal::Because(why), .. } = ci.acquire(2, "prod/db").await
    else {
        panic!("`prod/db` must be refused");
    };
    assert_eq!(why, "the token `ci` does not allow `acquire` on `prod/db`");
    ci.send(ToDaemon::Query(1, DaemonQuery::ForceRelease("ci/build".into()))).await;
    let FromDaemon::Reply(1, DaemonReply::Refused(why)) = ci.receive().await else {
        panic!("it may release by force")
    };
    assert_eq!(why, "the token `ci` does not allow `admin` on `ci/build`");
    // A new token is accepted once the file is reloaded. With the secret of another token's client it is a client of
    // its own.
    std::fs::write(&tokens, file + &line("new", "three", "acquire = [\"\"]")).unwrap();
    let admitted = async {
        loop {
            match Client::greet(address, 1, Some("three")).await {
                Ok(mut new) => {
                    new.send_to_member(ToMember::KeepAlive {
                        sent_ns: 1,
                        first: false,
                        settled: 1,
                        generation: None,
                    })
                    .await;
                    assert!(matches!(new.receive().await, FromDaemon::Session(_, ToClient::NoSession)));
                    return;
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    timeout(LONGEST, admitted).await.expect("the file is reloaded");
    drop(ci);
    daemon.stop().await;
    let refusals = |log: &str| {
        let refused = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let refused = refused.filter(|line| line["what"] == "refuse");
        refused.map(|line| line["times"].as_u64().unwrap_or(1)).sum::<u64>()
    };
    let whole = |log: &str| refusals(log) >= 5 && log.contains("grant");
    let log = async {
        loop {
            let log = std::fs::read_to_string(&audit).unwrap();
            if whole(&log) {
                return log;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let log = timeout(LONGEST, log).await.expect("the log is written");
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |what: &str| lines.iter().filter(|line| line["what"] == what).count();
    assert_eq!(count("grant"), 1);
    assert!(refusals(&log) >= 5, "three without a token, two without a right: {log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_names_the_limit() {
    let data = tempfile::tempdir().unwrap();
    let mut config = config(data.path());
    config.limits =
        Limits { sessions: 2, locks_per_session: 2, request_timeout_ms: 300, ..Limits::default() };
    let (daemon, address) = start(config).await;
    let mut first = Client::greet(address, 1, None).await.unwrap();
    let mut second = Client::greet(address, 2, None).await.unwrap();
    first.open().await;
    second.open().await;
    let mut third = Client::greet(address, 3, None).await.unwrap();
    third.send_to_member(ToMember::KeepAlive { sent_ns: 1, first: true, settled: 1, generation: None }).await;
    let FromDaemon::Refuse { number: 0, why, .. } = third.receive().await else { panic!("a third session") };
    assert_eq!(why, Refusal::Because("this daemon serves at most 2 sessions (limits.sessions)".into()));
    for (number, name) in [(1, "a"), (2, "b")] {
        assert!(matches!(
            first.acquire(number, name).await,
            FromDaemon::Session(_, ToClient::Granted { .. })
        ));
    }
    let FromDaemon::Refuse { number: 3, why, .. } = first.acquire(3, "c").await else {
        panic!("a third lock")
    };
    assert_eq!(why, Refusal::Because("a client holds and waits for at most 2 locks at a time".into()));
    // A release makes room.
    first.send_to_member(ToMember::Release { number: 1 }).await;
    assert!(matches!(first.receive().await, FromDaemon::Session(_, ToClient::Ended { number: 1, .. })));
    assert!(matches!(first.acquire(4, "c").await, FromDaemon::Session(_, ToClient::Granted { .. })));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_request_gets_the_same_grant_over_another_connection() {
    let data = tempfile::tempdir().unwrap();
    let (daemon, address) = start(config(data.path())).await;
    let mut client = Client::greet(address, 1, None).await.unwrap();
    client.open().await;
    let FromDaemon::Session(_, ToClient::Granted { fence: first, .. }) = client.acquire(1, "a").await else {
        panic!("it is free");
    };
    // The reply is lost with the connection. In every interleaving of the two connections, the new one receives the
    // grant and the old one ends.
    for _ in 0..50 {
        let mut again = Client::greet(address, 1, None).await.unwrap();
        let FromDaemon::Session(_, ToClient::Granted { fence, .. }) = again.acquire(1, "a").await else {
            panic!("it was granted before");
        };
        assert_eq!(fence, first);
        closed(std::mem::replace(&mut client, again).stream).await;
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_client_at_a_port_with_tls_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let authority = lockkeeper_cluster::Authority::create(1).unwrap();
    let issued = authority.issue(lockkeeper_cluster::MemberId(1), &["localhost".into()], 1).unwrap();
    let (certificate, key) = issued.save(data.path(), lockkeeper_cluster::MemberId(1)).unwrap();
    let tls = ClientTls { certificate, key, client_authority: None };
    let (daemon, address) =
        start(Config { client_tls: Some(tls), ..config(&data.path().join("data")) }).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&lockkeeper_session::protocol::opening()).await.unwrap();
    closed(stream).await;
    daemon.stop().await;
}

/// New connections use the certificates that are on the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_certificates_are_read_again() {
    let data = tempfile::tempdir().unwrap();
    let me = lockkeeper_cluster::MemberId(1);
    let file = |name: &str| data.path().join(name);
    let renew = |authority: &str| {
        let new = lockkeeper_cluster::Authority::create(1).unwrap();
        std::fs::write(file(authority), new.certificate()).unwrap();
        new.issue(me, &["localhost".into(), "127.0.0.1".into()], 1).unwrap().save(data.path(), me).unwrap()
    };
    let (certificate, key) = renew("old.pem");
    let tls = ClientTls { certificate: certificate.clone(), key, client_authority: None };
    let (daemon, address) = start(Config { client_tls: Some(tls), ..config(&file("data")) }).await;
    // Whether a client is served that trusts only this authority. A client that does not trust the daemon retries for
    // a while.
    let served = async |authority: &str| {
        let url = format!("lockkeeper://{address}?ca={}", file(authority).display());
        lockkeeper::Lockkeeper::open(&url).await.is_ok()
    };
    assert!(timeout(LONGEST, served("old.pem")).await.unwrap());
    // A file that is invalid for a while, such as one that is being written, has no effect.
    std::fs::write(&certificate, "no certificate").unwrap();
    assert!(timeout(LONGEST, served("old.pem")).await.unwrap(), "the previous certificates stay in use");
    renew("new.pem");
    let read_again = async { while !served("new.pem").await {} };
    timeout(LONGEST, read_again).await.expect("new certificates are loaded");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrupt_frames_do_not_affect_other_clients() {
    let data = tempfile::tempdir().unwrap();
    let mut config = config(data.path());
    // Long enough for a session that is kept alive by hand, on any machine.
    config.member.times = config.member.times.times(20);
    let (daemon, address) = start(config).await;
    let mut other = Client::greet(address, 1, None).await.unwrap();
    other.open().await;
    assert!(matches!(other.acquire(1, "held").await, FromDaemon::Session(_, ToClient::Granted { .. })));
    // The session of this number belongs to the attacker, and does not exist.
    let mut thief = Client::greet(address, 2, None).await.unwrap();
    thief.send_to_member(ToMember::Release { number: 1 }).await;
    thief.send_to_member(ToMember::Close).await;
    thief
        .send_to_member(ToMember::KeepAlive { sent_ns: 1, first: false, settled: 1, generation: None })
        .await;
    assert!(matches!(thief.receive().await, FromDaemon::Session(_, ToClient::NoSession)));
    assert!(daemon.member().table().iter().any(|row| !row.holders.is_empty()), "it is still held");
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let session = 1;
    for round in 0..300 {
        let mut hostile = Client::greet(address, 2, None).await.unwrap();
        let mut bytes = Vec::new();
        for number in 0..20 {
            let request = LockRequest::exclusive(LockName::new(format!("lock {}", random.below(5))));
            let message = match random.below(5) {
                0 => ToMember::KeepAlive {
                    sent_ns: 1,
                    first: round % 2 == 0,
                    settled: number,
                    generation: None,
                },
                1 => ToMember::Release { number },
                2 => ToMember::Close,
                _ => ToMember::Acquire { number, settled: 0, request },
            };
            let start = bytes.len();
            lockkeeper_session::protocol::encode(&ToDaemon::Session(session, message), &mut bytes);
            for _ in 0..random.below(4) {
                let place = start + random.below(bytes.len() - start);
                bytes[place] ^= 1 << random.below(8);
            }
        }
        let _ = hostile.stream.write_all(&bytes).await;
        other
            .send_to_member(ToMember::KeepAlive { sent_ns: 1, first: false, settled: 1, generation: None })
            .await;
    }
    // The client that held a lock still holds it, and gets a reply.
    other.send_to_member(ToMember::Release { number: 1 }).await;
    loop {
        match other.receive().await {
            FromDaemon::Session(_, ToClient::Ended { number: 1, outcome: how }) => {
                assert_eq!(how, lockkeeper_session::Ended::Released);
                break;
            }
            FromDaemon::Session(_, ToClient::Alive { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_lists_in_one_write_cost_no_client_its_session() {
    let data = tempfile::tempdir().unwrap();
    let mut config = config(data.path());
    config.limits = Limits { request_timeout_ms: 60_000, ..Limits::default() };
    let (daemon, address) = start(config).await;
    let mut guards = Vec::new();
    for number in 0..2_000 {
        guards.push(daemon.member().mutex(format!("lock {number}")).acquire().await.unwrap());
    }
    let mut other = Client::greet(address, 7, None).await.unwrap();
    other.open().await;
    assert!(matches!(other.acquire(1, "held").await, FromDaemon::Session(_, ToClient::Granted { .. })));
    let mut client = Client::greet(address, 8, None).await.unwrap();
    client.frames = Frames::new(lockkeeper_session::protocol::LONGEST_FROM_DAEMON);
    let mut bytes = Vec::new();
    for number in 0..512 {
        lockkeeper_session::protocol::encode(&ToDaemon::Query(number, DaemonQuery::Locks(None)), &mut bytes);
    }
    client.stream.write_all(&bytes).await.unwrap();
    let (mut lists, mut refused, mut renewals) = (0, 0, 0);
    let renew = ToMember::KeepAlive { sent_ns: 2, first: false, settled: 1, generation: None };
    other.send_to_member(renew.clone()).await;
    while lists + refused < 512 || renewals == 0 {
        tokio::select! {
            reply = client.receive(), if lists + refused < 512 => match reply {
                FromDaemon::Reply(_, DaemonReply::Locks(locks)) => {
                    assert_eq!(locks.len(), 2_001);
                    lists += 1;
                }
                FromDaemon::Reply(_, DaemonReply::Refused(why)) => {
                    assert!(why.contains("at a time"), "{why}");
                    refused += 1;
                }
                other => panic!("{other:?}"),
            },
            // The session of the other client is renewed throughout, and no renewal reports a lost hold.
            reply = other.receive() => {
                let FromDaemon::Session(_, ToClient::Alive { revoked, .. }) = reply else {
                    panic!("its session is over: {reply:?}")
                };
                assert_eq!(revoked, [0; 0]);
                renewals += 1;
                other.send_to_member(renew.clone()).await;
            }
        }
    }
    assert!(lists >= 1 && refused >= 1, "{lists} lists, {refused} refused");
    assert!(guards.iter().all(lockkeeper_cluster::HoldGuard::is_valid));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_sent_page_by_page() {
    let data = tempfile::tempdir().unwrap();
    let (daemon, address) = start(config(data.path())).await;
    let mut guards = Vec::new();
    for number in 0..25 {
        guards.push(daemon.member().mutex(format!("a/{number:02}")).acquire().await.unwrap());
    }
    guards.push(daemon.member().mutex("b").acquire().await.unwrap());
    let mut client = Client::greet(address, 9, None).await.unwrap();
    let (mut names, mut after) = (Vec::new(), None);
    for expected in [10, 10, 5] {
        let ask = DaemonQuery::LocksPage { prefix: "a/".into(), after: after.take(), limit: 10 };
        client.send(ToDaemon::Query(1, ask)).await;
        let FromDaemon::Reply(1, DaemonReply::LocksPage { locks, next, left_out }) = client.receive().await
        else {
            panic!("another answer")
        };
        names.extend(locks.iter().map(|lock| lock.name.clone()));
        assert_eq!((locks.len(), left_out), (expected, 25 - names.len() as u64));
        after = next;
    }
    assert_eq!((after, names.len()), (None, 25));
    assert!(names.is_sorted() && names[24] == "a/24");
    daemon.stop().await;
}
