//! Watch streams: changes of locks as server-sent events.

use super::locks::Prefix;
use super::problem::Problem;
use super::request::{Caller, QueryParameters};
use super::serve::Connection;
use super::show::LockState;
use crate::client_service::ClientService;
use crate::credential::Credential;
use crate::leases::{LeaseError, Watch, WatchedLock};
use crate::quotas::Charge;
use crate::worker::Worker;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio_stream::Stream;

/// Interval of empty comments that keep an idle stream alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum number of locks in one chunk of the stream.
const MOST_IN_CHUNK: usize = 256;
/// More locks than this are encoded on the worker thread.
const MOST_ENCODED_INLINE: usize = 16;

/// Streams the states of locks as they change.
///
/// The stream begins with all locks in use, in the whole cluster, and continues with every lock whose holders or
/// waiters change. Changes in quick succession are combined. A stream that is read too slowly ends, and the client must
/// begin anew.
#[cfg_attr(test, utoipa::path(get, path = "/v1/watch", tag = "locks", params(Prefix),
    responses((status = 200, body = LockState, content_type = "text/event-stream",
        description = "Events of the type `lock`, each with the state of one lock as JSON"),
        super::openapi_generator::Refusals)))]
pub(super) async fn watch(
    State(service): State<Arc<ClientService>>,
    connection: Option<Extension<Connection>>,
    caller: Caller,
    QueryParameters(Prefix { prefix }): QueryParameters<Prefix>,
) -> Result<Response, Problem> {
    let permit = connection.map(|Extension(connection)| connection.watches.try_acquire_owned()).transpose();
    let permit = permit.map_err(|_| {
        service.metrics.refuse("watches");
        let what = String::from("too many watch streams of one connection (limits.watches_per_connection)");
        LeaseError::LimitExceeded { what, limit: service.context.limits.watches_per_connection as u64 }
    })?;
    // Watch only the locks that the token may see.
    let (watch, charge) = service.watch(&caller.account, caller.who.scope(&prefix))?;
    let permits = (permit, charge, service.request_permit()?);
    let worker = service.snapshots.worker().clone();
    let stream = WatchStream { watch, credential: caller.credential(), prefix, worker, _permits: permits };
    let head = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((head, Body::from_stream(chunks(stream))).into_response())
}

/// A watch stream.
struct WatchStream {
    watch: Watch,
    credential: Credential,
    prefix: String,
    worker: Arc<Worker>,
    _permits: (Option<OwnedSemaphorePermit>, Charge, OwnedSemaphorePermit),
}

impl WatchStream {
    /// The next events, or an empty comment if there are none for a while. The stream ends when its token is removed
    /// or expires, or may see other locks than before; then the client must begin anew.
    async fn next(&mut self) -> Option<Bytes> {
        let shown = loop {
            let scope = self.credential.who().scope(&self.prefix);
            tokio::select! {
                shown = tokio::time::timeout(KEEP_ALIVE_INTERVAL, self.watch.next_batch(MOST_IN_CHUNK)) => break shown,
                changed = self.credential.changed() => {
                    if changed.is_err() || self.credential.who().scope(&self.prefix) != scope {
                        return None;
                    }
                }
            }
        };
        let Ok(shown) = shown else { return Some(Bytes::from_static(b":\n\n")) };
        let shown = shown?;
        if shown.len() <= MOST_ENCODED_INLINE {
            return Some(encode(&shown));
        }
        self.worker.run(move || encode(&shown)).await
    }
}

pub(super) fn encode(all: &[Arc<WatchedLock>]) -> Bytes {
    let state = |shown: &WatchedLock| serde_json::to_string(&LockState::of(&shown.view)).unwrap_or_default();
    let mut events = String::new();
    for shown in all {
        events.push_str("event: lock\ndata: ");
        events.push_str(shown.encoded.get_or_init(|| state(shown)));
        events.push_str("\n\n");
    }
    events.into()
}

fn chunks(stream: WatchStream) -> impl Stream<Item = Result<Bytes, Infallible>> {
    futures_util::stream::unfold(stream, |mut stream| async move {
        loop {
            let chunk = stream.next().await?;
            if !chunk.is_empty() {
                return Some((Ok(chunk), stream));
            }
        }
    })
}
