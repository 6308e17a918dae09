//! The table of recorded holds: part of the replicated state that consensus keeps beside the newest view.
//!
//! A hold that lasts is recorded in the log that also decides the views, so that it survives its member. Because both are
//! entries of one log, the table at the position of a view is the truth about the long holds of the members that the view
//! excludes:
//!
//! ```text
//! log   Record(hold of M1)   View 5 = {M1 M2 M3}   End(…)   View 6 = {M2 M3}
//! table home M1              home M1                        home M2: adopted in epoch 6
//! ```
//!
//! A member writes in batches, one at a time. The table accepts a batch only from a member of the newest view, in that
//! very incarnation and epoch, and applies it once: a member that was excluded, or that has not installed the newest view
//! yet, changes nothing.

use crate::{
    Acquisition, BugSwitch, Bugs, Fence, LockMode, LockName, NoBugs, Node, Proof, SessionId, Tag, View,
};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A recorded hold. A hold with several acquisitions (reentrant requests) has one record for each of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRecord {
    /// The acquisition that the record is about.
    pub acquisition: Acquisition,
    /// The number of the first acquisition of the hold. Records of one session with the same number are one hold.
    pub hold: u64,
    /// The lock's name.
    pub lock: LockName,
    /// The mode of the hold.
    pub mode: LockMode,
    /// The fence of the hold; `None` for one of several permits.
    pub fence: Option<Fence>,
    /// The time to live in force.
    pub ttl_ns: u64,
    /// The end of the longest hold, if the request set one, in milliseconds of Unix time.
    pub longest_until_ms: Option<u64>,
    /// The time of the grant, in milliseconds of Unix time, for operators.
    pub since_ms: u64,
    /// The description for operators.
    pub tag: Tag,
    /// The proof of the session's client.
    pub proof: Proof,
    /// The bytes that the driver of the home has stored with the hold of a resident client
    /// ([`Member::record_resident`](crate::Member::record_resident)), for the driver of the member that adopts it.
    /// Empty for other clients.
    pub payload: Vec<u8>,
    /// The member whose session holds the lock.
    pub home: Node,
    /// The epoch in which the home recorded or adopted the hold.
    pub epoch: u64,
    /// Whether the home has adopted the hold from another member.
    pub adopted: bool,
}

/// The longest [payload](HoldRecord::payload), in bytes.
pub const LONGEST_PAYLOAD: usize = 8 * 1024;

/// The largest size of the table of recorded holds, as [counted](HoldTable::bytes), in bytes. A snapshot of the table is
/// sent in one message, which has room for it. All replicas must agree on this number.
pub const MOST_TABLE_BYTES: usize = 8 << 20;

impl HoldRecord {
    /// Approximate size in the log and in frames, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lock.name.len() + self.tag.owner.len() + self.tag.purpose.len() + self.payload.len() + 128
    }
}

/// A change of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordChange {
    /// Adds a record, or changes the payload of one. Home and epoch are those of the write.
    Record(HoldRecord),
    /// Removes the record of this acquisition.
    End(Acquisition),
}

impl RecordChange {
    /// The acquisition that the change is about.
    pub fn acquisition(&self) -> Acquisition {
        match self {
            Self::Record(record) => record.acquisition,
            Self::End(acquisition) => *acquisition,
        }
    }

    /// Approximate size in the log, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Record(record) => record.bytes(),
            Self::End(_) => 24,
        }
    }
}

/// A batch of changes by one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordWrite {
    /// The member that makes the changes.
    pub home: Node,
    /// The epoch in which it runs.
    pub epoch: u64,
    /// The number of the batch, rising within the incarnation. A batch that is applied is not applied again.
    pub sequence: u64,
    /// The changes, in the order in which they are applied.
    pub changes: Vec<RecordChange>,
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordOutcome {
    /// The record is in the table.
    Recorded,
    /// The record is not in the table any more.
    Ended,
    /// Nothing changed: a newer view has replaced the epoch of the write.
    Refused,
    /// Nothing changed: the table has no room for the record ([`MOST_TABLE_BYTES`]).
    Full,
}

