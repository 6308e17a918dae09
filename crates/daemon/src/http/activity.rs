//! The activity of an HTTP connection, so that it can be closed when it is idle or when its client does not read.

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Maximum number of reads (GET) of one connection in progress. Each may have a long reply in memory until the client
/// has read it. Further ones wait, so that one connection never pins more than this number of replies.
const MOST_READS: usize = 4;
/// The maximum size of a chunk of a reply that is handed to the server at a time. On HTTP/2, the server buffers at
/// most about two chunks for each stream whose client does not read.
pub(super) const CHUNK_BYTES: usize = 16 << 10;

/// The requests in progress on one connection, the time since which it is idle, and the signal to close it.
pub(crate) struct Activity {
    state: Mutex<State>,
    reads: Arc<Semaphore>,
    close: Notify,
}

struct State {
    arrived: u64,
    /// Requests in progress, each with the time since which its client has not read the next chunk; `None`: the client
    /// waits for the daemon.
    requests: BTreeMap<u64, Option<Instant>>,
    /// The time at which the last request ended or the connection began.
    idle_since: Instant,
}

/// The timeouts of a connection.
#[derive(Clone, Copy)]
pub(super) struct ConnectionTimeouts {
    /// For the first request to arrive, and for the client to read the next chunk of a reply.
    pub request: Duration,
    /// For a connection without a request.
    pub idle: Duration,
}

impl Activity {
    pub fn new() -> Arc<Self> {
        let state = State { arrived: 0, requests: BTreeMap::new(), idle_since: Instant::now() };
        let reads = Arc::new(Semaphore::new(MOST_READS));
        Arc::new(Self { state: Mutex::new(state), reads, close: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request, which is in progress until the returned value is dropped.
    pub fn request(self: &Arc<Self>) -> RequestGuard {
        let mut state = self.state();
        state.arrived += 1;
        let number = state.arrived;
        state.requests.insert(number, None);
        RequestGuard { activity: self.clone(), number }
    }

    /// Waits for one of the permits for reads in progress.
    pub async fn read(&self) -> Option<OwnedSemaphorePermit> {
        self.reads.clone().acquire_owned().await.ok()
    }

    /// The time since when the connection has had no request; `None` if it has one.
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        state.requests.is_empty().then_some(state.idle_since)
    }

    /// Closes the connection at once.
    pub fn close(&self) {
        self.close.notify_one();
    }

    /// Resolves when the connection must be closed, with the reason as a metrics label.
    pub async fn ends(&self, timeouts: ConnectionTimeouts) -> &'static str {
        let shortest = timeouts.request.min(timeouts.idle);
        let pause = (shortest / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
        loop {
            tokio::select! {
                () = self.close.notified() => return "connection_limit",
                () = tokio::time::sleep(pause) => {}
            }
            if let Some(reason) = self.overdue(timeouts) {
                return reason;
            }
        }
    }

    fn overdue(&self, timeouts: ConnectionTimeouts) -> Option<&'static str> {
        let state = self.state();
        let unread = state.requests.values().flatten().any(|since| since.elapsed() > timeouts.request);
        let idle = state.requests.is_empty().then(|| state.idle_since.elapsed());
        match idle {
            _ if unread => Some("unread"),
            Some(idle) if state.arrived == 0 && idle > timeouts.request => Some("slow"),
            Some(idle) if state.arrived > 0 && idle > timeouts.idle => Some("idle"),
            _ => None,
        }
    }
}

/// A request in progress.
pub(super) struct RequestGuard {
    activity: Arc<Activity>,
    number: u64,
}

impl RequestGuard {
    /// Records since when the daemon waits for the client to read; `None`: the client waits for the daemon.
    fn waits_for_client(&self, since: Option<Instant>) {
        self.activity.state().requests.insert(self.number, since);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        state.requests.remove(&self.number);
        state.idle_since = Instant::now();
    }
}

/// The body of a response. It is handed to the server in small chunks, and records whether the client reads them.
pub(super) struct TrackedBody {
    body: Body,
    /// The rest of a frame of the body that is larger than a chunk.
    rest: Bytes,
    guard: RequestGuard,
    _read: Option<OwnedSemaphorePermit>,
}

impl TrackedBody {
    /// `read` is kept until the client has read the whole body, unless the body is an endless stream.
    pub fn new(body: Body, guard: RequestGuard, read: Option<OwnedSemaphorePermit>) -> Self {
        let read = read.filter(|_| body.size_hint().exact().is_some());
        // From now on the daemon waits for the client: HTTP/2 does not poll for the first chunk while the client's
        // window is closed.
        guard.waits_for_client(Some(Instant::now()));
        Self { body, rest: Bytes::new(), guard, _read: read }
    }

    fn next_chunk(&mut self) -> Bytes {
        if self.rest.len() <= CHUNK_BYTES {
            return std::mem::take(&mut self.rest);
        }
        // Copy the chunk: a slice would keep the whole body in memory for as long as the server buffers it.
        Bytes::copy_from_slice(&self.rest.split_to(CHUNK_BYTES))
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut polled = None;
        if self.rest.is_empty() {
            let frame = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                other => {
                    // Nothing is ready, so the client has read everything so far.
                    self.guard.waits_for_client(None);
                    return other;
                }
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => polled = Some(trailers),
            }
        }
        self.guard.waits_for_client(Some(Instant::now()));
        let frame = polled.unwrap_or_else(|| Frame::data(self.next_chunk()));
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn timeouts(request: u64, idle: u64) -> ConnectionTimeouts {
        ConnectionTimeouts { request: Duration::from_secs(request), idle: Duration::from_secs(idle) }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_is_overdue_when_idle_or_not_read() {
        let activity = Activity::new();
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(activity.overdue(timeouts(5, 60)), Some("slow"));
        let guard = activity.request();
        assert_eq!(activity.idle_since(), None);
        tokio::time::advance(Duration::from_secs(600)).await;
        assert_eq!(activity.overdue(timeouts(5, 60)), None, "a request may wait for a lock for long");
        let mut reply = TrackedBody::new(Body::from(vec![7; 3 * CHUNK_BYTES]), guard, None);
        tokio::time::advance(Duration::from_secs(4)).await;
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut reply).poll_frame(&mut context).is_ready());
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(activity.overdue(timeouts(5, 60)), None, "the client has taken a piece meanwhile");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(activity.overdue(timeouts(5, 60)), Some("unread"));
        drop(reply);
        assert_eq!(activity.overdue(timeouts(5, 60)), None);
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(activity.overdue(timeouts(5, 60)), Some("idle"));
    }

    #[tokio::test]
    async fn long_reply_is_sent_in_chunks_and_keeps_its_read_permit_until_the_end() {
        let activity = Activity::new();
        let read = activity.read().await;
        let body = vec![7; 2 * CHUNK_BYTES + 5];
        let mut reply = TrackedBody::new(Body::from(body.clone()), activity.request(), read);
        let (mut taken, mut pieces) = (Vec::new(), 0);
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut reply).poll_frame(&mut context) {
            assert_eq!(
                reply.size_hint().exact(),
                Some((body.len() - taken.len()) as u64 - frame.data_ref().unwrap().len() as u64)
            );
            taken.extend_from_slice(frame.data_ref().unwrap());
            pieces += 1;
        }
        assert_eq!((taken, pieces), (body, 3));
        assert_eq!(activity.reads.available_permits(), MOST_READS - 1);
        drop(reply);
        assert_eq!(activity.reads.available_permits(), MOST_READS);
    }
}
