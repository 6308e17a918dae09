//! `etcdserverpb.Watch`: the watches of etcd's client-side recipes, by state and without history.
//!
//! A watch of a gate waits at the lease's home for the grant. The other watches read the state anew whenever the daemon's
//! table of watched locks shows a change. That table is older than the replies of the daemons, so the watch also reads
//! again after a while until both agree.

use super::kv::{KeyState, Meaning, held_key};
use super::pb::etcdserverpb::watch_request::RequestUnion;
use super::pb::etcdserverpb::watch_server::Watch as WatchService;
use super::pb::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use super::pb::mvccpb::Event;
use super::pb::mvccpb::event::EventType;
use super::recipe::{self, Watched};
use super::watch_state::{Scope, WatchState, deleted};
use super::{Caller, Etcd, denied, signed, status, text};
use crate::leases::{HoldersSummary, LeaseError, LeaseId, Watch};
use crate::quotas::Charge;
use crate::rights::Action;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

/// Number of replies that are sent to a client ahead of its reading.
const REPLIES_AHEAD: usize = 16;
/// The id in the reply to a watch that is refused.
const REFUSED_ID: i64 = -1;
/// The first and the longest pause before a state is read again while the table of watched locks shows another one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

type Replies = mpsc::Sender<Result<WatchResponse, Status>>;

/// The watches of one stream.
struct WatchStream {
    etcd: Etcd,
    caller: Arc<Caller>,
    replies: Replies,
    watches: HashMap<i64, JoinHandle<()>>,
    next_id: i64,
}

/// The reason for which a watch is not created.
struct WatchRefusal(String);

/// A watch that was created.
struct Created {
    etcd: Etcd,
    caller: Arc<Caller>,
    replies: Replies,
    id: i64,
    request: recipe::WatchRequest,
    _charge: Charge,
}

/// The target of a watch.
enum Target {
    Gate { key: Vec<u8>, lock: String, lease: LeaseId },
    Key { key: Vec<u8>, meaning: Meaning },
    Holder { lock: String },
}

impl Target {
    fn lock(&self) -> &str {
        match self {
            Self::Gate { lock, .. } | Self::Holder { lock } => lock,
            Self::Key { meaning, .. } => meaning.lock(),
        }
    }
}

