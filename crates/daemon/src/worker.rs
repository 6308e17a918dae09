//! A thread for long work: lists of many locks are merged and encoded here, so that no thread that serves clients is kept from it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use tokio::sync::oneshot;

/// How much less important the thread is to the system's scheduler than those that serve clients and keep leases. It holds the member's
/// lock for moments: it must not be starved.
const NICENESS: i32 = 5;

type Job = Box<dyn FnOnce() + Send>;

/// One thread, which does one job at a time, in the order in which they come. Each job must be short: lists are encoded in parts.
pub(crate) struct Worker {
    jobs: Sender<Job>,
}

impl Worker {
    pub fn start() -> Result<Self, String> {
        let (jobs, arriving) = channel::<Job>();
        let work = move || {
            // On Linux this is about the calling thread alone. Without it, work is only less polite.
            let _ = rustix::process::setpriority_process(None, NICENESS);
            while let Ok(job) = arriving.recv() {
                // A panic is the job's: whoever waits for it is told.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        };
        let thread = std::thread::Builder::new().name(String::from("lists")).spawn(work);
        thread.map_err(|error| format!("cannot start the thread for lists: {error}"))?;
        Ok(Self { jobs })
    }

    /// Does something on the thread; `None` if it panicked. A job whose caller has gone is not begun.
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