/// The table of recorded holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldTable {
    records: BTreeMap<Acquisition, HoldRecord>,
    /// The number of the last batch that was applied, for each member of the newest view.
    sequences: BTreeMap<Node, u64>,
    /// The size of the records.
    #[serde(skip)]
    size: TableSize,
}

/// The size of a table, once it was computed. It is not part of the stored table, because the records determine it.
#[derive(Clone, Copy, Debug, Default)]
struct TableSize(Option<usize>);

impl PartialEq for TableSize {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for TableSize {}

impl HoldTable {
    /// The approximate size of all records, in bytes.
    pub fn bytes(&self) -> usize {
        self.size.0.unwrap_or_else(|| self.records.values().map(HoldRecord::bytes).sum())
    }

    /// The records, by acquisition.
    pub fn records(&self) -> impl ExactSizeIterator<Item = &HoldRecord> {
        self.records.values()
    }

    /// Applies a decided view: the records of members that are not in it get a new home.
    pub fn apply_view(&mut self, view: &View) {
        self.apply_view_with(view, NoBugs);
    }

    /// [Applies a decided view](Self::apply_view), with bug switches for simulations.
    pub fn apply_view_with(&mut self, view: &View, bugs: impl Bugs) {
        self.sequences.retain(|node, _| view.has(*node));
        // A member that has left as planned is not listed as missing.
        let missing_only = bugs.has(BugSwitch::DepartedNotAdopted);
        let moves = |record: &&mut HoldRecord| {
            !view.has(record.home) && (!missing_only || view.missing.contains(&record.home))
        };
        for record in self.records.values_mut().filter(moves) {
            let Some(home) = heir(record.acquisition.session, view) else { continue };
            (record.home, record.epoch, record.adopted) = (home, view.epoch, true);
        }
    }

    /// The records that their homes have adopted. A start contains those that the home does not know yet.
    pub fn adopted(&self) -> Vec<HoldRecord> {
        self.records.values().filter(|record| record.adopted).cloned().collect()
    }

    /// Applies a batch. `newest` is the newest decided view.
    pub fn apply(&mut self, write: &RecordWrite, newest: &View) -> Vec<RecordOutcome> {
        self.apply_all(write, newest, MOST_TABLE_BYTES, NoBugs)
    }

    /// [Applies a batch](Self::apply), with bug switches for simulations.
    pub fn apply_with(&mut self, write: &RecordWrite, newest: &View, bugs: impl Bugs) -> Vec<RecordOutcome> {
        self.apply_all(write, newest, MOST_TABLE_BYTES, bugs)
    }

    /// [Applies a batch](Self::apply) to a table of at most `most_bytes`, for tests of a full table.
    pub fn apply_within(
        &mut self,
        write: &RecordWrite,
        newest: &View,
        most_bytes: usize,
    ) -> Vec<RecordOutcome> {
        self.apply_all(write, newest, most_bytes, NoBugs)
    }

    fn apply_all(
        &mut self,
        write: &RecordWrite,
        newest: &View,
        most_bytes: usize,
        bugs: impl Bugs,
    ) -> Vec<RecordOutcome> {
        let is_member = newest.has(write.home);
        let current = if is_member {
            newest.epoch == write.epoch || bugs.has(BugSwitch::StaleEpochAccepted)
        } else {
            bugs.has(BugSwitch::ExcludedRecordsAccepted)
        };
        if !current {
            let refuse = |change: &RecordChange| match change {
                RecordChange::End(ended) if bugs.has(BugSwitch::FormerHomeEnds) => {
                    self.records.remove(ended);
                    RecordOutcome::Ended
                }
                _ => RecordOutcome::Refused,
            };
            return write.changes.iter().map(refuse).collect();
        }
        let last = self.sequences.entry(write.home).or_default();
        let again = write.sequence <= *last && !bugs.has(BugSwitch::WritesAppliedTwice);
        *last = write.sequence.max(*last);
        write.changes.iter().map(|change| self.change(write, change, again, most_bytes)).collect()
    }

