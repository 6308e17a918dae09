//! Requests to other daemons.

use super::words::{Answer, Fault, Question, VERSION};
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
const MOST_AT_ONCE: usize = 64;
/// Timeout for a reply.
const WITHIN: Duration = Duration::from_secs(3);
/// Pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(50);

/// Sends requests to other daemons.
pub(super) struct Peers {
    pub member: Member,
    rooms: Mutex<HashMap<MemberId, Arc<Semaphore>>>,
}

pub(super) fn encode(words: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(words, vec![VERSION]).expect("serializing to memory cannot fail")
}

/// Decodes a message; `None` if it has another version or is malformed.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (version, words) = bytes.split_first()?;
    if *version != VERSION {
        return None;
    }
    postcard::from_bytes(words).ok()
}

pub(super) fn makes_no_sense(to: MemberId) -> Fault {
    Fault::Unavailable(format!("the reply of daemon {to} cannot be decoded: does it run another version?"))
}

impl Peers {
    pub fn new(member: Member) -> Self {
        Self { member, rooms: Mutex::default() }
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

    fn room(&self, to: MemberId) -> Arc<Semaphore> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.entry(to).or_insert_with(|| Arc::new(Semaphore::new(MOST_AT_ONCE))).clone()
    }

    /// Sends a request and repeats it until the timeout; all requests may be repeated. A member outside the view has
    /// no leases any more.
    pub async fn ask(&self, to: MemberId, question: &Question) -> Result<Answer, Fault> {
        let until = Instant::now() + WITHIN;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let failed = match self.ask_once(to, question, left).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            if Instant::now() + PAUSE >= until || self.is_gone(to) {
                let lease = match question {
                    Question::Do(_, lease, _) | Question::Acquire { lease, .. } => Some(*lease),
                    _ => None,
                };
                return Err(lease.filter(|_| self.is_gone(to)).map_or(failed, Fault::NoSuchLease));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends a request once.
    pub async fn ask_once(
        &self,
        to: MemberId,
        question: &Question,
        within: Duration,
    ) -> Result<Answer, Fault> {
        let room = self.room(to);
        let Ok(_place) = room.acquire().await else { return Err(makes_no_sense(to)) };
        let answer = self.member.query_application(to, encode(question), within).await?;
        decode(&answer).ok_or_else(|| makes_no_sense(to))
    }

    /// Sends a request to all other members at once and returns the replies. Members that do not reply are omitted.
    pub async fn everybody(self: &Arc<Self>, question: impl Fn() -> Question) -> Vec<(MemberId, Answer)> {
        let mut asking = JoinSet::new();
        for to in self.others() {
            let (peers, question) = (self.clone(), question());
            asking.spawn(async move {
                let within = if peers.is_gone(to) { PAUSE } else { WITHIN };
                peers.ask_once(to, &question, within).await.map(|answer| (to, answer))
            });
        }
        let answers = asking.join_all().await;
        answers.into_iter().flatten().collect()
    }
}
