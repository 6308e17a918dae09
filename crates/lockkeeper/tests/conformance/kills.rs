//! kill -9 at random, while processes take turns. `LOCKKEEPER_TEST_KILLS=1000` is the long run.

use crate::backend::{Backend, open};
use crate::oracle;
use crate::worker::Worker;
use std::time::Duration;

/// Few enough for two cores, enough for holders and waiters to be hit.
const WORKERS: usize = 5;

pub async fn random_kills_never_admit_two_and_never_block(backend: &dyn Backend) {
    let kills = std::env::var("LOCKKEEPER_TEST_KILLS").ok().and_then(|n| n.parse().ok());
    let kills = kills.unwrap_or(backend.kills());
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let start = async || {
        let mut worker = Worker::start(&backend.url());
        worker.tell(&format!("loop 2 1000000000 a {}", log.display())).await;
        worker
    };
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(start().await);
    }
    let mut random = Random(std::process::id() as u64 | 1 << 40);
    for _ in 0..kills {
        // Somebody enters between two kills: the lock is never stuck.
        let size = std::fs::metadata(&log).map_or(0, |meta| meta.len());
        while std::fs::metadata(&log).map_or(0, |meta| meta.len()) <= size {
            tokio::time::sleep(Duration::from_micros(random.below(500))).await;
        }
        let victim = random.below(WORKERS as u64) as usize;
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
    assert_eq!(locks.list().await.unwrap(), []);
    println!("{kills} kills: {verdict:?}");
}

/// xorshift64: which process dies when need not be good randomness.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
