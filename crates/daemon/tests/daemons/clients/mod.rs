//! Clients, each a process. Their behaviour is the same for all protocols.

mod durable;
mod etcd;
mod http;
mod native;

use lockkeeper_testbed::history::{HistoryWriter, HoldEvent, HoldRecord, LockMode, now_ns};
use lockkeeper_testbed::options::Random;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The prefix of all locks that clients may acquire.
pub const PREFIX: &str = "soak/";
/// A lock that no client may acquire.
const FORBIDDEN: &str = "others/lock";
/// Number of locks that are always held exclusively.
const LOCKS: usize = 3;
/// Number of permits of one lock.
const PERMITS: u32 = 3;
/// Number of clients of a process that take turns.
const TURNS: u64 = 2;
/// Average number of turns after which a client switches to another daemon, so that a restarted daemon gets clients
/// again.
const TURNS_PER_DAEMON: usize = 16;
/// Timeout of a request for a lock, after which the client tries another daemon.
const WAIT: Duration = Duration::from_secs(4);
/// Timeout for replies that should come at once.
const ANSWER: Duration = Duration::from_secs(2);
/// Time to live of sessions and leases, where the client chooses it.
const TTL: Duration = Duration::from_secs(6);

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Native,
    Http,
    Etcd,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Native, Self::Http, Self::Etcd];

    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Http => "http",
            Self::Etcd => "etcd",
        }
    }
}

/// The name of a lock that clients hold for long: those with one number share it.
pub fn held_long(number: &str) -> String {
    format!("{PREFIX}held-long-{number}")
}

/// The name of a lock whose holds must survive the death of daemons: those with one number share it.
pub fn held_durably(number: &str) -> String {
    format!("{PREFIX}held-durably-{number}")
}

/// Whether clients take turns on a lock and release it soon.
pub fn is_for_turns(lock: &str) -> bool {
    !lock.starts_with(&held_long("")) && !lock.starts_with(&held_durably(""))
}

/// The addresses and credentials that a client needs.
#[derive(Clone)]
struct Daemons {
    addresses: Vec<String>,
    authority: PathBuf,
    token: String,
}

/// The validity of a hold, as the client knows it.
enum Validity {
    UntilNs(u64),
    /// There is no new information.
    AsBefore,
    Lost,
}

/// A client of one protocol.
trait LockClient {
    /// A hold of this kind of client.
    type Held;

    /// Whether this protocol supports a mode.
    fn can(&self, how: LockMode) -> bool {
        how == LockMode::Exclusive
    }

    /// Waits for a lock for a limited time. After a failure, the next request goes to another daemon.
    async fn acquire(&mut self, lock: &str, how: LockMode) -> Result<Self::Held, String>;

    fn fence(held: &Self::Held) -> u64;

    /// The time until which the client may rely on its hold.
    async fn validity(&mut self, held: &Self::Held) -> Validity;

    /// Switches to another daemon without need.
    async fn switch_daemon(&mut self);

    /// Releases a hold. The client does not check the result.
    async fn release(&mut self, held: Self::Held);
}

/// Writes the records of a process.
struct ClientLog {
    who: String,
    holds: Cell<u64>,
    writer: RefCell<HistoryWriter>,
}

/// The record of one hold.
struct HoldLog<'a> {
    client_log: &'a ClientLog,
    line: HoldRecord,
    until_ns: u64,
}

impl ClientLog {
    fn begin(&self, lock: &str, how: LockMode, fence: u64) -> HoldLog<'_> {
        let hold = self.holds.replace(self.holds.get() + 1);
        let (who, lock, at_ns) = (self.who.clone(), lock.to_owned(), now_ns());
        let line = HoldRecord { who, hold, lock, how, fence, at_ns, what: HoldEvent::Leaves };
        HoldLog { client_log: self, line, until_ns: 0 }
    }
}

impl HoldLog<'_> {
    fn write(&mut self, at_ns: u64, what: HoldEvent) {
        (self.line.at_ns, self.line.what) = (at_ns, what);
        self.client_log.writer.borrow_mut().write(&self.line);
    }

    /// Records that the client is inside, if it is. It relies on the promise of the daemon until its end.
    async fn record_entry<A: LockClient>(&mut self, client: &mut A, held: &A::Held) -> bool {
        let at_ns = now_ns();
        let validity = client.validity(held).await;
        if let Validity::UntilNs(until_ns) = validity
            && until_ns >= at_ns
        {
            self.until_ns = until_ns;
            self.write(at_ns, HoldEvent::Inside { until_ns });
            return true;
        }
        if let Validity::AsBefore = validity {
            tokio::time::sleep(Duration::from_nanos(self.until_ns.saturating_sub(now_ns()))).await;
        }
        false
    }
}

