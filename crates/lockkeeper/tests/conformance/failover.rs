//! Clients that take turns while servers fail: the parts that engines with several servers share.

use crate::backend::{is_of_a_failover, open_url, until};
use crate::oracle::{self, Log};
use crate::worker;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The number of clients.
const CLIENTS: usize = 4;

/// The entries that end the wait after a change.
const ENTRIES: usize = 25;

/// Clients that enter one lock again and again, each with a connection of its own, and record it.
pub struct Clients {
    directory: tempfile::TempDir,
    entries: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Clients {
    pub async fn start(url: &str, ttl: Duration) -> Clients {
        let directory = tempfile::tempdir().unwrap();
        let (entries, ends) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let mut tasks = Vec::new();
        for client in 0..CLIENTS {
            let locks = open_url(url).await;
            let mut log = Log::open(&directory.path().join("log"));
            let (entries, ends) = (entries.clone(), ends.clone());
            tasks.push(tokio::spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    let guard = match locks.mutex("a").ttl(ttl).acquire().await {
                        Ok(guard) => guard,
                        Err(error) if is_of_a_failover(&error) => continue,
                        Err(error) => panic!("{error:?}"),
                    };
                    if worker::hold(&guard, Duration::from_micros(200), &mut log, &client.to_string()).await {
                        entries.fetch_add(1, Ordering::Relaxed);
                        match guard.release().await {
                            Err(error) if !is_of_a_failover(&error) => panic!("{error:?}"),
                            _ => {}
                        }
                    }
                }
            }));
        }
        Clients { directory, entries, ends, tasks }
    }

    /// Waits until the clients have entered some more times, however long that takes.
    pub async fn enter(&self) {
        let enough = self.entries.load(Ordering::Relaxed) + ENTRIES;
        until(|| async { self.entries.load(Ordering::Relaxed) >= enough }).await;
    }

    /// Ends the clients, and checks that no two were inside at once, and that fences rose.
    pub async fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        let log = self.directory.path().join("log");
        let verdict = oracle::judge(&log);
        assert!(verdict.entries >= ENTRIES, "{verdict:?}");
    }

    /// Ends the clients, and checks the order of fences alone, for engines whose failover may forget a hold.
    pub async fn end_with_rising_fences(self) {
        self.ends.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        fences_rise(&self.directory.path().join("log"));
    }
}

fn fences_rise(log: &Path) {
    let (text, mut highest) = (std::fs::read_to_string(log).unwrap(), 0);
    for line in text.lines().filter(|line| line.starts_with("enter")) {
        let fence: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(fence > highest, "fence {fence} after {highest}");
        highest = fence;
    }
    assert!(highest > 0);
}
