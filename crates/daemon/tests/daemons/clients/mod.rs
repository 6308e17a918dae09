//! Clients, each a process: what they do is the same whatever they speak.

mod etcd;
mod http;
mod native;

use lockkeeper_testbed::options::Random;
use lockkeeper_testbed::story::{How, Line, What, Writer, now_ns};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How the names of all locks begin that clients may have.
pub const PREFIX: &str = "soak/";
/// A lock that nobody may have.
const FORBIDDEN: &str = "others/lock";
/// How many locks are always held alone.
const LOCKS: usize = 3;
/// How many permits one lock has.
const PERMITS: u32 = 3;
/// How many of a process' clients take turns.
const TURNS: u64 = 2;
/// After about so many turns, a client goes to another daemon: one that comes back has clients again.
const WANDER: usize = 16;
/// How long a client waits for a lock before it asks elsewhere.
const WAIT: Duration = Duration::from_secs(4);
/// How long a client waits for an answer that should come at once.
const ANSWER: Duration = Duration::from_secs(2);
/// How long what a client has lives on without it, where the client says so.
const TTL: Duration = Duration::from_secs(3);

/// What a client speaks.
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

/// The lock that a client holds on to.
pub fn held_by(client: &str) -> String {
    format!("{PREFIX}held-by-{client}")
}

/// Whether clients take turns on a lock, and leave it soon.
pub fn is_for_turns(lock: &str) -> bool {
    !lock.starts_with(&held_by(""))
}

/// What a client needs to reach the daemons.
#[derive(Clone)]
struct Daemons {
    addresses: Vec<String>,
    authority: PathBuf,
    token: String,
}

/// One who can be asked for locks.
trait Asks {
    /// A hold, as this kind of client knows it.
    type Held;

    /// Whether a lock can be had in this way.
    fn can(&self, how: How) -> bool {
        how == How::Alone
    }

    /// Waits for a lock, for a while. If that fails it is asked for elsewhere the next time.
    async fn acquire(&mut self, lock: &str, how: How) -> Result<Self::Held, String>;

    fn fence(held: &Self::Held) -> u64;

    /// Until when the client is sure of its hold; `None` if it has lost it, or cannot know.
    async fn sure_until_ns(&mut self, held: &Self::Held) -> Option<u64>;

    /// Goes to another daemon, without need.
    async fn wander(&mut self);

    /// Gives it back. Whether that is heard is the daemons' concern.
    async fn release(&mut self, held: Self::Held);
}

/// The pen of a process.
struct Pen {
    who: String,
    holds: Cell<u64>,
    writer: RefCell<Writer>,
}

/// One hold, as it is written down.
struct Told<'a> {
    pen: &'a Pen,
    line: Line,
}

impl Pen {
    fn begin(&self, lock: &str, how: How, fence: u64) -> Told<'_> {
        let hold = self.holds.replace(self.holds.get() + 1);
        let (who, lock, at_ns) = (self.who.clone(), lock.to_owned(), now_ns());
        Told { pen: self, line: Line { who, hold, lock, how, fence, at_ns, what: What::Leaves } }
    }
}

impl Told<'_> {
    fn tell(&mut self, at_ns: u64, what: What) {
        (self.line.at_ns, self.line.what) = (at_ns, what);
        self.pen.writer.borrow_mut().write(&self.line);
    }

    /// Says that it is inside, if it is. That it was when it was granted can only be told once it is known.
    async fn claim<A: Asks>(&mut self, asks: &mut A, held: &A::Held) -> bool {
        let at_ns = now_ns();
        match asks.sure_until_ns(held).await {
            Some(until_ns) if until_ns > at_ns => {
                self.tell(at_ns, What::Inside { until_ns });
                true
            }
            _ => false,
        }
    }
}

/// Takes turns on the shared locks.
async fn take_turns<A: Asks>(mut asks: A, pen: &Pen, mut random: Random) {
    loop {
        let (lock, how) = match random.below(LOCKS + 2) {
            0 => (format!("{PREFIX}permits"), How::Permit(PERMITS)),
            1 if random.below(3) > 0 => (format!("{PREFIX}mixed"), How::Shared),
            1 => (format!("{PREFIX}mixed"), How::Alone),
            n => (format!("{PREFIX}turns-{}", n - 2), How::Alone),
        };
        if !asks.can(how) {
            continue;
        }
        let Ok(held) = asks.acquire(&lock, how).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut told = pen.begin(&lock, how, A::fence(&held));
        let mut sure = told.claim(&mut asks, &held).await;
        tokio::time::sleep(Duration::from_millis(random.below(12) as u64)).await;
        sure = sure && told.claim(&mut asks, &held).await;
        told.tell(now_ns(), if sure { What::Leaves } else { What::Lost });
        asks.release(held).await;
        tokio::time::sleep(Duration::from_millis(random.below(20) as u64)).await;
        if random.below(WANDER) == 0 {
            asks.wander().await;
        }
    }
}

/// Holds one lock for as long as it can.
async fn hold_on<A: Asks>(mut asks: A, pen: &Pen) {
    let lock = held_by(&pen.who);
    loop {
        let Ok(held) = asks.acquire(&lock, How::Alone).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut told = pen.begin(&lock, How::Alone, A::fence(&held));
        while told.claim(&mut asks, &held).await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        told.tell(now_ns(), What::Lost);
        asks.release(held).await;
    }
}

/// All clients of one process, and first an attempt at what is forbidden: it must be refused, whatever happens meanwhile.
async fn work<A: Asks>(new: impl AsyncFn() -> A, pen: Pen, seed: u64) {
    let mut thief = new().await;
    for _ in 0..2 {
        assert!(thief.acquire(FORBIDDEN, How::Alone).await.is_err(), "{} has {FORBIDDEN}", pen.who);
    }
    drop(thief);
    let turns = async |n: u64| take_turns(new().await, &pen, Random::new(seed.wrapping_add(n << 20))).await;
    let all = (0..TURNS).map(turns);
    tokio::join!(futures_util::future::join_all(all), async { hold_on(new().await, &pen).await });
}

/// `client KIND NAME TOKEN AUTHORITY STORY SEED ADDRESS...`
pub fn main(arguments: &[String]) -> ExitCode {
    let [kind, who, token, authority, story, seed, addresses @ ..] = arguments else {
        return ExitCode::FAILURE;
    };
    let daemons =
        Daemons { addresses: addresses.to_vec(), authority: authority.into(), token: token.clone() };
    let writer = RefCell::new(Writer::create(Path::new(story)));
    let pen = Pen { who: who.clone(), holds: Cell::new(0), writer };
    let seed: u64 = seed.parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        match kind.as_str() {
            "native" => {
                let locks = native::Native::open(&daemons).await;
                work(async || locks.clone(), pen, seed).await;
            }
            "http" => work(async || http::Http::new(&daemons), pen, seed).await,
            _ => work(async || etcd::Etcd::new(&daemons), pen, seed).await,
        }
    });
    ExitCode::FAILURE
}
