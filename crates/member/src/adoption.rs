//! Sessions and holds of an excluded member, at the member that adopts them with the start of a view.
//!
//! The adopted session is an *orphan* until it receives a message of its client. The previous member may have promised
//! the holds until its own lease expired, for their whole time to live. The view has started after that lease had
//! expired, so one time to live after the start, with an allowance for drift, no promise of the previous member is
//! valid any more. Then the adopting member ends the holds, as for any silent client.

use crate::lock::Hold;
use crate::member::{Member, Timer};
use crate::session::{Session, Stage};
use crate::{BugSwitch, Bugs, Generation, HoldRecord, SessionId, ToClient};
use alloc::vec::Vec;
use lockkeeper_core::MutualExclusion;

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Adopts a recorded hold with the start of the view of this epoch. A start that is replaced by a newer one before it
    /// is installed may have been adopted in part already.
    pub(crate) fn adopt(&mut self, now: u64, epoch: u64, record: &HoldRecord) {
        let (id, number) = (record.acquisition.session, record.acquisition.number);
        self.adopt_session(now, epoch, id, record);
        let known = self.sessions.get(&id).is_some_and(|session| session.acquisitions.contains_key(&number));
        if known {
            return;
        }
        let lock = self.locks.own_entry(&record.lock);
        let longest_until_ns = record.longest_until_ms.map(|at| self.config.clock_ns(at).max(now));
        let active = self.locks.activate(lock);
        let of_hold = |hold: &&mut Hold| {
            hold.number == record.hold && hold.acquisition.is_some_and(|held| held.session == id)
        };
        match active.holds.iter_mut().find(of_hold) {
            Some(hold) => hold.again.push(record.acquisition),
            None => {
                active.holds.push(Hold {
                    acquisition: Some(record.acquisition),
                    again: Vec::new(),
                    ending: Vec::new(),
                    number: record.hold,
                    ttl_ns: record.ttl_ns,
                    mode: record.mode,
                    fence: record.fence,
                    delegated_entries: 0,
                    was_delegated: false,
                    in_use: true,
                    tag: record.tag.clone(),
                    payload: record.payload.clone(),
                    detached_until_ms: None,
                    since_ns: self.config.clock_ns(record.since_ms).min(now),
                    longest_until_ns,
                    revoked_until_ns: None,
                });
                self.held += 1;
            }
        }
        if let Some(at) = longest_until_ns {
            self.timers.insert((at, Timer::LongestHold(record.acquisition)));
        }
        self.set(record.acquisition, Stage::Held(lock));
        self.recording.adopt(record.acquisition, lock);
        if id.is_resident() {
            self.adopted_residents.push(record.clone());
        }
    }

    /// Creates the session of an adopted hold, or raises the generation of one that was adopted with an earlier start.
    fn adopt_session(&mut self, now: u64, epoch: u64, id: SessionId, record: &HoldRecord) {
        let generation = Generation { epoch, incarnation: self.me.incarnation, number: self.next_generation };
        let session = self.sessions.entry(id).or_insert_with(|| Session {
            generation,
            proof: record.proof,
            resident: id.is_resident(),
            ..Session::default()
        });
        if session.generation == generation {
            self.next_generation += 1;
        }
        let owes = !self.config.has(BugSwitch::OrphanOwesNothing);
        let granted_ns = self.config.clock_ns(record.since_ms).min(now);
        let from_ns = if self.config.has(BugSwitch::TtlFromGrant) { granted_ns } else { now };
        session.generation.epoch = epoch;
        session.adopted_in = epoch;
        session.last_message_ns = now;
        session.is_orphan = true;
        session.durably_promised_ns = owes.then_some(from_ns);
        if !session.resident {
            self.timers.insert((now + 1, Timer::Session(id)));
        }
    }

    /// The holds of resident clients that this member has adopted since the last call. Its driver takes them over with
    /// their payloads, and ends their sessions like those that it has opened.
    pub fn take_adopted_residents(&mut self) -> Vec<HoldRecord> {
        core::mem::take(&mut self.adopted_residents)
    }

    /// The answer to a keep-alive of a client that knows an older generation of its session: the holds that it still has.
    pub(crate) fn resumed(&self, id: SessionId) -> Option<ToClient> {
        let session = self.sessions.get(&id)?;
        let held = session.acquisitions.iter().filter_map(|(&number, stage)| {
            let Stage::Held(lock) = stage else { return None };
            let active = self.locks.get(*lock).active.as_ref()?;
            let acquisition = crate::Acquisition { session: id, number };
            let hold = active.holds.iter().find(|hold| hold.is_of(acquisition))?;
            let kept = hold.revoked_until_ns.is_none() && self.recording.is_committed(acquisition);
            kept.then_some((number, hold.ttl_ns))
        });
        Some(ToClient::Resumed { generation: session.generation, held: held.collect() })
    }
}
