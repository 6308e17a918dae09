//! The well-behaved tenants, half of them with the native protocol, half with HTTP.

use crate::client::{ask, get, post};
use crate::cluster::{Cluster, OPERATOR, Ports, TENANTS, secret};
use lockkeeper::{Guard, Lockkeeper};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Number of tasks of each tenant that take turns on one lock.
const TASKS: usize = 2;
/// Number of turns after which a task uses a new lock name.
const NEW_NAME: u64 = 10;
/// Pause between two turns, which leaves capacity on the machine.
const PAUSE: Duration = Duration::from_millis(5);
/// Time to live of an HTTP session.
const TTL: Duration = Duration::from_secs(10);

/// The measurements of one phase.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub entries: usize,
    /// Latency of an acquire that only its own tenant contends for: median, 99th percentile, maximum.
    pub half: Duration,
    pub most: Duration,
    pub longest: Duration,
}

/// The shared records of all tasks.
#[derive(Default)]
struct Notes {
    latencies: Vec<Duration>,
    failures: Vec<String>,
    inside: HashSet<String>,
    fences: HashMap<String, u64>,
}

#[derive(Clone, Default)]
struct SharedNotes(Arc<Mutex<Notes>>);

impl SharedNotes {
    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fails(&self, why: String) {
        let mut notes = self.lock();
        // The first failures are enough.
        if notes.failures.len() < 20 {
            notes.failures.push(why);
        }
    }

    fn enters(&self, lock: &str, fence: u64, after: Duration) {
        let mut notes = self.lock();
        notes.latencies.push(after);
        if !notes.inside.insert(lock.into()) {
            notes.failures.push(format!("two holders of {lock} at a time"));
        }
        let before = notes.fences.insert(lock.into(), fence).unwrap_or(0);
        if fence <= before {
            notes.failures.push(format!("the fence of {lock} is {fence} after {before}"));
        }
    }

    fn leaves(&self, lock: &str) {
        self.lock().inside.remove(lock);
    }
}

