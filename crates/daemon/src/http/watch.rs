//! Locks as they change, as server-sent events.

use super::locks::Prefix;
use super::problem::Problem;
use super::request::{Asked, Caller};
use super::serve::Connection;
use super::show::LockState;
use crate::access::Principal;
use crate::front::Front;
use crate::leases::{Fault, Shown, Watch};
use crate::quotas::Charge;
use axum::Extension;
use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio_stream::Stream;

/// A line that says nothing, so often, shows that the connection stands.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Tells a lock's holders and waiters whenever they change, in the whole cluster; first all of those that there are. Changes that follow each other quickly
/// are told together. A stream that is read too slowly ends: the client begins anew.
#[utoipa::path(get, path = "/v1/watch", tag = "locks", params(Prefix),
    responses((status = 200, body = LockState, content_type = "text/event-stream",
        description = "Events of the kind `lock`, each with the state of one lock as JSON"),
        super::openapi::Refusals))]
pub(super) async fn watch(
    State(front): State<Arc<Front>>,
    connection: Option<Extension<Connection>>,
    caller: Caller,
    Asked(Prefix { prefix }): Asked<Prefix>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let place = connection.map(|Extension(connection)| connection.watches.try_acquire_owned()).transpose();
    let place = place.map_err(|_| {
        front.metrics.refuse("watches");
        let what = String::from("too many watch streams of one connection (limits.watches_per_connection)");
        Fault::TooMany { what, limit: front.shared.limits.watches_per_connection as u64 }
    })?;
    // What the token may see decides what is watched: nothing else is looked at for it.
    let (watch, charge) = front.watch(&caller.account, caller.who.scope(&prefix))?;
    let story = Story { watch, who: caller.who, _places: (place, charge, front.place()?) };
    Ok(Sse::new(events(story)).keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE)))
}

/// One who watches.
struct Story {
    watch: Watch,
    who: Principal,
    _places: (Option<OwnedSemaphorePermit>, Charge, OwnedSemaphorePermit),
}

impl Story {
    async fn next(&mut self) -> Option<Arc<Shown>> {
        loop {
            let shown = self.watch.next().await?;
            // A token may have expired meanwhile.
            if self.who.sees(&shown.view.name) {
                return Some(shown);
            }
        }
    }
}

fn events(story: Story) -> impl Stream<Item = Result<Event, Infallible>> {
    futures_util::stream::unfold(story, |mut story| async move {
        let shown = story.next().await?;
        let encode = || serde_json::to_string(&LockState::of(&shown.view)).unwrap_or_default();
        let event = Event::default().event("lock").data(shown.encoded.get_or_init(encode));
        Some((Ok(event), story))
    })
}
