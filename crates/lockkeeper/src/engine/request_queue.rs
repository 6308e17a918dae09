//! The queue of one lock as plain data, shared by the engines whose servers number the requests.
//!
//! The server numbers every request when it is queued. A request leaves the queue when its owner cancels it, releases
//! the lock or dies. No request is ever inserted ahead of another, so **a request that is granted stays granted until
//! it leaves**, and acting on a slightly outdated copy of the queue can only delay a grant.

use crate::engine::{Detach, fifo};
use crate::info::{Detached, LockInfo, LockMode, Participant, Tag, lock_type, now_ms};
use crate::{Error, Fence, LockName, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest record of a holder or waiter, including metadata, so that pages of records fit the messages of any
/// server.
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// The description of a request's owner, stored as JSON in the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestRecord {
    pub name: String,
    #[serde(rename = "kind")]
    pub mode: LockMode,
    pub tag: Tag,
    /// The time of the grant, written by owners that had to wait.
    pub held_ms: Option<u64>,
    /// Set if the hold outlives its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached: Option<DetachedRecord>,
}

/// The part of a record that does not depend on a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DetachedRecord {
    /// The owner's name.
    pub owner: String,
    /// The fence of the hold; also of a permit, for its order in lists.
    pub fence: u64,
    /// The time from the last write of this record until the deadline. The server's clock counts.
    pub lasts_ms: u64,
    /// The deadline in Unix time by the clock of the machine that wrote this, for display.
    pub until_ms: u64,
    /// Whether the process that acquired the hold may still work under it.
    pub attached: bool,
}

impl DetachedRecord {
    /// The record of a hold that is detached now.
    pub fn new(detach: &Detach, fence: u64) -> DetachedRecord {
        let record =
            DetachedRecord { owner: detach.owner.clone(), fence, lasts_ms: 0, until_ms: 0, attached: true };
        record.lasting(detach.lasts)
    }

    /// The same record with a deadline after this time.
    pub fn lasting(self, lasts: Duration) -> DetachedRecord {
        // Rounded up: the lock is kept for at least this time.
        let lasts_ms = u64::try_from(lasts.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        DetachedRecord { lasts_ms, until_ms: now_ms().saturating_add(lasts_ms), ..self }
    }
}

impl RequestRecord {
    /// The record as stored. Fails if the metadata is too long.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let json = serde_json::to_vec(self).map_err(|e| Error::BadOption(format!("the metadata: {e}")))?;
        match json.len() {
            0..=RECORD_BYTES_MAX => Ok(json),
            length => Err(Error::BadOption(format!(
                "the metadata makes a record of {length} bytes; at most {RECORD_BYTES_MAX} are allowed"
            ))),
        }
    }
}

/// A request in the queue, granted or waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueuedRequest {
    /// The server's key.
    pub id: String,
    /// The server's number, which rises with every request.
    pub number: i64,
    pub mode: LockMode,
}

