//! The list of locks, sent in chunks. A chunk is encoded only when the client is ready to read it.

use super::locks::Page;
use super::problem::Problem;
use super::request::Caller;
use super::show::LockState;
use crate::client_service::ClientService;
use crate::leases::LeaseError;
use crate::list_permits::ListPermit;
use crate::metrics::Metrics;
use crate::snapshots::Snapshot;
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
const LIST_CHUNK_BYTES: usize = 64 << 10;

/// The chunk of the list that is still to be sent, with its snapshot.
struct UnsentList {
    snapshot: Arc<Snapshot>,
    ranges: Vec<Range<usize>>,
    begun: bool,
    done: bool,
    _permit: ListPermit,
}

impl UnsentList {
    /// Encodes the next chunk.
    fn next_chunk(&mut self) -> Vec<u8> {
        let mut chunk = Vec::with_capacity(LIST_CHUNK_BYTES + LIST_CHUNK_BYTES / 8);
        while let Some(range) = self.ranges.first_mut() {
            let Some(index) = range.next() else {
                self.ranges.remove(0);
                continue;
            };
            chunk.push(if std::mem::replace(&mut self.begun, true) { b',' } else { b'[' });
            let state = LockState::of(&self.snapshot.locks[index]);
            serde_json::to_writer(&mut chunk, &state)
                .expect("serializing to memory cannot fail, and all keys are strings");
            if chunk.len() >= LIST_CHUNK_BYTES {
                return chunk;
            }
        }
        self.done = true;
        chunk.extend_from_slice(if self.begun { b"]" } else { b"[]" });
        chunk
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
pub(super) async fn respond(
    service: &Arc<ClientService>,
    caller: &Caller,
    page: Page,
) -> Result<Response, Problem> {
    let arrived = Instant::now();
    let list_permit = service.list_permit(&caller.account).await?;
    let snapshot = service.snapshots.page(page.after.as_deref(), arrived).await?;
    let (ranges, next) = select(&snapshot, &caller.who.scope(&page.prefix), &page);
    let silent: Vec<String> = snapshot.silent.iter().map(|id| id.0.to_string()).collect();
    let unsent = UnsentList { snapshot, ranges, begun: false, done: false, _permit: list_permit };
    let body = ListBody::new(service, unsent).body();
    let mut response = ([(header::CONTENT_TYPE, "application/json")], body).into_response();
    if let Some((last, left_out)) = next {
        let link = link(&page, &last)
            .parse()
            .map_err(|_| LeaseError::Invalid(String::from("the next page has no address")))?;
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
pub(super) fn link(page: &Page, last: &str) -> String {
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
struct ListBody {
    unsent: Arc<Mutex<Option<UnsentList>>>,
    chunks: Arc<AtomicU64>,
    worker: Arc<Worker>,
    metrics: Arc<Metrics>,
    watchdog: AbortHandle,
}

impl ListBody {
    fn new(service: &ClientService, unsent: UnsentList) -> Self {
        let unsent = Arc::new(Mutex::new(Some(unsent)));
        let chunks = Arc::new(AtomicU64::new(0));
        let watchdog =
            drop_if_unread(unsent.clone(), chunks.clone(), service.context.limits.request_timeout());
        let watchdog = tokio::spawn(watchdog).abort_handle();
        let (worker, metrics) = (service.snapshots.worker().clone(), service.metrics.clone());
        Self { unsent, chunks, worker, metrics, watchdog }
    }

    fn body(self) -> Body {
        let chunks = futures_util::stream::unfold(Some(self), |body| async move {
            let body = body?;
            match body.next().await {
                Some(Ok((chunk, more))) => Some((Ok(chunk), more.then_some(body))),
                Some(Err(error)) => Some((Err(error), None)),
                None => None,
            }
        });
        Body::from_stream(chunks)
    }

    /// The next chunk, and whether more follow.
    async fn next(&self) -> Option<io::Result<(Bytes, bool)>> {
        self.chunks.fetch_add(1, Ordering::Relaxed);
        let unsent = self.unsent.clone();
        let chunk = move || {
            let mut unsent = unsent.lock().unwrap_or_else(PoisonError::into_inner);
            let chunk = unsent.as_mut().map(|unsent| (Bytes::from(unsent.next_chunk()), !unsent.done));
            // Drop the snapshot now: a client that is slow to read the last chunk must not pin it.
            unsent.take_if(|unsent| unsent.done);
            chunk
        };
        match self.worker.run(chunk).await {
            Some(Some((chunk, more))) => {
                self.metrics.listed(chunk.len());
                Some(Ok((chunk, more)))
            }
            _ => Some(Err(io::Error::other("the list was read too slowly"))),
        }
    }
}

impl Drop for ListBody {
    fn drop(&mut self) {
        self.watchdog.abort();
    }
}

/// Drops a list of which no chunk was requested within the timeout.
async fn drop_if_unread(unsent: Arc<Mutex<Option<UnsentList>>>, chunks: Arc<AtomicU64>, timeout: Duration) {
    loop {
        let before = chunks.load(Ordering::Relaxed);
        tokio::time::sleep(timeout).await;
        if chunks.load(Ordering::Relaxed) == before {
            unsent.lock().unwrap_or_else(PoisonError::into_inner).take();
            return;
        }
    }
}
