//! Random kills (SIGKILL) while processes take turns. `LOCKKEEPER_TEST_KILLS=1000` is the long run.

use crate::backend::{Backend, Guarantee, Nodes, open, until};
use crate::oracle::{self, Log};
use crate::worker::Worker;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// The number of workers: few enough for two cores, enough for holders and waiters to be hit.
const WORKERS: usize = 5;

/// With several nodes, every other kill is one of the node that serves the locks.
pub async fn random_kills_never_admit_two_and_never_block(backend: &dyn Backend) {
    let kills = std::env::var("LOCKKEEPER_TEST_KILLS").ok().and_then(|n| n.parse().ok());
    let kills = kills.unwrap_or(backend.kills());
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let nodes = backend.nodes();
    let how = if nodes.is_some() { "persist" } else { "loop" };
    let start = async || {
        let mut worker = Worker::start(&backend.url());
        let ttl_ms = backend.short_ttl().as_millis();
        worker.send(&format!("{how} {ttl_ms} 2 1000000000 300 a {}", log.display())).await;
        worker
    };
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(start().await);
    }
    let mut random = Random(std::process::id() as u64 | 1 << 40);
    for kill in 0..kills {
        // Some workers enter between two kills: the lock is never stuck, and the workers have time to queue up.
        until_longer(&log, 100 + random.below(1500), &mut random).await;
        if let Some(nodes) = nodes.filter(|_| kill % 2 == 0) {
            fail_over(nodes, &log, &mut random).await;
            continue;
        }
        // Half of the time, kill the last holder, which probably still holds the lock; otherwise any worker.
        let inside = last_inside(&log).and_then(|pid| workers.iter().position(|worker| worker.pid() == pid));
        let any_worker = random.below(WORKERS as u64) as usize;
        let victim = inside.filter(|_| random.below(2) == 0).unwrap_or(any_worker);
        workers.swap_remove(victim).kill().await;
        workers.push(start().await);
    }
    for worker in workers {
        worker.kill().await;
    }
    let guarantee = nodes.map_or(Guarantee::Exclusion, |nodes| nodes.guarantee());
    let verdict = oracle::judge_failovers(&log, guarantee);
    assert!(verdict.entries >= kills, "{verdict:?}");
    let locks = open(backend).await;
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
    // Waiters that died are removed in the end, too.
    until(|| async { locks.list().await.unwrap().is_empty() }).await;
    println!("{kills} kills: {verdict:?}");
}

/// Waits until the log has so many more bytes. Requests that fail are in it too.
async fn until_longer(log: &Path, bytes: u64, random: &mut Random) {
    let enough = size_of(log) + bytes;
    while size_of(log) < enough {
        tokio::time::sleep(Duration::from_micros(100 + random.below(400))).await;
    }
}

/// Kills the node that serves the locks, and starts it again when workers have entered at the one that took over.
async fn fail_over(nodes: &dyn Nodes, log: &Path, random: &mut Random) {
    let mut marks = Log::open(log);
    marks.write("failover", "nodes", None);
    nodes.fail_over().await;
    marks.write("over", "nodes", None);
    let before = size_of(log) as usize;
    let exits = || std::fs::read_to_string(log).unwrap().get(before..).unwrap().matches("exit").count();
    while exits() < WORKERS {
        tokio::time::sleep(Duration::from_micros(100 + random.below(400))).await;
    }
    nodes.repair().await;
}

fn size_of(log: &Path) -> u64 {
    std::fs::metadata(log).map_or(0, |meta| meta.len())
}

/// The process that wrote the last line about a hold in the end of the log.
fn last_inside(log: &Path) -> Option<u32> {
    let mut file = std::fs::File::open(log).ok()?;
    file.seek(SeekFrom::End(-192)).ok()?;
    let mut tail = String::new();
    file.read_to_string(&mut tail).ok()?;
    let inside = tail.lines().rfind(|line| line.starts_with("enter") || line.starts_with("inside"))?;
    inside.split(' ').nth(1)?.split('.').next()?.parse().ok()
}

/// xorshift64: the choice of the process to kill does not need good randomness.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
