//! `bench failover`: what a crash costs. One client holds a lock, another one waits for it, and eight others, connected
//! to servers that survive, acquire and release a lock of their own in a loop. Then a server, the holder, or both are
//! killed with SIGKILL.
//!
//! ```text
//! holder    ├─ run … ──────────────────────✗ (fault: client, both)
//! server 1  ├─ serves the holder ──────────✗ (fault: server, both)
//! waiter    ├─ waits for the holder's lock ┊────── granted: `regrant_ms`
//! survivors ├─ list the holder ────────────┊─── list it again: `listed_ms` (fault: server)
//! others    ├─ acquire, release, acquire … ┊ ─gap─ acquire, release …: the longest gap of all of them is `gap_ms`
//! ```

use crate::engine::{Client, Engine};
use crate::error::BenchError;
use crate::locks::{Program, Stage};
use lockkeeper::{Lockkeeper, Result};
use serde::Serialize;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Number of clients that use a lock of their own.
const OTHERS: usize = 8;
/// The lock of the holder that is killed.
const LOCK: &str = "failover";
/// The time for which all clients run before the fault, and at least after it.
const CALM: Duration = Duration::from_secs(2);
/// The time within which the servers must list the holder and the waiter.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// The processes that are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// The server to which the holder is connected.
    Server,
    /// The holder's process.
    Client,
    /// The holder, and the server to which it is connected.
    Both,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 3] = [Fault::Server, Fault::Client, Fault::Both];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Server => "server",
            Fault::Client => "client",
            Fault::Both => "both",
        }
    }
}

/// The measurements to make.
pub struct FailoverPlan {
    /// The engines to measure.
    pub engines: Vec<&'static Engine>,
    /// Number of repeats. Each of them kills another server.
    pub repeat: usize,
    /// The time to live of the holder's lock.
    pub ttl: Duration,
}

/// The result of one fault.
#[derive(Clone, Debug, Serialize)]
pub struct FailoverRun {
    /// The engine's name.
    pub engine: &'static str,
    /// The processes that were killed.
    pub fault: Fault,
    /// The place of the killed server in the list of servers; for etcd and ZooKeeper, the leader is the first.
    pub server: usize,
    /// The longest time without an acquire of one of the other clients, after the fault.
    pub gap_ms: f64,
    /// The longest time without an acquire of one of the other clients, before the fault.
    pub calm_gap_ms: f64,
    /// From the fault until the waiter has the lock; `None` if the holder was not killed and keeps it.
    pub regrant_ms: Option<f64>,
    /// From the fault until the surviving servers list the holder: in a cluster of lockkeeper's, another member has adopted
    /// the hold. `None` if the holder was killed.
    pub listed_ms: Option<f64>,
    /// Whether the holder's process still has the lock after a time to live; `None` if it was killed.
    pub holder_survives: Option<bool>,
}

/// An engine that `bench failover` can measure, since the library has a client for several of its servers.
pub fn can_measure(engine: &Engine) -> bool {
    scheme(engine).is_some()
}

fn scheme(engine: &Engine) -> Option<&'static str> {
    match engine.client {
        Client::Native => Some("lockkeeper"),
        Client::Etcd if engine.name.starts_with("etcd") => Some("etcd"),
        Client::ZooKeeper => Some("zookeeper"),
        _ => None,
    }
}

impl FailoverPlan {
    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.engines.len() * Fault::ALL.len() * self.repeat
    }
}

/// Performs all runs of a plan; each has new servers. `report` is called with a description of each run.
pub async fn run(
    plan: &FailoverPlan,
    program: &Program,
    report: &dyn Fn(&str),
) -> Result<Vec<FailoverRun>, BenchError> {
    let mut runs = Vec::new();
    for repeat in 0..plan.repeat {
        for &engine in &plan.engines {
            for fault in Fault::ALL {
                report(&format!(
                    "{}, kill -9 of {} ({} of {})",
                    engine.name,
                    fault.name(),
                    repeat + 1,
                    plan.repeat
                ));
                let one = Crash { engine, fault, repeat, ttl: plan.ttl, program };
                runs.push(one.run().await.map_err(|source| BenchError::Run {
                    engine: engine.name,
                    workload: fault.name(),
                    source: Box::new(source),
                })?);
            }
        }
    }
    Ok(runs)
}

/// One run: the fault, and its parameters.
struct Crash<'a> {
    engine: &'static Engine,
    fault: Fault,
    repeat: usize,
    ttl: Duration,
    program: &'a Program,
}

/// The process of the holder. It is killed when dropped.
struct Holder(Child);