/// The change that a waiter waits for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchedChange<'a> {
    /// This request leaves.
    Leaves(&'a QueuedRequest),
    /// This request leaves, or is granted, which makes the waiter the first one.
    LeavesOrEnters(&'a QueuedRequest),
    /// Any of these requests leaves.
    AnyLeaves(&'a [QueuedRequest]),
}

/// All requests for one lock, ordered by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestQueue(Vec<QueuedRequest>);

impl RequestQueue {
    pub fn new(mut requests: Vec<QueuedRequest>) -> RequestQueue {
        requests.sort_by_key(|request| request.number);
        RequestQueue(requests)
    }

    pub fn requests(&self) -> &[QueuedRequest] {
        &self.0
    }

    pub fn position(&self, id: &str) -> Option<usize> {
        self.0.iter().position(|request| request.id == id)
    }

    /// Whether the request at `i` is granted, strictly first come, first served.
    pub fn may_hold(&self, i: usize) -> bool {
        fifo::may_hold(self.0[i].mode, self.0[..i].iter().map(|ahead| ahead.mode))
    }

    /// Whether one more request of this mode would be granted at once.
    pub fn has_room_for(&self, mode: LockMode) -> bool {
        fifo::may_hold(mode, self.0.iter().map(|queued| queued.mode))
    }

    /// The change that the waiter at `i` watches: only one that can lead to its grant, so that each change wakes few
    /// waiters.
    ///
    /// `None` if no request ahead blocks it.
    pub fn watched_by(&self, i: usize) -> Option<WatchedChange<'_>> {
        let ahead = &self.0[..i];
        match self.0[i].mode {
            LockMode::Exclusive => ahead.last().map(WatchedChange::Leaves),
            LockMode::Shared => {
                ahead.iter().rfind(|request| request.mode != LockMode::Shared).map(WatchedChange::Leaves)
            }
            LockMode::Permit { of } if i < of as usize => None,
            // Example with 2 permits, queue `a b c d`: `c` is the first waiter and watches both holders, `a` and `b`;
            // `d` watches `c`, and becomes the first waiter when `c` leaves or is granted.
            LockMode::Permit { of } if i == of as usize => Some(WatchedChange::AnyLeaves(ahead)),
            LockMode::Permit { .. } => ahead.last().map(WatchedChange::LeavesOrEnters),
        }
    }
}

/// The error for a name that is used as two types of lock, such as a mutex and a semaphore.
pub(crate) fn mode_mismatch(name: &LockName, used_as: LockMode, asked_as: LockMode) -> Error {
    Error::KindMismatch { name: name.to_string(), used_as: lock_type(used_as), asked_as: lock_type(asked_as) }
}

/// Splits the records of one lock into holders and waiters, by their numbers.
pub(crate) fn info(name: &str, mut all: Vec<(i64, RequestRecord)>) -> LockInfo {
    all.sort_by_key(|(number, _)| *number);
    let request = |(number, record): &(i64, RequestRecord)| QueuedRequest {
        id: record.tag.holder.clone(),
        number: *number,
        mode: record.mode,
    };
    let queue = RequestQueue(all.iter().map(request).collect());
    let participants = all.into_iter().enumerate().map(|(i, (number, record))| {
        let holds = queue.may_hold(i);
        Participant {
            // A request that was granted at once holds since it was made.
            since_ms: record.held_ms.filter(|_| holds).unwrap_or(record.tag.since_ms),
            fence: Fence::new(number.unsigned_abs()).filter(|_| holds),
            mode: record.mode,
            tag: record.tag,
            detached: record.detached.map(|it| Detached { owner: it.owner, until_ms: it.until_ms }),
        }
    });
    let (holders, waiters) = participants.partition(|participant| participant.fence.is_some());
    LockInfo { name: name.into(), holders, waiters }
}

/// The name with all characters except letters, digits, `-` and `_` written as `%XX`: one component of a path.
pub(crate) fn escaped(name: &str) -> String {
    let mut key = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => key.push(byte.into()),
            _ => key.push_str(&format!("%{byte:02X}")),
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a queue: `x` is exclusive, `s` shared, a digit a permit; the ids are the positions.
    fn queue(modes: &str) -> RequestQueue {
        let mode = |c: char| match c {
            'x' => LockMode::Exclusive,
            's' => LockMode::Shared,
            digit => LockMode::Permit { of: digit.to_digit(10).unwrap() },
        };
        let request = |(i, c)| QueuedRequest { id: format!("{i}"), number: i as i64, mode: mode(c) };
        RequestQueue::new(modes.chars().enumerate().map(request).collect())
    }

    fn holders(queue: &RequestQueue) -> String {
        (0..queue.0.len()).filter(|i| queue.may_hold(*i)).map(|i| queue.0[i].id.as_str()).collect()
    }

    #[test]
    fn first_come_first_served() {
        for (modes, holding) in
            [("xxx", "0"), ("ssxs", "01"), ("xsss", "0"), ("sss", "012"), ("2222", "01"), ("", "")]
        {
            assert_eq!(holders(&queue(modes)), holding, "{modes}");
        }
    }

    /// For every set of leaving requests: a waiter that can now be granted was watching one of them, or a request
    /// that was granted since.
    #[test]
    fn a_waiter_that_can_be_granted_is_woken() {
        for modes in ["xxxx", "ssxs", "xssx", "sxsx", "2222", "3333", "1111", "22222", "sssxx", "sxxs"] {
            let before = queue(modes);
            for mask in 0..1u32 << modes.len() {
                check_progress(&before, mask);
            }
        }
    }

    /// Lets woken waiters look again until none is woken. Then no waiter may be left that could hold the lock.
    fn check_progress(before: &RequestQueue, left: u32) {
        let left_ids: Vec<&str> =
            (0..before.0.len()).filter(|i| left >> i & 1 == 1).map(|i| before.0[i].id.as_str()).collect();
        let after =
            RequestQueue(before.0.iter().filter(|p| !left_ids.contains(&p.id.as_str())).cloned().collect());
        // The queue that each remaining request saw last: at first the one before the departures.
        let mut looked: Vec<&RequestQueue> = after.0.iter().map(|_| before).collect();
        let mut entered: Vec<&str> = after
            .0
            .iter()
            .filter(|p| before.may_hold(before.position(&p.id).unwrap()))
            .map(|p| p.id.as_str())
            .collect();
        loop {
            let woken = after.0.iter().enumerate().find(|(i, request)| {
                let seen = looked[*i];
                let at = seen.position(&request.id).unwrap();
                let gone = |p: &QueuedRequest| after.position(&p.id).is_none();
                !entered.contains(&request.id.as_str())
                    && match seen.watched_by(at) {
                        None => true,
                        Some(WatchedChange::Leaves(p)) => gone(p),
                        Some(WatchedChange::LeavesOrEnters(p)) => {
                            let waited = !seen.may_hold(seen.position(&p.id).unwrap());
                            gone(p) || (waited && entered.contains(&p.id.as_str()))
                        }
                        Some(WatchedChange::AnyLeaves(all)) => all.iter().any(gone),
                    }
            });
            let Some((i, request)) = woken else { break };
            looked[i] = &after;
            if after.may_hold(i) {
                entered.push(&request.id);
            }
            assert!(entered.len() <= after.0.len());
        }
        for (i, request) in after.0.iter().enumerate() {
            let inside = entered.contains(&request.id.as_str());
            assert_eq!(inside, after.may_hold(i), "{before:?} without {left_ids:?}: {request:?}");
        }
    }

    #[test]
    fn a_release_wakes_one_and_not_the_whole_line() {
        for (modes, leaves, woken) in [("xxxxx", 0, 1), ("22222", 0, 1), ("xssss", 0, 4), ("ssxxx", 0, 0)] {
            let queue = queue(modes);
            let watches = |i: &usize| match queue.watched_by(*i) {
                Some(WatchedChange::Leaves(p) | WatchedChange::LeavesOrEnters(p)) => p.number == leaves,
                Some(WatchedChange::AnyLeaves(all)) => all.iter().any(|p| p.number == leaves),
                None => false,
            };
            let waiters = (0..modes.len()).filter(|i| !queue.may_hold(*i));
            assert_eq!(waiters.filter(watches).count(), woken, "{modes}");
        }
    }

    #[test]
    fn escaped_names_are_single_components_and_never_collide() {
        assert_eq!(escaped("orders/42"), "orders%2F42");
        assert_eq!(escaped(".."), "%2E%2E");
        assert_eq!(escaped("a%2Fb"), "a%252Fb");
        assert!(escaped(&"/".repeat(LockName::BYTES_MAX)).len() <= 3 * LockName::BYTES_MAX);
    }
}
