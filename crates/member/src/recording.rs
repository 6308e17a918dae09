//! Which holds a member records, and when the lock of a recorded hold is free.
//!
//! A hold that is in use for longer than [`Config::record_after_ns`](crate::Config::record_after_ns) is recorded in the
//! log of the cluster. Its lock is free, and the client's release is answered, only once the end of the record is
//! committed. Otherwise a view change in between would give the lock back to the client, which would not release it
//! again:
//!
//! ```text
//! Granted ─ 50 ms ─ Record proposed ─ committed: Recorded ─ … ─ Release ─ End proposed ─ committed: the lock is free
//! ```
//!
//! A hold whose record is proposed and not answered counts as recorded. The member has at most one write in progress and
//! repeats it until it is answered, so that its changes are applied once and in order.

use crate::member::{Member, Message};
use crate::session::Stage;
use crate::table::LockId;
use crate::{
    Acquisition, BugSwitch, Bugs, HoldRecord, LONGEST_PAYLOAD, Out, PortRequest, RecordChange, RecordOutcome,
    RecordWrite, SessionId, ToClient,
};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use lockkeeper_core::MutualExclusion;

/// Most changes of one write, and their approximate size in bytes.
const MOST_CHANGES: usize = 512;
const MOST_BYTES: usize = 64 * 1024;
/// How long a hold whose record did not fit into the table waits for the next attempt.
const UNFIT_PAUSE_NS: u64 = 1_000_000_000;

/// The state of a record at the home of its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordState {
    /// To be proposed. `proposed` is set if an earlier proposal may have been applied.
    Scheduled { proposed: bool },
    /// In the table, with this index among the records of its session.
    Committed { index: u64 },
    /// Its end is to be proposed.
    Ending,
}

/// The records of a member's holds, and its writes to the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    records: BTreeMap<Acquisition, (LockId, RecordState)>,
    /// The records whose state is to be written.
    scheduled: BTreeSet<Acquisition>,
    /// The records in the table whose payload has changed since it was written.
    changed: BTreeSet<Acquisition>,
    /// The write in progress, and when it was sent.
    in_progress: Option<(RecordWrite, u64)>,
    sequence: u64,
    /// Holds whose records, or new payloads, did not fit into the table, and when each was refused. They are proposed again
    /// after a while; until then they are as short as other holds without a record.
    unfit: VecDeque<(u64, Acquisition)>,
    /// The same holds, for a search.
    is_unfit: BTreeSet<Acquisition>,
    /// The epoch in which the table refused the last write: a newer view is decided, and nothing is written before it
    /// starts here.
    refused_in: Option<u64>,
}

impl Recording {
    /// Whether the table may contain a record of this acquisition.
    pub fn has(&self, acquisition: Acquisition) -> bool {
        self.records.contains_key(&acquisition)
    }

    /// Whether the table contains a record of this acquisition, for certain.
    pub fn is_committed(&self, acquisition: Acquisition) -> bool {
        matches!(self.records.get(&acquisition), Some((_, RecordState::Committed { .. })))
    }

    /// Whether nothing is left to write.
    pub fn is_done(&self) -> bool {
        self.scheduled.is_empty() && self.in_progress.is_none()
    }

    /// Adds the record of an adopted hold.
    pub fn adopt(&mut self, acquisition: Acquisition, lock: LockId) {
        self.records.entry(acquisition).or_insert((lock, RecordState::Committed { index: 0 }));
    }

    /// A new view has started here: the write in progress was applied before it or never will be.
    pub fn begin_view(&mut self) {
        if let Some((write, _)) = self.in_progress.take() {
            let known = write.changes.iter().map(RecordChange::acquisition);
            for acquisition in known.filter(|acquisition| self.records.contains_key(acquisition)) {
                self.scheduled.insert(acquisition);
                self.changed.insert(acquisition);
            }
        }
        self.refused_in = None;
    }

    /// Schedules the record of a hold.
    fn schedule(&mut self, acquisition: Acquisition, lock: LockId) {
        if !self.has(acquisition) {
            self.records.insert(acquisition, (lock, RecordState::Scheduled { proposed: false }));
            self.scheduled.insert(acquisition);
        }
    }

    /// Whether the table had no room for the record of this acquisition, or for its present payload.
    pub fn is_unfit(&self, acquisition: Acquisition) -> bool {
        self.is_unfit.contains(&acquisition)
    }

    /// Schedules a record to be written again, with the present payload. Returns `false` if there is none yet.
    fn schedule_change(&mut self, acquisition: Acquisition) -> bool {
        let has_record = self.has(acquisition);
        if has_record {
            self.changed.insert(acquisition);
            self.scheduled.insert(acquisition);
        }
        has_record
    }

