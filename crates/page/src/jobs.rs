//! Long-running jobs: each on its own thread, within limits, and stopped when its client disconnects.

use crate::requests::RequestError;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use lockkeeper_lab::Progress;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// The maximum number of concurrent jobs, over all pages.
const MOST_JOBS: usize = 4;
/// Interval between two progress reports to a page.
const REPORT_INTERVAL: Duration = Duration::from_millis(150);

/// Accepts jobs up to the limit.
#[derive(Clone, Debug)]
pub struct Jobs {
    permits: Arc<Semaphore>,
}

impl Default for Jobs {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(MOST_JOBS)) }
    }
}

/// A rejected request, with a message for the user of the page.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    why: String,
}

impl Refusal {
    /// The request is invalid.
    pub fn usage(why: impl ToString) -> Self {
        Self { status: StatusCode::BAD_REQUEST, why: why.to_string() }
    }

    fn busy() -> Self {
        let why = format!(
            "{MOST_JOBS} runs are under way already, which is the most at once: stop one of them, or close its tab"
        );
        Self { status: StatusCode::TOO_MANY_REQUESTS, why }
    }

    fn too_long(limit: Duration) -> Self {
        let why = format!("this took longer than {} s: try fewer sites, entries or faults", limit.as_secs());
        Self { status: StatusCode::SERVICE_UNAVAILABLE, why }
    }
}

#[derive(Serialize)]
struct ErrorReply<'a> {
    error: &'a str,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, axum::Json(ErrorReply { error: &self.why })).into_response()
    }
}

/// Stops the job when its client no longer waits for the result.
struct StopOnDrop(Arc<Progress>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl Jobs {
    /// Number of running jobs.
    pub fn running(&self) -> usize {
        MOST_JOBS - self.permits.available_permits()
    }

    fn permit(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        self.permits.clone().try_acquire_owned().map_err(|_| Refusal::busy())
    }

    /// Runs a job and returns its result as a whole.
    pub async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&Progress) -> Result<T, RequestError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let permit = self.permit()?;
        let progress = Arc::new(Progress::default());
        let _stop = StopOnDrop(progress.clone());
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&progress)
        });
        match tokio::time::timeout(limit, task).await {
            Ok(Ok(result)) => result.map_err(Refusal::usage),
            Ok(Err(_)) => {
                Err(Refusal::usage("the simulator panicked during this run; this is a bug in Lockkeeper"))
            }
            Err(_) => Err(Refusal::too_long(limit)),
        }
    }

    /// Runs a job and streams its progress: a line of JSON at intervals, and a last line with the result.
    pub fn stream(
        &self,
        limit: Duration,
        work: impl FnOnce(&ProgressReports) -> Result<serde_json::Value, RequestError> + Send + 'static,
    ) -> Result<Response, Refusal> {
        let permit = self.permit()?;
        let progress = Arc::new(Progress::default());
        let stop = StopOnDrop(progress.clone());
        let (lines, receiver) = mpsc::channel(16);
        let reports =
            ProgressReports { lines, progress, until: Instant::now() + limit, late: AtomicBool::new(false) };
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let last = match work(&reports) {
                Ok(result) => result,
                Err(_) if reports.late.load(Ordering::Relaxed) => {
                    serde_json::json!({ "error": Refusal::too_long(limit).why })
                }
                Err(error) => serde_json::json!({ "error": error.to_string() }),
            };
            // If the client has disconnected, the result is dropped.
            let _ = reports.lines.blocking_send(line(&last));
        });
        let stream = futures_util::stream::unfold((receiver, stop), |(mut receiver, stop)| async {
            let line = receiver.recv().await?;
            Some((Ok::<_, Infallible>(line), (receiver, stop)))
        });
        let kind = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
        Ok((kind, Body::from_stream(stream)).into_response())
    }
}

/// The progress reports of a job to its page.
#[derive(Debug)]
pub struct ProgressReports {
    lines: mpsc::Sender<Bytes>,
    /// The progress and stop flag of the lab's own loops.
    pub progress: Arc<Progress>,
    until: Instant,
    late: AtomicBool,
}

impl ProgressReports {
    /// Whether the job should continue: the client still waits, and the time limit is not reached.
    pub fn should_continue(&self) -> bool {
        if Instant::now() >= self.until {
            self.late.store(true, Ordering::Relaxed);
            self.progress.stop.store(true, Ordering::Relaxed);
        }
        !self.progress.stop.load(Ordering::Relaxed)
    }

    /// Sends a progress report; drops it if the client reads too slowly.
    pub fn send(&self, sofar: &serde_json::Value) {
        let _ = self.lines.try_send(line(sofar));
    }

    /// Sends progress reports at intervals while `work` runs; for work that cannot send them itself.
    pub fn send_while<T>(&self, sofar: impl Fn() -> serde_json::Value + Sync, work: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) && self.should_continue() {
                    self.send(&sofar());
                    std::thread::park_timeout(REPORT_INTERVAL);
                }
            });
            let result = work();
            over.store(true, Ordering::Relaxed);
            result
        })
    }

    /// Returns a function that returns `true` when it is time for the next progress report.
    pub fn timer(&self) -> impl FnMut() -> bool + use<> {
        let mut last = None;
        move || {
            let now = Instant::now();
            let due = last.is_none_or(|last: Instant| now.duration_since(last) >= REPORT_INTERVAL);
            if due {
                last = Some(now);
            }
            due
        }
    }
}

fn line(value: &serde_json::Value) -> Bytes {
    let mut line = value.to_string();
    line.push('\n');
    line.into()
}
