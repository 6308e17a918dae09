//! Random kills (SIGKILL) while processes take turns. `LOCKKEEPER_TEST_KILLS=1000` is the long run.

use crate::backend::{Backend, open, until};
use crate::oracle;
use crate::worker::Worker;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

/// The number of workers: few enough for two cores, enough for holders and waiters to be hit.
const WORKERS: usize = 5;

pub async fn random_kills_never_admit_two_and_never_block(backend: &dyn Backend) {
    let kills = std::env::var("LOCKKEEPER_TEST_KILLS").ok().and_then(|n| n.parse().ok());
    let kills = kills.unwrap_or(backend.kills());
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let start = async || {
        let mut worker = Worker::start(&backend.url());
        let ttl_ms = backend.short_ttl().as_millis();
        worker.send(&format!("loop {ttl_ms} 2 1000000000 300 a {}", log.display())).await;
        worker
    };
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(start().await);
    }
    let mut random = Random(std::process::id() as u64 | 1 << 40);
    for _ in 0..kills {
        // Some workers enter between two kills: the lock is never stuck, and the workers have time to queue up.
        let enough = size_of(&log) + 100 + random.below(1500);
        while size_of(&log) < enough {
            tokio::time::sleep(Duration::from_micros(100 + random.below(400))).await;
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
    let verdict = oracle::judge(&log);
    assert!(verdict.entries >= kills, "{verdict:?}");
    let locks = open(backend).await;
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
    // Waiters that died are removed in the end, too.
    until(|| async { locks.list().await.unwrap().is_empty() }).await;
    println!("{kills} kills: {verdict:?}");
}

fn size_of(log: &Path) -> u64 {
    std::fs::metadata(log).map_or(0, |meta| meta.len())
}

/// The process that wrote the log's last line.
fn last_inside(log: &Path) -> Option<u32> {
    let mut file = std::fs::File::open(log).ok()?;
    file.seek(SeekFrom::End(-64)).ok()?;
    let mut tail = String::new();
    file.read_to_string(&mut tail).ok()?;
    tail.lines().last()?.split(' ').nth(1)?.split('.').next()?.parse().ok()
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