    /// Begins to end the record of an acquisition. Returns whether the table may contain one.
    pub fn end(&mut self, acquisition: Acquisition, proposed_is_short: bool) -> bool {
        match self.records.get_mut(&acquisition) {
            None => false,
            Some((_, RecordState::Scheduled { proposed })) if !*proposed || proposed_is_short => {
                self.records.remove(&acquisition);
                self.scheduled.remove(&acquisition);
                false
            }
            // The outcome of the proposal decides whether there is something to end.
            Some((_, RecordState::Scheduled { .. })) => true,
            Some((_, state)) => {
                *state = RecordState::Ending;
                self.scheduled.insert(acquisition);
                true
            }
        }
    }
}

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Schedules the records of the holds that have been in use for long enough.
    pub(crate) fn record_long_holds(&mut self, now: u64) {
        while let Some(&(since_ns, acquisition)) = self.young_holds.front()
            && now >= since_ns.saturating_add(self.config.record_after_ns)
            && self.has_budget()
        {
            self.spend(1);
            self.young_holds.pop_front();
            self.schedule_record(acquisition);
        }
        while let Some(&(since_ns, acquisition)) = self.recording.unfit.front()
            && now >= since_ns.saturating_add(UNFIT_PAUSE_NS)
            && self.has_budget()
        {
            self.spend(1);
            self.recording.unfit.pop_front();
            self.recording.is_unfit.remove(&acquisition);
            if !self.recording.schedule_change(acquisition) {
                self.schedule_record(acquisition);
            }
        }
    }

    /// Schedules the record of a hold that is in use.
    pub(crate) fn schedule_record(&mut self, acquisition: Acquisition) {
        let Some(&Stage::Held(id)) = self.stage(acquisition) else { return };
        let Some(active) = &mut self.locks.get_mut(id).active else { return };
        let Some(hold) = active.hold_mut(acquisition) else { return };
        let has_payload = !acquisition.session.is_resident() || !hold.payload.is_empty();
        if hold.in_use && hold.ttl_ns > 0 && has_payload && hold.revoked_until_ns.is_none() {
            self.recording.schedule(acquisition, id);
        }
    }

    /// Requests a record of the hold of a resident client, or changes the payload of its record. The driver learns of
    /// the record by [`ToClient::Recorded`]. Returns `false` if the client does not hold the lock, or the payload is
    /// empty or too long.
    pub fn record_resident(
        &mut self,
        now: u64,
        acquisition: Acquisition,
        ttl_ns: u64,
        payload: Vec<u8>,
    ) -> bool {
        let Some(&Stage::Held(id)) = self.stage(acquisition) else { return false };
        let ttl_ns = self.config.cluster.ttl_in_force_ns(ttl_ns);
        if payload.is_empty() || payload.len() > LONGEST_PAYLOAD || !acquisition.session.is_resident() {
            return false;
        }
        let active = self.locks.get_mut(id).active.as_mut();
        let Some(hold) = active.and_then(|active| active.hold_mut(acquisition)) else { return false };
        hold.payload = payload;
        hold.ttl_ns = ttl_ns;
        if !self.recording.schedule_change(acquisition) {
            self.young_holds.push_back((now, acquisition));
        }
        true
    }

    /// Marks the hold of a resident client as detached: it belongs to an owner without a process, and the driver ends it at
    /// its deadline (milliseconds of Unix time), which lists show. Its record is proposed at once. `None`: the hold is not
    /// detached any more.
    pub fn detach_resident(&mut self, acquisition: Acquisition, until_ms: Option<u64>) {
        let Some(&Stage::Held(id)) = self.stage(acquisition) else { return };
        let active = self.locks.get_mut(id).active.as_mut();
        let Some(hold) = active.and_then(|active| active.hold_mut(acquisition)) else { return };
        hold.detached_until_ms = until_ms;
        self.note_change(id);
        self.schedule_record(acquisition);
    }

    /// Whether the table had no room for the record of this hold, or for its present payload. The member tries again after
    /// a while.
    pub fn is_record_unfit(&self, acquisition: Acquisition) -> bool {
        self.recording.is_unfit(acquisition)
    }

    /// Whether the table contains the record of a hold with its present payload.
    pub fn is_record_current(&self, acquisition: Acquisition) -> bool {
        let Recording { changed, in_progress, .. } = &self.recording;
        let is_of = |change: &RecordChange| change.acquisition() == acquisition;
        let written = in_progress.as_ref().is_some_and(|(write, _)| write.changes.iter().any(is_of));
        let unfit = self.recording.is_unfit(acquisition);
        self.recording.is_committed(acquisition) && !changed.contains(&acquisition) && !written && !unfit
    }

    /// Promises the recorded holds of a resident client for their time to live from now on. Returns `false` if this
    /// member can promise nothing at the moment: it has no lease, or changes its view.
    pub fn promise_resident(&mut self, now: u64, id: SessionId) -> bool {
        let while_frozen = self.config.has(BugSwitch::PromisedWhileFrozen);
        let runs = now < self.lease_until_ns || self.config.has(BugSwitch::ResidentPromisedWithoutLease);
        let may_promise = (self.running().is_some() || while_frozen) && runs && self.promises(now);
        let session = self.sessions.get_mut(&id).filter(|session| session.resident && !session.ends);
        let Some(session) = session.filter(|_| may_promise) else { return false };
        session.durably_promised_ns = session.durably_promised_ns.max(Some(now));
        let was_orphan = core::mem::replace(&mut session.is_orphan, false);
        if was_orphan {
            self.note_changes_of(id);
        }
        true
    }

    /// Proposes the next write, or repeats the one in progress if it is not answered.
    pub(crate) fn write_records(&mut self, now: u64, out: &mut Out<Message<P>>) {
        let Some(epoch) = self.running().map(|view| view.epoch) else { return };
        let repeat_ns = 4 * self.config.round_trip_ns;
        if let Some((write, sent_ns)) = &mut self.recording.in_progress {
            if now >= sent_ns.saturating_add(repeat_ns) {
                *sent_ns = now;
                out.port.push(PortRequest::Write(write.clone()));
            }
            return;
        }
        if self.recording.refused_in == Some(epoch) || self.recording.scheduled.is_empty() {
            return;
        }
        let (mut changes, mut bytes) = (Vec::new(), 0);
        while changes.len() < MOST_CHANGES
            && bytes < MOST_BYTES
            && let Some(acquisition) = self.recording.scheduled.pop_first()
        {
            let change = self.change_of(acquisition);
            bytes += change.as_ref().map_or(0, RecordChange::bytes);
            changes.extend(change);
        }
        if changes.is_empty() {
            return;
        }
        self.spend(changes.len());
        self.recording.sequence += 1;
        let write = RecordWrite { home: self.me, epoch, sequence: self.recording.sequence, changes };
        out.port.push(PortRequest::Write(write.clone()));
        if self.config.has(BugSwitch::PromisedBeforeCommit) {
            let numbers = write.changes.iter().map(RecordChange::acquisition).collect::<Vec<_>>();
            numbers.into_iter().for_each(|acquisition| self.report_record(now, acquisition, out));
        }
        self.recording.in_progress = Some((write, now));
    }

    /// The change that an acquisition needs.
    fn change_of(&mut self, acquisition: Acquisition) -> Option<RecordChange> {
        let changed = self.recording.changed.remove(&acquisition);
        let (id, state) = self.recording.records.get_mut(&acquisition)?;
        match state {
            RecordState::Committed { .. } => {
                let id = *id;
                self.record_of(id, acquisition).filter(|_| changed).map(RecordChange::Record)
            }
            RecordState::Ending => Some(RecordChange::End(acquisition)),
            RecordState::Scheduled { proposed } => {
                *proposed = true;
                let id = *id;
                let Some(record) = self.record_of(id, acquisition) else {
                    // The hold has ended, and its record may be in the table: the end of it settles the matter.
                    return Some(RecordChange::End(acquisition));
                };
                Some(RecordChange::Record(record))
            }
        }
    }

    fn record_of(&self, id: LockId, acquisition: Acquisition) -> Option<HoldRecord> {
        let session = self.sessions.get(&acquisition.session)?;
        let lock = self.locks.get(id);
        let hold = lock.active.as_ref()?.holds.iter().find(|hold| hold.is_of(acquisition))?;
        Some(HoldRecord {
            acquisition,
            hold: hold.number,
            lock: lock.name.clone(),
            mode: hold.mode,
            fence: hold.fence,
            ttl_ns: hold.ttl_ns,
            longest_until_ms: hold.longest_until_ns.map(|at| self.config.unix_ms(at)),
            since_ms: self.config.unix_ms(hold.since_ns),
            tag: hold.tag.clone(),
            proof: session.proof,
            payload: hold.payload.clone(),
            home: self.me,
            epoch: 0,
            adopted: false,
        })
    }

    /// Handles the answer to a write.
    pub(crate) fn written(
        &mut self,
        now: u64,
        sequence: u64,
        outcomes: &[RecordOutcome],
        out: &mut Out<Message<P>>,
    ) {
        let write = self
            .recording
            .in_progress
            .take_if(|(write, _)| write.sequence == sequence && write.changes.len() == outcomes.len());
        let Some((write, _)) = write else { return };
        self.spend(outcomes.len());
        for (change, outcome) in write.changes.iter().zip(outcomes) {
            self.change_written(now, change, *outcome, out);
        }
        if outcomes.contains(&RecordOutcome::Refused) {
            self.recording.refused_in = Some(write.epoch);
        }
    }

    fn change_written(
        &mut self,
        now: u64,
        change: &RecordChange,
        outcome: RecordOutcome,
        out: &mut Out<Message<P>>,
    ) {
        let acquisition = change.acquisition();
        let Some(&(id, state)) = self.recording.records.get(&acquisition) else { return };
        let held = matches!(self.stage(acquisition), Some(Stage::Held(_)));
        match (change, outcome) {
            // The write may have been applied before, with its answer lost, and refused only when it was repeated in a
            // newer view. So the record of a hold that has ended meanwhile is ended in that view, too.
            (_, RecordOutcome::Refused) => {
                self.recording.scheduled.insert(acquisition);
                self.recording.changed.insert(acquisition);
            }
            (_, RecordOutcome::Ended) => {
                self.recording.records.remove(&acquisition);
                self.recording.changed.remove(&acquisition);
                self.record_ended(now, id, acquisition, out);
            }
            // It is in the table with its old payload, if at all: an earlier proposal was answered before this one.
            (_, RecordOutcome::Full) => {
                let is_new = matches!(state, RecordState::Scheduled { .. });
                if is_new {
                    self.recording.records.remove(&acquisition);
                }
                if held {
                    self.recording.unfit.push_back((now, acquisition));
                    self.recording.is_unfit.insert(acquisition);
                } else if is_new {
                    self.record_ended(now, id, acquisition, out);
                }
            }
            (_, RecordOutcome::Recorded) if held => self.report_record(now, acquisition, out),
            (_, RecordOutcome::Recorded) => {
                self.recording.records.insert(acquisition, (id, RecordState::Ending));
                self.recording.scheduled.insert(acquisition);
            }
        }
    }

    /// Reports to the client that its hold is recorded.
    fn report_record(&mut self, now: u64, acquisition: Acquisition, out: &mut Out<Message<P>>) {
        let may_promise = self.running().is_some() && now < self.lease_until_ns && self.promises(now);
        let Some((id, state)) = self.recording.records.get_mut(&acquisition) else { return };
        let Some(session) = self.sessions.get_mut(&acquisition.session) else { return };
        let active = self.locks.get(*id).active.as_ref();
        let hold = active.and_then(|active| active.holds.iter().find(|hold| hold.is_of(acquisition)));
        let Some(ttl_ns) = hold.map(|hold| hold.ttl_ns) else { return };
        session.recorded += 1;
        let index = session.recorded;
        if !self.config.has(BugSwitch::PromisedBeforeCommit) || matches!(state, RecordState::Scheduled { .. })
        {
            *state = RecordState::Committed { index };
        }
        let (generation, number) = (session.generation, acquisition.number);
        let sent_ns = session.keep_alive_sent_ns.filter(|_| may_promise);
        if sent_ns.is_some() {
            session.durably_promised_ns = session.durably_promised_ns.max(Some(now));
        }
        let recorded = ToClient::Recorded { generation, number, index, ttl_ns, sent_ns };
        out.clients.push((acquisition.session, recorded));
    }

    /// Frees the lock of a hold whose records have ended.
    fn record_ended(&mut self, now: u64, id: LockId, acquisition: Acquisition, out: &mut Out<Message<P>>) {
        let running = self.running().is_some();
        if self.locks.used_mut(id).is_none() {
            return;
        }
        if running {
            self.ensure_instance(id, true);
        }
        let Some(active) = self.locks.used_mut(id) else { return };
        let Some(place) = active.holds.iter().position(|hold| hold.ending.contains(&acquisition)) else {
            return;
        };
        active.holds[place].ending.retain(|ending| *ending != acquisition);
        if let Some(&Stage::Over(outcome)) = self.stage(acquisition) {
            let number = acquisition.number;
            out.clients.push((acquisition.session, ToClient::Ended { number, outcome }));
        }
        let Some(active) = self.locks.used_mut(id) else { return };
        // While frozen, the report lists the hold, and the next view starts from the report.
        if running && active.holds[place].is_over() {
            active.holds.remove(place);
            self.held -= 1;
        }
        self.advance(now, id, out);
    }
}
