//! Workers on a queue, of which only two at a time may use a slow service: a semaphore with two permits.
//!
//! ```sh
//! cargo run -p lockkeeper --example work_queue [URL]
//! ```
//!
//! A permit has no fence, since permits are held at the same time and in no order: a worker whose hold is lost stops, as
//! `select!` does here.

use lockkeeper::Lockkeeper;
use std::collections::VecDeque;
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WORKERS: u32 = 6;
const JOBS: u32 = 12;
const PERMITS: u32 = 2;

/// The slow service: it counts its users.
#[derive(Default)]
struct Service {
    now: AtomicU32,
    most: AtomicU32,
    done: AtomicU32,
}

impl Service {
    async fn call(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

async fn worker(
    locks: Lockkeeper,
    queue: Arc<Mutex<VecDeque<u32>>>,
    service: Arc<Service>,
) -> lockkeeper::Result<()> {
    loop {
        let Some(job) = queue.lock().unwrap_or_else(|e| e.into_inner()).pop_front() else { return Ok(()) };
        let permit =
            locks.semaphore("slow-service", PERMITS).metadata("job", job.to_string()).acquire().await?;
        tokio::select! {
            () = service.call() => permit.release().await?,
            loss = permit.lost() => println!("job {job} is given up: {loss}"),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let url = std::env::args().nth(1).unwrap_or_else(|| format!("file://{}", directory.path().display()));
    let queue = Arc::new(Mutex::new((1..=JOBS).collect::<VecDeque<u32>>()));
    let service = Arc::new(Service::default());
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..WORKERS {
        workers.spawn(worker(Lockkeeper::open(url.as_str()).await?, queue.clone(), service.clone()));
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    let (done, most) = (service.done.load(Ordering::SeqCst), service.most.load(Ordering::SeqCst));
    println!("{done} of {JOBS} jobs done by {WORKERS} workers, at most {most} at a time");
    match most <= PERMITS && done == JOBS {
        true => Ok(()),
        false => Err("the service had more users than permits".into()),
    }
}
