//! Requests to other daemons.

use super::messages::{DaemonReply, DaemonRequest, VERSION};
use super::operations::LeaseError;
use lockkeeper_cluster::{Member, MemberId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Maximum number of requests in flight to one daemon. Members use the same connection for more urgent messages.
const MOST_IN_FLIGHT: usize = 64;
/// Timeout for a reply of a daemon that is connected.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(50);

/// Sends requests to other daemons.
pub(super) struct Peers {
    pub member: Member,
    permits: Mutex<HashMap<MemberId, Arc<Semaphore>>>,
}

pub(super) fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(message, vec![VERSION]).expect("serializing to memory cannot fail")
}

/// Decodes a message; `None` if it has another version or is malformed.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (version, message) = bytes.split_first()?;
    if *version != VERSION {
        return None;
    }
    postcard::from_bytes(message).ok()
}

pub(super) fn cannot_decode(to: MemberId) -> LeaseError {
    LeaseError::Unavailable(format!(
        "the reply of daemon {to} cannot be decoded: does it run another version?"
    ))
}

impl Peers {
    pub fn new(member: Member) -> Self {
        Self { member, permits: Mutex::default() }
    }

    pub fn me(&self) -> MemberId {
        self.member.id()
    }

    /// Whether this is a known member other than this one.
    pub fn is_other(&self, id: MemberId) -> bool {
        id != self.me() && self.member.addresses().contains_key(&id)
    }

    /// All other members.
    pub fn others(&self) -> Vec<MemberId> {
        self.member.addresses().into_keys().filter(|id| *id != self.me()).collect()
    }

    /// Whether a member is known not to be in the current view. Then the leases that lived there have ended.
    pub fn is_gone(&self, id: MemberId) -> bool {
        let out = |view: lockkeeper_cluster::View| view.members.iter().all(|node| node.id != id);
        self.member.status().view.is_some_and(out)
    }

    /// Long enough for a view without a daemon that has crashed, with which another one adopts the leases that lived there.
    pub fn adoption_timeout(&self) -> Duration {
        REPLY_TIMEOUT.max(self.member.lease() * 3)
    }

    fn permits(&self, to: MemberId) -> Arc<Semaphore> {
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        permits.entry(to).or_insert_with(|| Arc::new(Semaphore::new(MOST_IN_FLIGHT))).clone()
    }

    /// Sends a request and repeats it until the timeout; all requests may be repeated. A member outside the view has
    /// no leases any more.
    pub async fn send(&self, to: MemberId, request: &DaemonRequest) -> Result<DaemonReply, LeaseError> {
        let begun = Instant::now();
        // A daemon without a connection may have crashed: wait until the view excludes it.
        let until = || {
            let timeout = if self.member.is_connected(to) { REPLY_TIMEOUT } else { self.adoption_timeout() };
            begun + timeout
        };
        loop {
            let left = until().saturating_duration_since(Instant::now()).min(REPLY_TIMEOUT);
            let failed = match self.send_once(to, request, left).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if Instant::now() + PAUSE >= until() || self.is_gone(to) {
                let lease = match request {
                    DaemonRequest::Perform(_, lease, _)
                    | DaemonRequest::Acquire { lease, .. }
                    | DaemonRequest::Enqueue { lease, .. }
                    | DaemonRequest::Turn { lease, .. }
                    | DaemonRequest::Join { lease, .. } => Some(*lease),
                    _ => None,
                };
                return Err(lease.filter(|_| self.is_gone(to)).map_or(failed, LeaseError::NoSuchLease));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends a request once.
    pub async fn send_once(
        &self,
        to: MemberId,
        request: &DaemonRequest,
        timeout: Duration,
    ) -> Result<DaemonReply, LeaseError> {
        let permits = self.permits(to);
        let Ok(_permit) = permits.acquire().await else { return Err(cannot_decode(to)) };
        let reply = self.member.query_application(to, encode(request), timeout).await?;
        decode(&reply).ok_or_else(|| cannot_decode(to))
    }

    /// Sends a request to all other members at once and returns the replies. Members that do not reply are omitted.
    pub async fn broadcast(
        self: &Arc<Self>,
        request: impl Fn() -> DaemonRequest,
    ) -> Vec<(MemberId, DaemonReply)> {
        let mut requests = JoinSet::new();
        for to in self.others() {
            let (peers, request) = (self.clone(), request());
            requests.spawn(async move {
                let timeout = if peers.is_gone(to) { PAUSE } else { REPLY_TIMEOUT };
                peers.send_once(to, &request, timeout).await.map(|reply| (to, reply))
            });
        }
        let replies = requests.join_all().await;
        replies.into_iter().flatten().collect()
    }
}