impl Holder {
    fn is_alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Crash<'_> {
    async fn run(&self) -> Result<FailoverRun, BenchError> {
        let mut stage = Stage::set(self.engine, self.program).await?;
        let servers = stage.running.addresses.clone();
        let victim = self.repeat % servers.len();
        let survivors: Vec<String> =
            (1..servers.len()).map(|n| servers[(victim + n) % servers.len()].clone()).collect();
        let mut holder = self.start_holder(&[&servers[victim..=victim], &survivors[..]].concat())?;
        let waiter = Lockkeeper::open(&self.url(&survivors)).await?;
        until(|| async { Ok(waiter.inspect(LOCK).await?.holders.len() == 1) }).await?;
        let waiting = waiter.mutex(LOCK);
        let waiting =
            tokio::spawn(async move { waiting.acquire().await.map(|guard| (Instant::now(), guard)) });
        until(|| async { Ok(waiter.inspect(LOCK).await?.waiters.len() == 1) }).await?;
        let loops = Loops::start(&self.url(&survivors)).await?;
        tokio::time::sleep(CALM).await;

        let fault = Instant::now();
        if self.fault != Fault::Client {
            stage.running.kill(victim);
        }
        if self.fault != Fault::Server {
            holder.kill();
        }
        let (regrant_ms, listed_ms, holder_survives) = match self.fault {
            Fault::Server => {
                // A survivor that does not answer yet does not list the holder either.
                until(|| async { Ok(waiter.inspect(LOCK).await.is_ok_and(|lock| lock.holders.len() == 1)) })
                    .await?;
                let listed_ms = fault.elapsed().as_secs_f64() * 1e3;
                // Longer than the time for which the holder may rely on the dead server's last answer.
                tokio::time::sleep(self.ttl + CALM).await;
                waiting.abort();
                (None, Some(listed_ms), Some(holder.is_alive()))
            }
            Fault::Client | Fault::Both => {
                let (granted, guard) = waiting.await.map_err(|_| BenchError::HoldLost)??;
                guard.release().await?;
                tokio::time::sleep(CALM).await;
                (Some((granted - fault).as_secs_f64() * 1e3), None, None)
            }
        };
        let gaps = loops.end(fault).await?;
        Ok(FailoverRun {
            engine: self.engine.name,
            fault: self.fault,
            server: victim,
            gap_ms: gaps.after.as_secs_f64() * 1e3,
            calm_gap_ms: gaps.before.as_secs_f64() * 1e3,
            regrant_ms,
            listed_ms,
            holder_survives,
        })
    }

    /// A URL for the library's client. The servers are tried in this order.
    fn url(&self, servers: &[String]) -> String {
        let scheme = scheme(self.engine).unwrap_or_default();
        let in_order = if scheme == "lockkeeper" { "?in-order" } else { "" };
        format!("{scheme}://{}{in_order}", servers.join(","))
    }

    /// Starts `lockkeeper run` as the holder.
    fn start_holder(&self, servers: &[String]) -> Result<Holder, BenchError> {
        let mut words = self.program.pdeathsig_prefix.0.iter().map(String::as_str);
        let mut command = Command::new(words.next().unwrap_or("env"));
        command.args(words).arg(&self.program.path);
        command.args(["run", "--on", &self.url(servers), "--ttl", &format!("{}s", self.ttl.as_secs())]);
        command.args([LOCK, "--", "sleep", "600"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Holder(command.spawn().map_err(BenchError::Holder)?))
    }
}

/// The other clients.
struct Loops {
    tasks: JoinSet<Result<Vec<Instant>>>,
    ended: Arc<AtomicBool>,
}

/// The longest times without an acquire of one client.
struct Gaps {
    before: Duration,
    after: Duration,
}

impl Loops {
    async fn start(url: &str) -> Result<Loops> {
        let (mut tasks, ended) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        for place in 0..OTHERS {
            let (locks, ended) = (Lockkeeper::open(url).await?, ended.clone());
            tasks.spawn(async move {
                let mut acquired = Vec::new();
                while !ended.load(Ordering::Relaxed) {
                    let guard = locks.mutex(format!("other-{place}")).acquire().await?;
                    acquired.push(Instant::now());
                    guard.release().await?;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Ok(acquired)
            });
        }
        Ok(Loops { tasks, ended })
    }

    /// Ends the loops. An acquire of each client is certain to follow the fault, since the loops run on until then.
    async fn end(mut self, fault: Instant) -> Result<Gaps, BenchError> {
        self.ended.store(true, Ordering::Relaxed);
        let mut gaps = Gaps { before: Duration::ZERO, after: Duration::ZERO };
        while let Some(task) = self.tasks.join_next().await {
            let acquired = task.map_err(|_| BenchError::HoldLost)??;
            gaps.add(&acquired, fault);
        }
        Ok(gaps)
    }
}

impl Gaps {
    /// Adds the gaps of one client. A gap counts as after the fault if it ends after it.
    fn add(&mut self, acquired: &[Instant], fault: Instant) {
        for pair in acquired.windows(2) {
            let longest = if pair[1] > fault { &mut self.after } else { &mut self.before };
            *longest = (*longest).max(pair[1] - pair[0]);
        }
    }
}

/// Waits until a condition holds.
async fn until<F: Future<Output = Result<bool>>>(condition: impl Fn() -> F) -> Result<(), BenchError> {
    let began = Instant::now();
    while !condition().await? {
        if began.elapsed() > STARTS_WITHIN {
            return Err(BenchError::NotWaiting { within: STARTS_WITHIN });
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_that_contains_the_fault_counts_as_after_it() {
        let began = Instant::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        let mut gaps = Gaps { before: Duration::ZERO, after: Duration::ZERO };
        gaps.add(&[at(0), at(7), at(10), at(510), at(512)], at(11));
        gaps.add(&[at(0), at(3), at(20)], at(11));
        assert_eq!((gaps.before, gaps.after), (Duration::from_millis(7), Duration::from_millis(500)));
    }
}
