//! Work that takes a while: on a thread of its own, within limits, and stopped when nobody waits for it any more.

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

/// How much is worked on at once, for all pages together.
const MOST_AT_ONCE: usize = 4;
/// How often a page is told how far its work is.
const TELL_EVERY: Duration = Duration::from_millis(150);

/// Where work is taken on.
#[derive(Clone, Debug)]
pub struct Desk {
    places: Arc<Semaphore>,
}

impl Default for Desk {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(MOST_AT_ONCE)) }
    }
}

/// Why there is no answer; a sentence for the person in front of the page.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    why: String,
}

impl Refusal {
    /// What was asked for makes no sense.
    pub fn usage(why: impl ToString) -> Self {
        Self { status: StatusCode::BAD_REQUEST, why: why.to_string() }
    }

    fn busy() -> Self {
        let why = format!(
            "{MOST_AT_ONCE} runs are under way already, which is the most at once: stop one of them, or close its tab"
        );
        Self { status: StatusCode::TOO_MANY_REQUESTS, why }
    }

    fn too_long(limit: Duration) -> Self {
        let why = format!("this takes longer than {} s: ask for less", limit.as_secs());
        Self { status: StatusCode::SERVICE_UNAVAILABLE, why }
    }
}

#[derive(Serialize)]
struct Told<'a> {
    error: &'a str,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, axum::Json(Told { error: &self.why })).into_response()
    }
}

/// Tells the work to stop as soon as nobody waits for its answer.
struct StopOnDrop(Arc<Progress>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl Desk {
    /// How much is worked on.
    pub fn busy(&self) -> usize {
        MOST_AT_ONCE - self.places.available_permits()
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        self.places.clone().try_acquire_owned().map_err(|_| Refusal::busy())
    }

    /// Does some work whose answer comes as a whole.
    pub async fn whole<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&Progress) -> Result<T, String> + Send + 'static,
    ) -> Result<T, Refusal> {
        let place = self.place()?;
        let progress = Arc::new(Progress::default());
        let _stop = StopOnDrop(progress.clone());
        let task = tokio::task::spawn_blocking(move || {
            let _place = place;
            work(&progress)
        });
        match tokio::time::timeout(limit, task).await {
            Ok(Ok(answer)) => answer.map_err(Refusal::usage),
            Ok(Err(_)) => Err(Refusal::usage("this run broke the simulator, which is a fault of ours")),
            Err(_) => Err(Refusal::too_long(limit)),
        }
    }

    /// Does some work that tells how far it is: the answer is a line of JSON now and then, and a last one.
    pub fn lines(
        &self,
        limit: Duration,
        work: impl FnOnce(&Teller) -> Result<serde_json::Value, String> + Send + 'static,
    ) -> Result<Response, Refusal> {
        let place = self.place()?;
        let progress = Arc::new(Progress::default());
        let stop = StopOnDrop(progress.clone());
        let (lines, receiver) = mpsc::channel(16);
        let teller = Teller { lines, progress, until: Instant::now() + limit, late: AtomicBool::new(false) };
        tokio::task::spawn_blocking(move || {
            let _place = place;
            let last = match work(&teller) {
                Ok(answer) => answer,
                Err(_) if teller.late.load(Ordering::Relaxed) => {
                    serde_json::json!({ "error": Refusal::too_long(limit).why })
                }
                Err(error) => serde_json::json!({ "error": error }),
            };
            // Nobody listens any more: then nobody has to be told.
            let _ = teller.lines.blocking_send(line(&last));
        });
        let stream = futures_util::stream::unfold((receiver, stop), |(mut receiver, stop)| async {
            let line = receiver.recv().await?;
            Some((Ok::<_, Infallible>(line), (receiver, stop)))
        });
        let kind = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
        Ok((kind, Body::from_stream(stream)).into_response())
    }
}

/// What work under way tells its page.
#[derive(Debug)]
pub struct Teller {
    lines: mpsc::Sender<Bytes>,
    /// What the lab's own loops look at.
    pub progress: Arc<Progress>,
    until: Instant,
    late: AtomicBool,
}

impl Teller {
    /// Whether to go on: somebody still waits, and there is time left.
    pub fn goes_on(&self) -> bool {
        if Instant::now() >= self.until {
            self.late.store(true, Ordering::Relaxed);
            self.progress.stop.store(true, Ordering::Relaxed);
        }
        !self.progress.stop.load(Ordering::Relaxed)
    }

    /// Tells how far the work is; left out if the page is behind with reading.
    pub fn tell(&self, sofar: &serde_json::Value) {
        let _ = self.lines.try_send(line(sofar));
    }

    /// Tells how far the work is, again and again, until `over`; for work that cannot do it itself.
    pub fn watch<T>(&self, sofar: impl Fn() -> serde_json::Value + Sync, work: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) && self.goes_on() {
                    self.tell(&sofar());
                    std::thread::park_timeout(TELL_EVERY);
                }
            });
            let answer = work();
            over.store(true, Ordering::Relaxed);
            answer
        })
    }

    /// A clock that says when it is time to tell something.
    pub fn now_and_then(&self) -> impl FnMut() -> bool + use<> {
        let mut last = None;
        move || {
            let now = Instant::now();
            let due = last.is_none_or(|last: Instant| now.duration_since(last) >= TELL_EVERY);
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