/// Takes one turn of the given length.
async fn take_turn<A: LockClient>(
    client: &mut A,
    client_log: &ClientLog,
    lock: &str,
    how: LockMode,
    inside: Duration,
) -> Result<(), String> {
    let held = client.acquire(lock, how).await?;
    let mut log = client_log.begin(lock, how, A::fence(&held));
    let mut sure = log.record_entry(client, &held).await;
    tokio::time::sleep(inside).await;
    sure = sure && log.record_entry(client, &held).await;
    log.write(now_ns(), if sure { HoldEvent::Leaves } else { HoldEvent::Lost });
    client.release(held).await;
    Ok(())
}

/// Takes turns on the shared locks.
async fn take_turns<A: LockClient>(mut client: A, client_log: &ClientLog, mut random: Random) {
    loop {
        let (lock, how) = match random.below(LOCKS + 2) {
            0 => (format!("{PREFIX}permits"), LockMode::Permit { of: PERMITS }),
            1 if random.below(3) > 0 => (format!("{PREFIX}mixed"), LockMode::Shared),
            1 => (format!("{PREFIX}mixed"), LockMode::Exclusive),
            n => (format!("{PREFIX}turns-{}", n - 2), LockMode::Exclusive),
        };
        if !client.can(how) {
            continue;
        }
        // A client that requests a lock repeatedly may keep it as a delegation between its turns.
        let (turns, longest_ms) = if random.below(4) == 0 { (8, 2) } else { (1, 12) };
        for _ in 0..turns {
            let inside = Duration::from_millis(random.below(longest_ms) as u64);
            if take_turn(&mut client, client_log, &lock, how, inside).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                break;
            }
        }
        // Long enough that locks are free at times, also on a slow machine: a client whose wait times out loses its
        // place in the queue.
        tokio::time::sleep(Duration::from_millis(random.below(200) as u64)).await;
        if random.below(TURNS_PER_DAEMON) == 0 {
            client.switch_daemon().await;
        }
    }
}

/// Holds one lock for long.
async fn hold_on<A: LockClient>(mut client: A, client_log: &ClientLog, lock: &str, mut random: Random) {
    loop {
        let Ok(held) = client.acquire(lock, LockMode::Exclusive).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut log = client_log.begin(lock, LockMode::Exclusive, A::fence(&held));
        let (mut claims, mut sure) = (5 + random.below(TURNS_PER_DAEMON), true);
        while claims > 0 && sure {
            sure = log.record_entry(&mut client, &held).await;
            claims -= 1;
            if sure {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        log.write(now_ns(), if sure { HoldEvent::Leaves } else { HoldEvent::Lost });
        client.release(held).await;
        client.switch_daemon().await;
    }
}

/// Runs all clients of one process. First one of them attempts to acquire a forbidden lock, which every daemon must
/// refuse.
async fn work<A: LockClient>(
    new: impl AsyncFn(Duration) -> A,
    client_log: ClientLog,
    group: &str,
    seed: u64,
) {
    let mut thief = new(TTL).await;
    loop {
        match thief.acquire(FORBIDDEN, LockMode::Exclusive).await {
            Ok(_) => panic!("{} has {FORBIDDEN}", client_log.who),
            Err(why) if why.contains("does not allow") => break,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    drop(thief);
    let random = |n: u64| Random::new(seed.wrapping_add(n << 20));
    let turns = async |n: u64| take_turns(new(TTL).await, &client_log, random(n)).await;
    let all = futures_util::future::join_all((0..TURNS).map(turns));
    let (long, durable) = (held_long(group), held_durably(group));
    let holds_on = async { hold_on(new(TTL).await, &client_log, &long, random(TURNS)).await };
    let endures = async {
        durable::hold_durably(new(durable::TTL).await, &client_log, &durable, random(TURNS + 1)).await
    };
    tokio::join!(all, holds_on, endures);
}

/// `client KIND NAME TOKEN AUTHORITY RECORDS SEED GROUP ADDRESS...`
pub fn main(arguments: &[String]) -> ExitCode {
    let [kind, who, token, authority, history, seed, group, addresses @ ..] = arguments else {
        return ExitCode::FAILURE;
    };
    let daemons =
        Daemons { addresses: addresses.to_vec(), authority: authority.into(), token: token.clone() };
    let writer = RefCell::new(HistoryWriter::create(Path::new(history)));
    let client_log = ClientLog { who: who.clone(), holds: Cell::new(0), writer };
    let seed: u64 = seed.parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match kind.as_str() {
            "native" => {
                let locks = native::Native::open(&daemons).await;
                work(async |ttl| locks.with_ttl(ttl), client_log, group, seed).await;
            }
            "http" => work(async |ttl| http::Http::new(&daemons, ttl), client_log, group, seed).await,
            _ => work(async |ttl| etcd::Etcd::new(&daemons, ttl), client_log, group, seed).await,
        }
    });
    ExitCode::FAILURE
}
