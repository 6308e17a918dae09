//! Costs of a cluster, measured as ratios within one run: `cargo bench -p lockkeeper-cluster`.
//!
//! Everything runs in one process: members on loopback, with real sockets and real disks.

use lockkeeper_cluster::{Authority, Config, JoinToken, Member, MemberId, Pem, Times, Tls};
use prometheus_client::registry::Registry;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn main() {
    // `cargo test` also runs benches, to check that they start.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    one.block_on(at_home());
    let two = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let two = two.expect("a runtime");
    two.block_on(async {
        let mut bare = Vec::new();
        for hold in HOLDS {
            let half = bare_request_reply(hold).await;
            println!(
                "bare request and reply between two tasks, answered after {hold:?}: half takes {:.1} us",
                half * 1e6
            );
            bare.push((hold, half));
        }
        handoffs("without TLS", &bare, false).await;
        handoffs("with TLS", &bare, true).await;
        for (name, times) in [("default", Times::default()), ("tuned", Times::tuned())] {
            after_a_crash(name, times).await;
        }
        recorded_holds().await;
    });
}

/// Duration of a hold, of the pause before the next request, and of the pause before a reply. Zero: the processors
/// never become idle, and a client requests again right after its release. 50 µs: a processor becomes idle and must be
/// woken.
const HOLDS: [Duration; 2] = [Duration::ZERO, Duration::from_micros(50)];

/// Waits for this time, and lets other tasks run.
async fn pause(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        tokio::task::yield_now().await;
    }
}

/// One member of three has the token and keeps it.
async fn at_home() {
    const ENTRIES: u32 = 200_000;
    let directory = tempfile::tempdir().expect("a directory");
    let members = cluster(directory.path(), 3, false, Times::default()).await;
    let member = &members[0];
    drop(member.mutex("orders/42").acquire().await.expect("served"));
    let before = count(member, "lockkeeper_messages_total");
    let mut best = 0.0_f64;
    for _ in 0..5 {
        let began = Instant::now();
        for _ in 0..ENTRIES {
            let guard = member.mutex("orders/42").acquire().await.expect("free");
            guard.release().await.expect("held");
        }
        best = best.max(f64::from(ENTRIES) / began.elapsed().as_secs_f64());
    }
    let messages = count(member, "lockkeeper_messages_total") - before;
    println!("token at home: {best:.0} acquire and release per second on one core, {messages} messages");
    for member in members {
        member.stop().await;
    }
}

/// Half of the time of a request and its reply on a separate connection, without the pauses before each.
async fn bare_request_reply(hold: Duration) -> f64 {
    const TURNS: u32 = 20_000;
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let echo = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a connection");
        socket.set_nodelay(true).expect("a socket");
        let (mut buffer, mut paused) = ([0; 64], Vec::new());
        while socket.read_exact(&mut buffer).await.is_ok() {
            let began = Instant::now();
            pause(hold).await;
            paused.push(began.elapsed().as_secs_f64());
            socket.write_all(&buffer).await.expect("the other end lives");
        }
        paused
    });
    let mut socket = tokio::net::TcpStream::connect(address).await.expect("it listens");
    socket.set_nodelay(true).expect("a socket");
    let asked = tokio::spawn(async move {
        let (mut buffer, mut times) = ([0; 64], Vec::new());
        for _ in 0..TURNS {
            pause(hold).await;
            let began = Instant::now();
            socket.write_all(&buffer).await.expect("the other end lives");
            socket.read_exact(&mut buffer).await.expect("the other end lives");
            times.push(began.elapsed().as_secs_f64());
        }
        times
    });
    let times = asked.await.expect("no panic");
    let paused = echo.await.expect("no panic");
    median(times.into_iter().zip(paused).map(|(time, paused)| (time - paused) / 2.0).collect())
}

/// The member of each entry, and the time since the previous release in nanoseconds.
type Entries = Arc<Mutex<Vec<(usize, u64)>>>;

/// Three members with one client each contend for one lock: measures the time from a release to the next entry of
/// another client.
async fn handoffs(name: &str, bare: &[(Duration, f64)], tls: bool) {
    let directory = tempfile::tempdir().expect("a directory");
    let members = cluster(directory.path(), 3, tls, Times::default()).await;
    for &(hold, bare) in bare {
        let began = Instant::now();
        let (entries, messages) = contend(&members, 30_000, hold).await;
        let per_second = entries.len() as f64 / began.elapsed().as_secs_f64();
        let changes = entries.windows(2).filter(|pair| pair[0].0 != pair[1].0);
        let times: Vec<f64> = changes.map(|pair| pair[1].1 as f64 / 1e9).collect();
        let (handed_over, handoff) = (times.len(), median(times));
        println!(
            "handoff {name}, held for {hold:?}: {:.1} us, {:.2} times half of a bare request and reply; {messages:.3} messages per entry; \
             {per_second:.0} entries per second, {handed_over} of {} after another member's; turns of the three members: {:?}",
            handoff * 1e6,
            handoff / bare,
            entries.len(),
            turns(&entries),
        );
    }
    for member in members {
        member.stop().await;
    }
}

