//! [`WatchState`]: which events a watch reports.
//!
//! A watch compares states; there is no history. That suffices for the recipes: a client watches a key that it has seen, so
//! a key that is not there was deleted, at the start revision or later.

use super::kv::{KeyState, NO_REVISION};
use super::pb::mvccpb::event::EventType;
use super::pb::mvccpb::{Event, KeyValue};

/// The kind of state that a watch follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The hold of a lease.
    Entry,
    /// The lock of a bare key.
    Bare,
    /// The holder of a lock.
    Holder,
}

/// A client in JavaScript computes start revisions with doubles, which are off by up to 256 for revisions below 2^62.
const ROUNDING: i64 = 512;

/// The state that a watch has reported.
pub(super) struct WatchState {
    scope: Scope,
    /// The watched key; for [`Scope::Holder`], the prefix.
    key: Vec<u8>,
    /// The first revision to report; 0: changes from now on.
    start: i64,
    /// `None` until the first state is known.
    seen: Option<KeyState>,
}

impl WatchState {
    pub fn new(scope: Scope, key: Vec<u8>, start: i64) -> Self {
        Self { scope, key, start, seen: None }
    }

    /// Takes the present state, and returns the events that lead to it.
    pub fn update(&mut self, now: KeyState) -> Vec<Event> {
        let before = self.seen.replace(now.clone());
        match before {
            None => self.first_events(now),
            Some(before) => later_events(before, now),
        }
    }

    fn first_events(&self, now: KeyState) -> Vec<Event> {
        match now {
            // A watch of the holder begins when there is none.
            KeyState::Absent if self.scope == Scope::Holder => Vec::new(),
            KeyState::Absent => vec![deleted(self.key.clone(), self.start)],
            KeyState::Waiting(_) => Vec::new(),
            KeyState::Held(kv) => {
                let slack = if self.scope == Scope::Entry { ROUNDING } else { 0 };
                let (follows, last) = (self.start > 0, self.start.saturating_add(slack));
                let mut events = Vec::new();
                // The hold that the client knows has ended, and the key belongs to a later one.
                if follows && kv.create_revision > last && self.scope != Scope::Holder {
                    events.push(deleted(self.key.clone(), self.start));
                }
                if follows && kv.mod_revision >= self.start {
                    events.push(put(kv));
                }
                events
            }
        }
    }
}

fn later_events(before: KeyState, now: KeyState) -> Vec<Event> {
    match (before, now) {
        (KeyState::Held(before), KeyState::Held(now)) if before.create_revision == now.create_revision => {
            if before.mod_revision == now.mod_revision {
                Vec::new()
            } else {
                vec![put(now)]
            }
        }
        (KeyState::Held(before), KeyState::Held(now)) => {
            vec![deleted(before.key, before.mod_revision), put(now)]
        }
        (KeyState::Held(before), KeyState::Waiting(_) | KeyState::Absent) => {
            vec![deleted(before.key, before.mod_revision)]
        }
        (KeyState::Waiting(before), KeyState::Absent) => vec![deleted(before.key, NO_REVISION)],
        (KeyState::Absent | KeyState::Waiting(_), KeyState::Held(now)) => vec![put(now)],
        (KeyState::Absent | KeyState::Waiting(_), KeyState::Waiting(_))
        | (KeyState::Absent, KeyState::Absent) => Vec::new(),
    }
}

fn put(kv: KeyValue) -> Event {
    Event { r#type: EventType::Put.into(), kv: Some(kv) }
}

/// The deletion of a key, which happened at this revision or later.
pub(super) fn deleted(key: Vec<u8>, revision: i64) -> Event {
    let mod_revision = revision.max(NO_REVISION);
    Event {
        r#type: EventType::Delete.into(),
        kv: Some(KeyValue { key, mod_revision, ..KeyValue::default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(create_revision: i64, mod_revision: i64) -> KeyState {
        KeyState::Held(KeyValue {
            key: b"a/1".to_vec(),
            create_revision,
            mod_revision,
            ..KeyValue::default()
        })
    }

    fn waiting() -> KeyState {
        KeyState::Waiting(KeyValue { key: b"a/1".to_vec(), ..KeyValue::default() })
    }

    /// The types of the events, with their modification revisions.
    fn shown(events: Vec<Event>) -> Vec<(EventType, i64)> {
        events.iter().map(|event| (event.r#type(), event.kv.as_ref().expect("a key").mod_revision)).collect()
    }

    fn first(scope: Scope, start: i64, now: KeyState) -> Vec<(EventType, i64)> {
        shown(WatchState::new(scope, b"a/1".to_vec(), start).update(now))
    }

    use EventType::{Delete, Put};

    #[test]
    fn key_that_is_not_there_was_deleted() {
        for scope in [Scope::Entry, Scope::Bare] {
            assert_eq!(first(scope, 7, KeyState::Absent), [(Delete, 7)]);
            assert_eq!(first(scope, 0, KeyState::Absent), [(Delete, 1)], "python-etcd3 would wait forever");
        }
        assert_eq!(first(Scope::Holder, 7, KeyState::Absent), [], "there is no leader yet");
    }

    #[test]
    fn hold_is_reported_if_it_is_not_older_than_the_start() {
        assert_eq!(first(Scope::Entry, 8, held(7, 7)), []);
        assert_eq!(first(Scope::Entry, 8, held(7, 8)), [(Put, 8)], "a proclamation");
        assert_eq!(first(Scope::Entry, 0, held(7, 8)), [], "from now on");
        assert_eq!(first(Scope::Holder, 1, held(7, 8)), [(Put, 8)]);
    }

    #[test]
    fn later_hold_under_the_same_key_means_that_the_key_was_deleted() {
        assert_eq!(first(Scope::Entry, 8, held(9000, 9000)), [(Delete, 8), (Put, 9000)]);
        assert_eq!(first(Scope::Bare, 8, held(9, 9)), [(Delete, 8), (Put, 9)]);
        assert_eq!(first(Scope::Bare, 9, held(9, 9)), [(Put, 9)]);
        assert_eq!(first(Scope::Holder, 8, held(9000, 9000)), [(Put, 9000)]);
    }

    #[test]
    fn start_revision_rounded_by_javascript_deletes_nothing() {
        let fence: i64 = (90_000_000 << 32) + 20;
        // The result of Number("386547056640000021") in JavaScript.
        let rounded = (fence + 1) as f64 as i64;
        assert!(rounded < fence);
        assert_eq!(first(Scope::Entry, rounded, held(fence, fence)), [(Put, fence)]);
    }

    #[test]
    fn changes_are_reported_once() {
        let mut watch = WatchState::new(Scope::Entry, b"a/1".to_vec(), 8);
        let mut update = |now| shown(watch.update(now));
        assert_eq!(update(held(7, 7)), []);
        assert_eq!(update(held(7, 7)), []);
        assert_eq!(update(held(7, 9)), [(Put, 9)]);
        assert_eq!(update(held(12, 12)), [(Delete, 9), (Put, 12)]);
        assert_eq!(update(KeyState::Absent), [(Delete, 12)]);
        assert_eq!(update(KeyState::Absent), []);
        assert_eq!(update(waiting()), []);
        assert_eq!(update(held(15, 15)), [(Put, 15)]);
        assert_eq!(update(waiting()), [(Delete, 15)]);
        assert_eq!(update(KeyState::Absent), [(Delete, 1)]);
    }
}