#[tonic::async_trait]
impl WatchService for Etcd {
    type WatchStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let caller = Arc::new(self.caller(&request)?);
        let permit = self.0.request_permit().map_err(status)?;
        let requests = request.into_inner();
        let (replies, stream) = mpsc::channel(REPLIES_AHEAD);
        let watches = HashMap::new();
        let mut watching = WatchStream { etcd: self.clone(), caller, replies, watches, next_id: 0 };
        tokio::spawn(async move {
            watching.run(requests).await;
            drop(permit);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

impl WatchStream {
    async fn run(&mut self, requests: Streaming<WatchRequest>) {
        let replies = self.replies.clone();
        let mut credential = self.etcd.0.credential(&self.caller.who);
        let gone = async {
            loop {
                if let Err(refused) = credential.changed().await {
                    return refused;
                }
            }
        };
        tokio::select! {
            () = self.serve(requests) => {}
            () = replies.closed() => {}
            // The token was removed or has expired.
            refused = gone => drop(replies.send(Err(denied(refused))).await),
        }
    }

    /// Serves the requests of the stream. As in etcd, the end of the requests ends the stream.
    async fn serve(&mut self, mut requests: Streaming<WatchRequest>) {
        while let Ok(Some(request)) = requests.message().await {
            if let Err(error) = self.etcd.0.check_rate(&self.caller.account) {
                let _ = self.replies.send(Err(status(error))).await;
                return;
            }
            let reply = match request.request_union {
                Some(RequestUnion::CreateRequest(request)) => self.create(&request).await,
                Some(RequestUnion::CancelRequest(request)) => self.cancel(request.watch_id).await,
                // A request for a report of progress: there is no history to progress in.
                None => continue,
            };
            let Some((reply, created)) = reply else { continue };
            if self.replies.send(Ok(reply)).await.is_err() {
                return;
            }
            // Events follow the reply that the watch was created.
            if let Some(created) = created {
                self.watches.insert(created.id, tokio::spawn(created.run()));
            }
        }
    }

    async fn create(&mut self, request: &WatchCreateRequest) -> Option<(WatchResponse, Option<Created>)> {
        match self.check(request) {
            Ok((id, request, charge)) => {
                let (etcd, caller) = (self.etcd.clone(), self.caller.clone());
                // A client in JavaScript continues a broken watch at the revision after this one.
                let header = self.etcd.plain_header((request.start - 1).max(0));
                let created =
                    Created { etcd, caller, replies: self.replies.clone(), id, request, _charge: charge };
                let reply = WatchResponse { header, watch_id: id, created: true, ..Default::default() };
                Some((reply, Some(created)))
            }
            Err(WatchRefusal(reason)) => {
                let reply = WatchResponse { created: true, ..canceled(&self.etcd, REFUSED_ID, reason) };
                Some((reply, None))
            }
        }
    }

    /// Checks a request for a watch, and chooses the id.
    fn check(
        &mut self,
        request: &WatchCreateRequest,
    ) -> Result<(i64, recipe::WatchRequest, Charge), WatchRefusal> {
        let recipe = recipe::watch(request).map_err(|refused| WatchRefusal(refused.message()))?;
        // A watch ends by itself only after the client has got the reason.
        self.watches.retain(|_, watch| !watch.is_finished());
        let id = match request.watch_id {
            0 => {
                while self.watches.contains_key(&self.next_id) {
                    self.next_id += 1;
                }
                self.next_id += 1;
                self.next_id - 1
            }
            id if id < 0 || self.watches.contains_key(&id) => {
                let why = format!("the watch id {id} is negative, or in use on this stream");
                return Err(WatchRefusal(why));
            }
            id => id,
        };
        let charge = self
            .etcd
            .0
            .charge_watch(&self.caller.account)
            .map_err(|error| WatchRefusal(error.to_string()))?;
        Ok((id, recipe, charge))
    }

    async fn cancel(&mut self, id: i64) -> Option<(WatchResponse, Option<Created>)> {
        let Entry::Occupied(watch) = self.watches.entry(id) else { return None };
        let watch = watch.remove();
        watch.abort();
        // No event may follow the reply.
        let _ = watch.await;
        Some((canceled(&self.etcd, id, String::new()), None))
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.watches.values().for_each(JoinHandle::abort);
    }
}

fn canceled(etcd: &Etcd, watch_id: i64, cancel_reason: String) -> WatchResponse {
    WatchResponse { header: etcd.header(None), watch_id, canceled: true, cancel_reason, ..Default::default() }
}

impl Created {
    /// Follows the target until the watch is cancelled. A client that is refused gets the reason; a daemon that cannot
    /// serve ends the stream, and the client begins it anew at another one.
    async fn run(self) {
        let Err(status) = self.follow().await else { return };
        let _ = match status.code() {
            Code::Unavailable => self.replies.send(Err(status)).await,
            _ => self.replies.send(Ok(canceled(&self.etcd, self.id, status.message().to_owned()))).await,
        };
    }

    async fn follow(&self) -> Result<(), Status> {
        let target = self.target().await?;
        let mut credential = self.etcd.0.credential(&self.caller.who);
        let lock = String::from(target.lock());
        let following = async {
            match target {
                Target::Gate { key, lock, lease } => self.follow_gate(key, &lock, lease).await,
                Target::Key { key, meaning } => self.follow_key(key, meaning).await,
                Target::Holder { lock } => self.follow_holder(lock).await,
            }
        };
        tokio::select! {
            followed = following => followed,
            refused = credential.denied(Action::See, &lock) => Err(denied(refused)),
        }
    }

    async fn target(&self) -> Result<Target, Status> {
        match &self.request.watched {
            Watched::Key(key) => Ok(match self.etcd.meaning(&self.caller, key).await? {
                Meaning::Gate(lock, lease) => Target::Gate { key: key.clone(), lock, lease },
                meaning => Target::Key { key: key.clone(), meaning },
            }),
            Watched::Holder(lock) => {
                let lock = text(lock.clone())?;
                self.etcd.may(&self.caller, Action::See, &lock)?;
                Ok(Target::Holder { lock })
            }
        }
    }

    /// Waits for the grant. A gate whose entry does not wait any more, or never did, is deleted: the client then reads
    /// whether it holds the lock.
    async fn follow_gate(&self, key: Vec<u8>, lock: &str, lease: LeaseId) -> Result<(), Status> {
        match self.etcd.0.leases.wait_for_turn(&self.caller.identity, lease, lock).await {
            Ok(())
            | Err(
                LeaseError::NotHeld(_)
                | LeaseError::NoSuchLease(_)
                | LeaseError::LeaseEnded(..)
                | LeaseError::Withdrawn(_),
            ) => {}
            Err(error) => return Err(status(error)),
        }
        self.send(vec![deleted(key, self.request.start)]).await;
        // The client cancels the watch.
        std::future::pending().await
    }

    async fn follow_key(&self, key: Vec<u8>, meaning: Meaning) -> Result<(), Status> {
        let scope = if matches!(meaning, Meaning::Bare(_)) { Scope::Bare } else { Scope::Entry };
        let mut state = WatchState::new(scope, key.clone(), self.request.start);
        let lease = if let Meaning::Entry(_, lease) = &meaning { Some(*lease) } else { None };
        let mut watch = self.etcd.0.leases.watch(vec![String::from(meaning.lock())]);
        loop {
            let before = watch.summary(meaning.lock());
            let now = self.etcd.state_of(&key, &meaning).await?;
            let agrees = |summary: &HoldersSummary| match (&now, lease) {
                (KeyState::Held(kv), Some(_)) => {
                    summary.hold.is_some_and(|hold| signed(hold.revision) == kv.mod_revision)
                }
                (_, Some(lease)) => summary.hold.is_none_or(|hold| hold.lease != lease),
                (KeyState::Held(kv), None) => {
                    summary.fence.is_some_and(|fence| signed(fence) >= kv.create_revision)
                }
                (_, None) => summary.fence.is_none(),
            };
            self.send(state.update(now.clone())).await;
            changed(&mut watch, meaning.lock(), &before, agrees).await;
        }
    }

    async fn follow_holder(&self, lock: String) -> Result<(), Status> {
        let mut state = WatchState::new(Scope::Holder, lock.clone().into_bytes(), self.request.start);
        let mut watch = self.etcd.0.leases.watch(vec![lock.clone()]);
        loop {
            let before = watch.summary(&lock);
            let holder = self.etcd.0.leases.holder(&lock).await.map_err(status)?;
            let revision = holder.as_ref().map(|hold| hold.revision);
            let now = holder.map_or(KeyState::Absent, |hold| KeyState::Held(held_key(&hold, hold.key())));
            self.send(state.update(now)).await;
            let agrees = |summary: &HoldersSummary| summary.hold.map(|hold| hold.revision) == revision;
            changed(&mut watch, &lock, &before, agrees).await;
        }
    }

    /// Sends the events of the kinds that the client has requested. If the client has disconnected, the stream ends and
    /// this task with it.
    async fn send(&self, mut events: Vec<Event>) {
        events.retain(|event| match event.r#type() {
            EventType::Put => self.request.puts,
            EventType::Delete => self.request.deletes,
        });
        let Some(last) = events.last().and_then(|event| event.kv.as_ref()) else { return };
        let header = self.etcd.plain_header(last.mod_revision);
        let reply = WatchResponse { header, watch_id: self.id, events, ..Default::default() };
        let _ = self.replies.send(Ok(reply)).await;
    }
}

/// Resolves when the state of a lock should be read again: the table of watched locks shows another state than `before`, or
/// it still does not agree with what was read.
async fn changed(
    watch: &mut Watch,
    lock: &str,
    before: &HoldersSummary,
    agrees: impl Fn(&HoldersSummary) -> bool,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        let summary = watch.summary(lock);
        if summary != *before {
            return;
        }
        if agrees(&summary) {
            watch.changed().await;
            continue;
        }
        if tokio::time::timeout(pause, watch.changed()).await.is_err() {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