    /// Applies one change, or only determines its outcome if the batch was applied before.
    fn change(
        &mut self,
        write: &RecordWrite,
        change: &RecordChange,
        again: bool,
        most_bytes: usize,
    ) -> RecordOutcome {
        let before = self.bytes();
        self.size.0 = Some(before);
        let known = self.records.get(&change.acquisition()).map(|record| (record.home, record.bytes()));
        let (known, known_bytes) = (known.map(|(home, _)| home), known.map_or(0, |(_, bytes)| bytes));
        match change {
            RecordChange::Record(record) => {
                if known.is_some_and(|home| home != write.home) {
                    return RecordOutcome::Refused;
                }
                let after = before - known_bytes + record.bytes();
                let fits = after <= most_bytes || record.bytes() <= known_bytes;
                match self.records.get_mut(&record.acquisition) {
                    Some(_) if again => {}
                    // The first answer was `Full` and got lost; or this is a late duplicate, whose answer the home ignores.
                    None if again => return RecordOutcome::Full,
                    _ if !fits => return RecordOutcome::Full,
                    Some(known) => {
                        known.payload.clone_from(&record.payload);
                        self.size.0 = Some(after);
                    }
                    None => {
                        let (home, epoch, adopted) = (write.home, write.epoch, false);
                        let record = HoldRecord { home, epoch, adopted, ..record.clone() };
                        self.records.insert(record.acquisition, record);
                        self.size.0 = Some(after);
                    }
                }
                RecordOutcome::Recorded
            }
            RecordChange::End(acquisition) => {
                if known.is_some_and(|home| home != write.home) {
                    return RecordOutcome::Refused;
                }
                if !again {
                    self.records.remove(acquisition);
                    self.size.0 = Some(before - known_bytes);
                }
                RecordOutcome::Ended
            }
        }
    }
}

/// The member that adopts the sessions of members that a view excludes: every replica computes the same one. All holds of
/// a session have the same home.
fn heir(session: SessionId, view: &View) -> Option<Node> {
    let bytes = [session.client.to_le_bytes(), session.number.to_le_bytes()];
    let place = crate::ids::place(bytes.iter().flatten().copied(), view.members.len().max(1));
    view.members.get(place).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemberId;
    use alloc::vec;

    fn node(id: u32) -> Node {
        Node { id: MemberId(id), incarnation: 1 }
    }

    fn view(epoch: u64, members: &[u32]) -> View {
        let members: Vec<Node> = members.iter().map(|&id| node(id)).collect();
        View { epoch, since: vec![1; members.len()], members, ..View::none() }
    }

    fn acquisition(number: u64) -> Acquisition {
        Acquisition { session: SessionId { client: 9, number: 1 }, number }
    }

    fn record(number: u64) -> RecordChange {
        RecordChange::Record(HoldRecord {
            acquisition: acquisition(number),
            hold: number,
            lock: LockName::new("nightly"),
            mode: LockMode::Exclusive,
            fence: Fence::new(5, 1),
            ttl_ns: 10,
            longest_until_ms: None,
            since_ms: 0,
            tag: Tag::default(),
            proof: Proof::default(),
            payload: Vec::new(),
            home: node(0),
            epoch: 0,
            adopted: false,
        })
    }

    fn write(home: u32, epoch: u64, sequence: u64, changes: Vec<RecordChange>) -> RecordWrite {
        RecordWrite { home: node(home), epoch, sequence, changes }
    }

    #[test]
    fn only_a_member_of_the_newest_view_in_its_epoch_changes_the_table() {
        let (mut table, newest) = (HoldTable::default(), view(5, &[1, 2, 3]));
        assert_eq!(table.apply(&write(1, 4, 1, vec![record(1)]), &newest), [RecordOutcome::Refused]);
        assert_eq!(table.apply(&write(4, 5, 1, vec![record(1)]), &newest), [RecordOutcome::Refused]);
        assert_eq!(table.apply(&write(1, 5, 1, vec![record(1)]), &newest), [RecordOutcome::Recorded]);
        let end = vec![RecordChange::End(acquisition(1))];
        assert_eq!(table.apply(&write(2, 5, 1, end.clone()), &newest), [RecordOutcome::Refused]);
        assert_eq!(table.records().len(), 1);
        assert_eq!(table.apply(&write(1, 5, 2, end), &newest), [RecordOutcome::Ended]);
        assert_eq!(table.records().len(), 0);
    }

    #[test]
    fn a_batch_that_arrives_again_after_the_end_of_its_hold_does_not_restore_the_record() {
        let (mut table, newest) = (HoldTable::default(), view(5, &[1]));
        let first = write(1, 5, 1, vec![record(1)]);
        assert_eq!(table.apply(&first, &newest), [RecordOutcome::Recorded]);
        assert_eq!(table.apply(&first, &newest), [RecordOutcome::Recorded], "the answer was lost");
        table.apply(&write(1, 5, 2, vec![RecordChange::End(acquisition(1))]), &newest);
        assert_eq!(table.apply(&first, &newest), [RecordOutcome::Full], "it is not in the table");
        assert_eq!(table.records().len(), 0);
    }

    #[test]
    fn a_record_that_does_not_fit_changes_nothing_and_fits_after_the_end_of_another_one() {
        let (mut table, newest) = (HoldTable::default(), view(5, &[1]));
        let RecordChange::Record(first) = record(1) else { panic!("a record") };
        let most_bytes = 2 * first.bytes();
        let mut apply = |sequence, changes| {
            let outcomes = table.apply_within(&write(1, 5, sequence, changes), &newest, most_bytes);
            assert!(table.bytes() <= most_bytes);
            assert_eq!(table.bytes(), table.records().map(HoldRecord::bytes).sum::<usize>());
            (outcomes, table.records().len())
        };
        let (recorded, full) = (RecordOutcome::Recorded, RecordOutcome::Full);
        assert_eq!(apply(1, vec![record(1), record(2), record(3)]), (vec![recorded, recorded, full], 2));
        // A longer payload does not fit either, and the old one stays.
        let longer = RecordChange::Record(HoldRecord { payload: vec![7], ..first.clone() });
        assert_eq!(apply(2, vec![longer.clone(), record(1)]), (vec![full, recorded], 2));
        let end = RecordChange::End(acquisition(2));
        assert_eq!(apply(3, vec![end, longer]), (vec![RecordOutcome::Ended, recorded], 1));
        assert_eq!(apply(4, vec![record(3)]), (vec![full], 1), "the payload has taken a part of the room");
        // The size is computed from the records after they were read from a snapshot.
        table.size = TableSize(None);
        assert_eq!(table.bytes(), first.bytes() + 1);
    }

    #[test]
    fn a_later_record_of_the_same_home_changes_the_payload() {
        let (mut table, newest) = (HoldTable::default(), view(5, &[1, 2]));
        let with = |payload: &[u8]| match record(1) {
            RecordChange::Record(record) => {
                vec![RecordChange::Record(HoldRecord { payload: payload.into(), ..record })]
            }
            end => vec![end],
        };
        let payload = |table: &HoldTable| table.records().next().map(|record| record.payload.clone());
        let first = write(1, 5, 1, with(b"old"));
        table.apply(&first, &newest);
        assert_eq!(table.apply(&write(1, 5, 2, with(b"new")), &newest), [RecordOutcome::Recorded]);
        assert_eq!(table.apply(&first, &newest), [RecordOutcome::Recorded], "a late duplicate");
        assert_eq!(table.apply(&write(2, 5, 1, with(b"other")), &newest), [RecordOutcome::Refused]);
        assert_eq!(payload(&table).as_deref(), Some(b"new".as_slice()));
    }

    #[test]
    fn holds_of_an_excluded_member_get_one_heir_and_keep_it_while_it_stays() {
        let mut table = HoldTable::default();
        table.apply(&write(1, 5, 1, vec![record(1), record(2)]), &view(5, &[1, 2, 3]));
        assert!(table.adopted().is_empty());
        table.apply_view(&view(6, &[2, 3]));
        let homes: Vec<Node> = table.adopted().iter().map(|record| record.home).collect();
        assert_eq!(homes.len(), 2);
        assert!(homes[0] == homes[1] && view(6, &[2, 3]).has(homes[0]));
        table.apply_view(&view(7, &[1, 2, 3, 4]));
        assert!(table.records().all(|record| record.home == homes[0] && record.epoch == 6));
        // The former home cannot end the record any more.
        let end = vec![RecordChange::End(acquisition(1))];
        assert_eq!(table.apply(&write(1, 7, 1, end), &view(7, &[1, 2, 3, 4])), [RecordOutcome::Refused]);
    }
}
