//! Watch streams: changes of locks as server-sent events.

use super::locks::Prefix;
use super::problem::Problem;
use super::request::{Asked, Caller};
use super::serve::Connection;
use super::show::LockState;
use crate::credential::Credential;
use crate::front::Front;
use crate::leases::{Fault, Shown, Watch};
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
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Maximum number of locks in one chunk of the stream.
const MOST_TOGETHER: usize = 256;
/// More locks than this are encoded on the worker thread.
const FEW: usize = 16;

/// Streams the states of locks as they change.
///
/// The stream begins with all locks in use, in the whole cluster, and continues with every lock whose holders or
/// waiters change. Changes in quick succession are combined. A stream that is read too slowly ends, and the client must
/// begin anew.
#[utoipa::path(get, path = "/v1/watch", tag = "locks", params(Prefix),
    responses((status = 200, body = LockState, content_type = "text/event-stream",
        description = "Events of the type `lock`, each with the state of one lock as JSON"),
        super::openapi::Refusals))]
pub(super) async fn watch(
    State(front): State<Arc<Front>>,
    connection: Option<Extension<Connection>>,
    caller: Caller,
    Asked(Prefix { prefix }): Asked<Prefix>,
) -> Result<Response, Problem> {
    let place = connection.map(|Extension(connection)| connection.watches.try_acquire_owned()).transpose();
    let place = place.map_err(|_| {
        front.metrics.refuse("watches");
        let what = String::from("too many watch streams of one connection (limits.watches_per_connection)");
        Fault::TooMany { what, limit: front.shared.limits.watches_per_connection as u64 }
    })?;
    // Watch only the locks that the token may see.
    let (watch, charge) = front.watch(&caller.account, caller.who.scope(&prefix))?;
    let places = (place, charge, front.place()?);
    let worker = front.snapshots.worker().clone();
    let story = Story { watch, credential: caller.credential(), prefix, worker, _places: places };
    let head = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((head, Body::from_stream(parts(story))).into_response())
}

/// A watch stream.
struct Story {
    watch: Watch,
    credential: Credential,
    prefix: String,
    worker: Arc<Worker>,
    _places: (Option<OwnedSemaphorePermit>, Charge, OwnedSemaphorePermit),
}

impl Story {
    /// The next events, or an empty comment if there are none for a while. The stream ends when its token is removed
    /// or expires, or may see other locks than before; then the client must begin anew.
    async fn next(&mut self) -> Option<Bytes> {
        let shown = loop {
            let scope = self.credential.who().scope(&self.prefix);
            tokio::select! {
                shown = tokio::time::timeout(SIGN_OF_LIFE, self.watch.some(MOST_TOGETHER)) => break shown,
                changed = self.credential.changed() => {
                    if changed.is_err() || self.credential.who().scope(&self.prefix) != scope {
                        return None;
                    }
                }
            }
        };
        let Ok(shown) = shown else { return Some(Bytes::from_static(b":\n\n")) };
        let shown = shown?;
        if shown.len() <= FEW {
            return Some(encode(&shown));
        }
        self.worker.run(move || encode(&shown)).await
    }
}

fn encode(all: &[Arc<Shown>]) -> Bytes {
    let state = |shown: &Shown| serde_json::to_string(&LockState::of(&shown.view)).unwrap_or_default();
    let mut events = String::new();
    for shown in all {
        events.push_str("event: lock\ndata: ");
        events.push_str(shown.encoded.get_or_init(|| state(shown)));
        events.push_str("\n\n");
    }
    events.into()
}

fn parts(story: Story) -> impl Stream<Item = Result<Bytes, Infallible>> {
    futures_util::stream::unfold(story, |mut story| async move {
        loop {
            let part = story.next().await?;
            if !part.is_empty() {
                return Some((Ok(part), story));
            }
        }
    })
}