/// All well-behaved tenants.
pub struct Tenants {
    shared_notes: SharedNotes,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Tenants {
    /// Starts all tenants; each has its long hold when this returns.
    pub async fn start(cluster: &Cluster) -> Self {
        let (shared_notes, stop) = (SharedNotes::default(), watch::Sender::new(false));
        let mut tasks = JoinSet::new();
        for tenant in 1..TENANTS {
            let ports = cluster.ports[tenant % cluster.ports.len()].clone();
            let client = if tenant % 2 == 0 {
                Client::Native(native(tenant, &ports).await)
            } else {
                Client::Http(Http::open(tenant, &ports).await)
            };
            let long = client.acquire(&format!("t{tenant}/long")).await.expect("no other client requests it");
            for task in 0..TASKS {
                let (shared_notes, client, stop) = (shared_notes.clone(), client.clone(), stop.subscribe());
                tasks.spawn(async move { take_turns(&shared_notes, &client, tenant, task, stop).await });
            }
            let (shared_notes, stop) = (shared_notes.clone(), stop.subscribe());
            tasks.spawn(hold_on(shared_notes, client, long, tenant, stop));
        }
        Self { shared_notes, stop, tasks }
    }

    /// Begins a phase.
    pub fn begin(&self) {
        self.shared_notes.lock().latencies.clear();
    }

    /// The measurements since the phase began.
    pub fn measured(&self) -> Measured {
        let mut latencies = std::mem::take(&mut self.shared_notes.lock().latencies);
        latencies.sort_unstable();
        let at = |part: f64| {
            let place = (latencies.len() as f64 * part) as usize;
            latencies.get(place.min(latencies.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        Measured { entries: latencies.len(), half: at(0.5), most: at(0.99), longest: at(1.0) }
    }

    /// The failures since the previous call.
    pub fn failures(&self) -> Vec<String> {
        std::mem::take(&mut self.shared_notes.lock().failures)
    }

    /// The acquisitions of the tenants' holds, as an operator sees them.
    pub async fn acquisitions(&self, cluster: &Cluster) -> Vec<String> {
        let list = ask(cluster.ports[0].http, get("/v1/locks", OPERATOR)).await.expect("a list");
        let list: Value = serde_json::from_str(&list).expect("JSON");
        let locks = list.as_array().or_else(|| list["locks"].as_array()).cloned().unwrap_or_default();
        let long =
            locks.iter().filter(|lock| lock["name"].as_str().is_some_and(|name| name.ends_with("/long")));
        let holders = long.flat_map(|lock| lock["holders"].as_array().cloned().unwrap_or_default());
        holders.filter_map(|holder| holder["acquisition"].as_str().map(String::from)).collect()
    }

    /// Stops the tenants and returns the last failures.
    pub async fn finish(mut self) -> Vec<String> {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no tenant panics");
        }
        self.failures()
    }
}

async fn native(tenant: usize, ports: &Ports) -> Lockkeeper {
    let url = format!("lockkeeper://token:{}@127.0.0.1:{}", secret(tenant), ports.clients);
    loop {
        match Lockkeeper::open(&url).await {
            Ok(client) => return client,
            Err(error) if error.is_usage() => panic!("{error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Holds one lock from the beginning to the end.
async fn hold_on(
    shared_notes: SharedNotes,
    client: Client,
    long: Held,
    tenant: usize,
    mut stop: watch::Receiver<bool>,
) {
    while !*stop.borrow_and_update() {
        if let Err(why) = client.check(&long).await {
            shared_notes.fails(format!("tenant {tenant} lost its long hold: {why}"));
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
            _ = stop.changed() => {}
        }
    }
    if let Err(why) = client.release(long).await {
        shared_notes.fails(format!("tenant {tenant} lost its long hold: {why}"));
    }
}

async fn take_turns(
    shared_notes: &SharedNotes,
    client: &Client,
    tenant: usize,
    task: usize,
    stop: watch::Receiver<bool>,
) {
    for turn in 1.. {
        if *stop.borrow() {
            return;
        }
        let new = turn % NEW_NAME == 0;
        let lock = if new { format!("t{tenant}/new-{task}-{turn}") } else { format!("t{tenant}/turns") };
        let asked = Instant::now();
        let held = if new { client.acquire_alone(&lock).await } else { client.acquire(&lock).await };
        match held {
            Err(why) => {
                shared_notes.fails(format!("tenant {tenant} cannot acquire {lock}: {why}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(held) => {
                shared_notes.enters(&lock, held.fence(), asked.elapsed());
                tokio::task::yield_now().await;
                shared_notes.leaves(&lock);
                if let Err(why) = client.release(held).await {
                    shared_notes.fails(format!("tenant {tenant} lost {lock}: {why}"));
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[derive(Clone)]
enum Client {
    Native(Lockkeeper),
    Http(Http),
}

enum Held {
    Native(Guard),
    Http { lock: String, hold: String, fence: u64 },
}

impl Held {
    fn fence(&self) -> u64 {
        match self {
            Self::Native(guard) => guard.fence().map_or(0, lockkeeper::Fence::get),
            Self::Http { fence, .. } => *fence,
        }
    }
}

impl Client {
    async fn acquire(&self, lock: &str) -> Result<Held, String> {
        match self {
            Self::Native(client) => {
                let guard = client.mutex(lock).acquire_within(Duration::from_secs(30)).await;
                let guard = guard.map_err(|error| error.to_string())?;
                guard.map(Held::Native).ok_or_else(|| String::from("not within 30 s"))
            }
            Self::Http(client) => client.acquire(lock).await,
        }
    }

    /// The same in a session of its own, where the protocol has that, so that sessions begin all the time.
    async fn acquire_alone(&self, lock: &str) -> Result<Held, String> {
        match self {
            Self::Native(_) => self.acquire(lock).await,
            Self::Http(client) => {
                let terms = json!({ "ttl_ms": TTL.as_millis() as u64, "wait_ms": 30_000 });
                client.acquire_with(lock, &terms).await
            }
        }
    }

    /// An error if the hold was lost.
    async fn check(&self, held: &Held) -> Result<(), String> {
        match (self, held) {
            (Self::Http(client), Held::Http { hold, .. }) => client.check(hold).await,
            (_, Held::Native(guard)) if guard.is_valid() => Ok(()),
            _ => Err(String::from("it is not valid any more")),
        }
    }

    async fn release(&self, held: Held) -> Result<(), String> {
        match (self, held) {
            (Self::Http(client), Held::Http { lock, hold, .. }) => client.release(&lock, &hold).await,
            (_, Held::Native(guard)) => guard.release().await.map_err(|error| error.to_string()),
            _ => unreachable!("a client releases its own holds"),
        }
    }
}

/// A tenant that uses HTTP, with one connection and one session.
#[derive(Clone)]
struct Http {
    sender: hyper::client::conn::http2::SendRequest<http_body_util::Full<hyper::body::Bytes>>,
    token: String,
    session: String,
}

impl Http {
    async fn open(tenant: usize, ports: &Ports) -> Self {
        let token = secret(tenant);
        loop {
            if let Ok(sender) = crate::client::http2(ports.http, 1 << 20).await {
                let mut client = Self { sender, token: token.clone(), session: String::new() };
                let terms = json!({ "ttl_ms": TTL.as_millis() as u64, "owner": format!("tenant {tenant}") });
                if let Ok(made) = client.ask("/v1/sessions", &terms).await
                    && let Some(session) = made["session"].as_str()
                {
                    client.session = session.into();
                    return client;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn ask(&self, path: &str, body: &Value) -> Result<Value, String> {
        let mut sender = self.sender.clone();
        let answer = async {
            sender.ready().await.map_err(|error| error.to_string())?;
            sender.send_request(post(path, &self.token, body)).await.map_err(|error| error.to_string())
        };
        let answer = tokio::time::timeout(Duration::from_secs(60), answer).await;
        let answer = answer.map_err(|_| String::from("no answer within 60 s"))??;
        let status = answer.status();
        let text = crate::client::text(answer).await?;
        let reply = serde_json::from_str(&text).unwrap_or(Value::Null);
        if status.is_success() { Ok(reply) } else { Err(format!("{status}: {text}")) }
    }

    async fn acquire(&self, lock: &str) -> Result<Held, String> {
        self.acquire_with(lock, &json!({ "session": self.session, "wait_ms": 30_000 })).await
    }

    async fn acquire_with(&self, lock: &str, wanted: &Value) -> Result<Held, String> {
        let path = format!("/v1/locks/{}/acquire", lock.replace('/', "%2F"));
        let held = self.ask(&path, wanted).await?;
        let (hold, fence) =
            held["hold"].as_str().zip(held["fence"].as_u64()).ok_or("no hold in the answer")?;
        Ok(Held::Http { lock: lock.into(), hold: hold.into(), fence })
    }

    async fn check(&self, hold: &str) -> Result<(), String> {
        let alive = self.ask(&format!("/v1/sessions/{}/keep-alive", self.session), &json!({})).await?;
        let lost = alive["lost"].as_array().is_some_and(|lost| lost.iter().any(|lost| lost["hold"] == hold));
        if lost { Err(alive.to_string()) } else { Ok(()) }
    }

    async fn release(&self, lock: &str, hold: &str) -> Result<(), String> {
        let path = format!("/v1/locks/{}/release", lock.replace('/', "%2F"));
        let released = self.ask(&path, &json!({ "hold": hold })).await?;
        if released["released"] == true { Ok(()) } else { Err(released.to_string()) }
    }
}