/// Runs a client at each member until they have had `count` entries together. Returns the entries and the number of
/// messages per entry.
async fn contend(members: &[Member], count: usize, hold: Duration) -> (Vec<(usize, u64)>, f64) {
    let began = Instant::now();
    let released = Arc::new(AtomicU64::new(0));
    let entries: Entries = Arc::default();
    let sent = || members.iter().map(|member| self::count(member, "lockkeeper_messages_total")).sum::<f64>();
    let before = sent();
    let clients = members.iter().cloned().enumerate().map(|(place, member)| {
        let (released, entries) = (released.clone(), entries.clone());
        tokio::spawn(async move {
            loop {
                let guard = member.mutex("contended").acquire().await.expect("served");
                let since = began.elapsed().as_nanos() as u64 - released.load(Ordering::SeqCst);
                {
                    let mut entries = entries.lock().expect("no holder of this lock panics");
                    if entries.len() == count {
                        return;
                    }
                    entries.push((place, since));
                }
                pause(hold).await;
                released.store(began.elapsed().as_nanos() as u64, Ordering::SeqCst);
                drop(guard);
                // One of the other clients waits, and the third one requests again before this one leaves.
                pause(hold).await;
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("no panic");
    }
    let entries = std::mem::take(&mut *entries.lock().expect("no holder of this lock panics"));
    (entries, (sent() - before) / count as f64)
}

/// Number of entries of each of the three members, sorted.
fn turns(entries: &[(usize, u64)]) -> [usize; 3] {
    let mut turns = [0, 1, 2].map(|place| entries.iter().filter(|entry| entry.0 == place).count());
    turns.sort_unstable();
    turns
}

/// A member that holds a lock crashes: measures the time until another member is granted it.
async fn after_a_crash(name: &str, times: Times) {
    let (mut waits, mut survived) = (Vec::new(), 0);
    for victim in 0..3 {
        let directory = tempfile::tempdir().expect("a directory");
        let mut members = cluster(directory.path(), 3, false, times).await;
        let dies = members.remove(victim);
        let kept = members[1].mutex("kept").acquire().await.expect("served");
        let held = dies.mutex("held").acquire().await.expect("served");
        let began = Instant::now();
        dies.stop().await;
        let next = members[0].mutex("held").acquire().await.expect("served");
        waits.push(began.elapsed().as_millis());
        assert!(next.fence() > held.fence(), "fences rise");
        survived += u32::from(kept.is_valid());
        for member in members {
            member.stop().await;
        }
    }
    println!(
        "a member is gone, {name} times: others go on after {waits:?} ms; {survived} of 3 holds elsewhere went on"
    );
}

/// Each of three members records its share of many holds at once, and then releases them.
async fn recorded_holds() {
    const HOLDS: usize = 9_000;
    let name = |place: usize| format!("jobs/{place:09}");
    let directory = tempfile::tempdir().expect("a directory");
    let members = cluster(directory.path(), 3, false, Times::default()).await;
    let member = |place: usize| &members[place % members.len()];
    let mut holds = Vec::new();
    for place in 0..HOLDS {
        holds.push(member(place).new_owner().mutex(name(place)).acquire().await.expect("free"));
    }
    let began = Instant::now();
    for hold in &holds {
        assert!(hold.record(Duration::from_secs(10), vec![7; 32]), "the hold is valid");
    }
    for hold in &holds {
        hold.recorded().await;
        assert!(hold.is_recorded(), "the hold is valid");
    }
    let recorded = began.elapsed();
    let began = Instant::now();
    drop(holds);
    for place in 0..HOLDS {
        drop(
            member(place)
                .mutex(name(place))
                .acquire()
                .await
                .expect("free once the end of its record is committed"),
        );
    }
    let released = began.elapsed();
    let per_second = |time: Duration| HOLDS as f64 / time.as_secs_f64();
    println!(
        "{HOLDS} holds of three members, with payloads of 32 bytes: recorded in {recorded:.2?} ({:.0} per second), of \
         which the first 50 ms are the time after which holds are recorded; ended and granted again in {released:.2?} \
         ({:.0} per second)",
        per_second(recorded),
        per_second(released),
    );
    for member in members {
        member.stop().await;
    }
}

async fn cluster(directory: &Path, count: u32, tls: bool, times: Times) -> Vec<Member> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let sockets: Vec<TcpListener> = (0..count).map(|_| TcpListener::bind(any).expect("a port")).collect();
    let addresses: Vec<SocketAddr> =
        sockets.iter().map(|socket| socket.local_addr().expect("bound")).collect();
    drop(sockets);
    let authority = tls.then(|| Authority::create(1).expect("an authority"));
    let certificates = |authority: &Authority, id| {
        let issued = authority.issue(id, &[], 1).expect("a certificate");
        let pem = |text: &str| Pem::Bytes(text.into());
        let authority = pem(authority.certificate());
        Tls { authority, certificate: pem(&issued.certificate), key: pem(&issued.key) }
    };
    let join_token = JoinToken::random().expect("random");
    let mut members = Vec::new();
    for (place, &listen) in addresses.iter().enumerate() {
        let id = MemberId(place as u32 + 1);
        let mut config = Config::new(id, listen, directory.join(place.to_string()));
        config.first_members = (1..).map(MemberId).zip(addresses.iter().map(ToString::to_string)).collect();
        config.times = times;
        config.join_token = Some(join_token.clone());
        config.tls = authority.as_ref().map(|authority| certificates(authority, id));
        members.push(Member::start(config).await.expect("it starts"));
    }
    for member in &members {
        let mut changes = member.status_changes();
        while member.status().view.is_none_or(|view| view.members.len() != count as usize) {
            changes.changed().await.expect("it lives");
        }
    }
    members
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// The sum of a counter over its labels.
fn count(member: &Member, name: &str) -> f64 {
    let (mut registry, mut text) = (Registry::default(), String::new());
    member.register_metrics(&mut registry);
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
