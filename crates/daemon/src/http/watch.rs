//! Locks as they change, as server-sent events.

use super::locks::Prefix;
use super::problem::Problem;
use super::request::{Asked, Caller};
use super::show::LockState;
use crate::credential::Credential;
use crate::front::Front;
use crate::leases::Watch;
use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio_stream::Stream;

/// A line that says nothing, so often, shows that the connection stands.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Tells a lock's holders and waiters whenever they change, in the whole cluster; first all of those that there are. Changes that follow each other quickly
/// are told together.
#[utoipa::path(get, path = "/v1/watch", tag = "locks", params(Prefix),
    responses((status = 200, body = LockState, content_type = "text/event-stream",
        description = "Events of the kind `lock`, each with the state of one lock as JSON"),
        super::openapi::Refusals))]
pub(super) async fn watch(
    State(front): State<Arc<Front>>,
    caller: Caller,
    Asked(Prefix { prefix }): Asked<Prefix>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let story = Story {
        watch: front.leases.watch(&prefix),
        credential: caller.credential(),
        prefix,
        shown: BTreeMap::new(),
        next: VecDeque::new(),
        _place: front.place()?,
    };
    Ok(Sse::new(events(story)).keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE)))
}

/// What one who watches has been shown, and is to be shown next.
struct Story {
    watch: Watch,
    credential: Credential,
    prefix: String,
    shown: BTreeMap<String, LockState>,
    next: VecDeque<LockState>,
    _place: OwnedSemaphorePermit,
}

impl Story {
    async fn next(&mut self) -> Option<LockState> {
        loop {
            if let Some(state) = self.next.pop_front() {
                return Some(state);
            }
            self.look();
            if !self.next.is_empty() {
                continue;
            }
            tokio::select! {
                more = self.watch.changed() => if !more { return None },
                // The token was removed or has expired, or it allows something else now.
                changed = self.credential.changed() => if changed.is_err() { return None },
            }
        }
    }

    /// Compares what is known now with what was shown.
    fn look(&mut self) {
        let picture = self.watch.picture();
        let mut now = BTreeMap::new();
        for (name, who) in picture.locks() {
            if name.starts_with(&self.prefix) && self.credential.who().sees(name) {
                now.insert(String::from(name), LockState::new(name, who));
            }
        }
        for name in self.shown.keys().filter(|name| !now.contains_key(*name)) {
            let (holders, waiters) = (Vec::new(), Vec::new());
            self.next.push_back(LockState { name: name.clone(), holders, waiters });
        }
        for (name, state) in &now {
            if self.shown.get(name).is_none_or(|shown| !shown.is_as(state)) {
                self.next.push_back(state.clone());
            }
        }
        self.shown = now;
    }
}

fn events(story: Story) -> impl Stream<Item = Result<Event, Infallible>> {
    futures_util::stream::unfold(story, |mut story| async move {
        let state = story.next().await?;
        let event = Event::default().event("lock").json_data(&state).unwrap_or_default();
        Some((Ok(event), story))
    })
}
