//! The list of locks, sent in chunks. A chunk is encoded only when the client is ready to read it.

use super::locks::Page;
use super::problem::Problem;
use super::request::Caller;
use super::show::LockState;
use crate::front::Front;
use crate::leases::Fault;
use crate::metrics::Metrics;
use crate::snapshots::Snapshot;
use crate::turns::Turn;
use crate::worker::Worker;
use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Approximate size of a chunk of the list, in bytes.
const PART_BYTES: usize = 64 << 10;

/// The part of the list that is still to be sent, with its snapshot.
struct Rest {
    snapshot: Arc<Snapshot>,
    ranges: Vec<Range<usize>>,
    begun: bool,
    done: bool,
    _turn: Turn,
}

impl Rest {
    /// Encodes the next chunk.
    fn part(&mut self) -> Vec<u8> {
        let mut part = Vec::with_capacity(PART_BYTES + PART_BYTES / 8);
        while let Some(range) = self.ranges.first_mut() {
            let Some(place) = range.next() else {
                self.ranges.remove(0);
                continue;
            };
            part.push(if std::mem::replace(&mut self.begun, true) { b',' } else { b'[' });
            let state = LockState::of(&self.snapshot.locks[place]);
            serde_json::to_writer(&mut part, &state)
                .expect("serializing to memory cannot fail, and all keys are strings");
            if part.len() >= PART_BYTES {
                return part;
            }
        }
        self.done = true;
        part.extend_from_slice(if self.begun { b"]" } else { b"[]" });
        part
    }
}

/// The last lock of a page, after which the next page begins, and the approximate number of locks that follow.
type Next = (Arc<str>, u64);

/// The locks of a page that the caller may see, and the beginning of the next page, if more follow.
fn select(snapshot: &Snapshot, scope: &[String], page: &Page) -> (Vec<Range<usize>>, Option<Next>) {
    let mut ranges = snapshot.ranges(scope, page.after.as_deref());
    let all: usize = ranges.iter().map(ExactSizeIterator::len).sum();
    let most = page.limit.unwrap_or(usize::MAX);
    // Cut the ranges off after `most` locks. Example: ranges 1..3 and 4..6 with a limit of 3 become 1..3 and 4..5.
    let mut left = most;
    ranges.retain_mut(|range| {
        range.end = range.end.min(range.start.saturating_add(left));
        left -= range.len();
        range.start < range.end
    });
    let last =
        ranges.last().and_then(|range| snapshot.locks.get(range.end - 1)).map(|lock| lock.name.clone());
    let rest = (all.saturating_sub(most)) as u64;
    let next = match (rest, last, snapshot.until()) {
        (1.., Some(last), _) => Some((last, rest + snapshot.left_out)),
        (_, _, Some(until)) => Some((until.clone(), snapshot.left_out)),
        _ => None,
    };
    (ranges, next)
}

/// Replies with a page of the list.
pub(super) async fn respond(front: &Arc<Front>, caller: &Caller, page: Page) -> Result<Response, Problem> {
    let asked = Instant::now();
    let turn = front.turn(&caller.account).await?;
    let snapshot = front.snapshots.page(page.after.as_deref(), asked).await?;
    let (ranges, next) = select(&snapshot, &caller.who.scope(&page.prefix), &page);
    let silent: Vec<String> = snapshot.silent.iter().map(|id| id.0.to_string()).collect();
    let rest = Rest { snapshot, ranges, begun: false, done: false, _turn: turn };
    let body = Sending::new(front, rest).body();
    let mut response = ([(header::CONTENT_TYPE, "application/json")], body).into_response();
    if let Some((last, left_out)) = next {
        let link = link(&page, &last)
            .parse()
            .map_err(|_| Fault::Bad(String::from("the next page has no address")))?;
        response.headers_mut().insert(header::LINK, link);
        let name = HeaderName::from_static("lockkeeper-left-out");
        response.headers_mut().insert(name, HeaderValue::from(left_out));
    }
    if let (false, Ok(silent)) = (silent.is_empty(), HeaderValue::from_str(&silent.join(", "))) {
        response.headers_mut().insert(HeaderName::from_static("lockkeeper-silent-members"), silent);
    }
    Ok(response)
}

/// The `Link` header with the address of the page after this lock.
fn link(page: &Page, last: &str) -> String {
    let mut link = format!("</v1/locks?after={}", escaped(last));
    if !page.prefix.is_empty() {
        link += &format!("&prefix={}", escaped(&page.prefix));
    }
    if let Some(limit) = page.limit {
        link += &format!("&limit={limit}");
    }
    link + ">; rel=\"next\""
}

fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// A list that is being sent. If the client reads nothing for too long, the list is dropped and its memory freed.
struct Sending {
    rest: Arc<Mutex<Option<Rest>>>,
    parts: Arc<AtomicU64>,
    worker: Arc<Worker>,
    metrics: Arc<Metrics>,
    watchdog: AbortHandle,
}

impl Sending {
    fn new(front: &Front, rest: Rest) -> Self {
        let rest = Arc::new(Mutex::new(Some(rest)));
        let parts = Arc::new(AtomicU64::new(0));
        let watchdog = watch_over(rest.clone(), parts.clone(), front.shared.limits.patience());
        let watchdog = tokio::spawn(watchdog).abort_handle();
        let (worker, metrics) = (front.snapshots.worker().clone(), front.metrics.clone());
        Self { rest, parts, worker, metrics, watchdog }
    }

    fn body(self) -> Body {
        let parts = futures_util::stream::unfold(Some(self), |sending| async move {
            let sending = sending?;
            match sending.next().await {
                Some(Ok((part, more))) => Some((Ok(part), more.then_some(sending))),
                Some(Err(error)) => Some((Err(error), None)),
                None => None,
            }
        });
        Body::from_stream(parts)
    }

    /// The next chunk, and whether more follow.
    async fn next(&self) -> Option<io::Result<(Bytes, bool)>> {
        self.parts.fetch_add(1, Ordering::Relaxed);
        let rest = self.rest.clone();
        let part = move || {
            let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
            let part = rest.as_mut().map(|rest| (Bytes::from(rest.part()), !rest.done));
            // Drop the snapshot now: a client that is slow to read the last chunk must not pin it.
            rest.take_if(|rest| rest.done);
            part
        };
        match self.worker.run(part).await {
            Some(Some((part, more))) => {
                self.metrics.listed(part.len());
                Some(Ok((part, more)))
            }
            _ => Some(Err(io::Error::other("the list was read too slowly"))),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.watchdog.abort();
    }
}

/// Drops a list of which no chunk was requested within the timeout.
async fn watch_over(rest: Arc<Mutex<Option<Rest>>>, parts: Arc<AtomicU64>, patience: Duration) {
    loop {
        let before = parts.load(Ordering::Relaxed);
        tokio::time::sleep(patience).await;
        if parts.load(Ordering::Relaxed) == before {
            rest.lock().unwrap_or_else(PoisonError::into_inner).take();
            return;
        }
    }
}
