//! A thread for long computations. It merges and encodes lists of many locks, so that this does not block the threads
//! that serve clients.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use tokio::sync::oneshot;

/// Niceness of the thread, relative to the threads that serve clients and renew leases. It is small because the
/// thread locks the member for short periods and must not be starved in one of them.
const NICENESS: i32 = 5;

type Job = Box<dyn FnOnce() + Send>;

/// One thread that runs jobs one at a time, in order. Each job must be short: lists are encoded in chunks.
pub(crate) struct Worker {
    jobs: Sender<Job>,
}

impl Worker {
    pub fn start() -> std::io::Result<Self> {
        let (jobs, arriving) = channel::<Job>();
        let work = move || {
            // On Linux this applies to the calling thread only. A failure is harmless.
            let _ = rustix::process::setpriority_process(None, NICENESS);
            while let Ok(job) = arriving.recv() {
                // A panic drops the job's sender, so its caller gets `None`.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        };
        std::thread::Builder::new().name(String::from("lists")).spawn(work)?;
        Ok(Self { jobs })
    }

    /// Runs a job on the thread; `None` if it panicked. A job whose caller has gone is skipped.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = oneshot::channel();
        let job = move || {
            if !done.is_closed() {
                let _ = done.send(job());
            }
        };
        self.jobs.send(Box::new(job)).ok()?;
        result.await.ok()
    }
}
