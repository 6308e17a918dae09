//! The replicated state as plain data.

use super::types::{Entry, LogId, Membership, Proposal, SnapshotMeta};
use lockkeeper_member::{HoldTable, RecordOutcome, View};
use openraft::EntryPayload;
use serde::{Deserialize, Serialize};

/// The replicated state. It is the same at all stores that have applied the same entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    pub applied: Option<LogId>,
    pub membership: Membership,
    pub newest: View,
    /// The first view's epoch is above this.
    pub epoch_above: u64,
    /// The recorded holds.
    pub holds: HoldTable,
}

/// The effect of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// The entry decides this view.
    Decided(View),
    /// The entry is a write to the table of recorded holds, with these results.
    Written(Vec<RecordOutcome>),
}

impl Default for State {
    fn default() -> Self {
        Self {
            applied: None,
            membership: Membership::default(),
            newest: View::none(),
            epoch_above: 0,
            holds: HoldTable::default(),
        }
    }
}

impl State {
    /// Applies an entry.
    pub fn apply(&mut self, entry: Entry) -> Effect {
        self.applied = Some(entry.log_id);
        match entry.payload {
            EntryPayload::Blank => Effect::None,
            EntryPayload::Normal(Proposal::View(view)) => {
                let decided = self.propose(entry.log_id.leader_id.term, view);
                decided.map_or(Effect::None, Effect::Decided)
            }
            EntryPayload::Normal(Proposal::Write(write)) => {
                Effect::Written(self.holds.apply(&write, &self.newest))
            }
            EntryPayload::Membership(membership) => {
                let wanted = membership.nodes().map(|(_, node)| node.epoch_above).max();
                self.epoch_above = self.epoch_above.max(wanted.unwrap_or(0));
                self.membership = Membership::new(Some(entry.log_id), membership);
                Effect::None
            }
        }
    }

    /// Applies a proposal. It takes effect only if its epoch is the next one and it was made in the term that it names.
    /// So each epoch has one view, and a deposed leader decides nothing.
    fn propose(&mut self, term: u64, mut view: View) -> Option<View> {
        if view.term != term || view.epoch != self.newest.epoch.checked_add(1)? {
            return None;
        }
        // After the loss of all disks, members count epochs from one again, but the resources remember higher fences.
        // So the first view, and only that one, starts above `epoch_above`.
        if self.newest.epoch == 0 {
            view.epoch = view.epoch.max(self.epoch_above.checked_add(1)?);
            view.since.fill(view.epoch);
        }
        self.newest = view.clone();
        self.holds.apply_view(&view);
        Some(view)
    }

    pub fn meta(&self) -> SnapshotMeta {
        let snapshot_id = self.applied.map_or(String::new(), |applied| applied.to_string());
        SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone(), snapshot_id }
    }

    /// Decodes a snapshot of another member. `None` if it does not match its metadata.
    pub fn received(meta: &SnapshotMeta, bytes: &[u8]) -> Option<Self> {
        let state: Self = postcard::from_bytes(bytes).ok()?;
        (state.applied == meta.last_log_id && state.membership == meta.last_membership).then_some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{StoreNode, Types, Vote};
    use crate::wire::{self, ConsensusQuery, QueryMessage, Rpc, StoreStamp};
    use lockkeeper_member::{
        Acquisition, Fence, HoldRecord, LockMode, LockName, MOST_TABLE_BYTES, MemberId, Node, Proof,
        RecordChange, RecordWrite, SessionId, Tag,
    };
    use openraft::CommittedLeaderId;

    fn view(epoch: u64, term: u64) -> View {
        let me = Node { id: MemberId(1), incarnation: 7 };
        View { since: vec![epoch], ..View::of_one(epoch, term, me) }
    }

    fn entry(term: u64, index: u64, payload: EntryPayload<Types>) -> Entry {
        Entry { log_id: LogId::new(CommittedLeaderId::new(term, 0), index), payload }
    }

    #[test]
    fn only_the_next_epoch_in_its_own_term_takes_effect() {
        let mut state = State::default();
        let mut propose = |index, term, proposed| {
            state.apply(entry(term, index, EntryPayload::Normal(Proposal::View(proposed))))
        };
        assert_eq!(propose(1, 3, view(1, 3)), Effect::Decided(view(1, 3)));
        assert_eq!(propose(2, 3, view(1, 3)), Effect::None, "the epoch is taken");
        assert_eq!(propose(3, 3, view(3, 3)), Effect::None, "an epoch is left out");
        assert_eq!(propose(4, 4, view(2, 3)), Effect::None, "a proposal of an old term");
        assert_eq!(propose(5, 4, view(2, 4)), Effect::Decided(view(2, 4)));
        assert_eq!(state.newest, view(2, 4));
    }

    #[test]
    fn only_the_first_view_starts_above_epoch_above() {
        let node = |epoch_above| StoreNode { epoch_above, ..Default::default() };
        let members = |above| {
            let nodes = std::collections::BTreeMap::from([(5, node(above))]);
            EntryPayload::Membership(openraft::Membership::new(vec![[5].into()], nodes))
        };
        let mut state = State::default();
        state.apply(entry(0, 0, members(41)));
        let mut decided = |index, proposed| {
            let entry = entry(1, index, EntryPayload::Normal(Proposal::View(proposed)));
            match state.apply(entry) {
                Effect::Decided(view) => view,
                other => panic!("{other:?}"),
            }
        };
        let first = decided(1, view(1, 1));
        assert_eq!((first.epoch, first.since), (42, vec![42]));
        assert_eq!(decided(3, view(43, 1)).epoch, 43);
        state.apply(entry(1, 2, members(90)));
    }

    /// The record that takes the most bytes of a snapshot in relation to its size: a short name, and large numbers.
    fn largest_record(number: u64, home: Node) -> RecordChange {
        let session = SessionId { client: u64::MAX, number: u64::MAX };
        RecordChange::Record(HoldRecord {
            acquisition: Acquisition { session, number: u64::MAX - number },
            hold: u64::MAX,
            lock: LockName::new("a"),
            mode: LockMode::Permit { of: u32::MAX },
            fence: Fence::new(Fence::LARGEST_EPOCH, Fence::LARGEST_CLOCK),
            ttl_ns: u64::MAX,
            longest_until_ms: Some(u64::MAX),
            since_ms: u64::MAX,
            tag: Tag::default(),
            proof: Proof([255; 16]),
            payload: Vec::new(),
            home,
            epoch: u64::MAX,
            adopted: true,
        })
    }

    #[test]
    fn a_full_table_of_recorded_holds_fits_into_the_message_of_a_snapshot() {
        let me = Node { id: MemberId(u32::MAX), incarnation: u64::MAX };
        let newest = View::of_one(u64::MAX, u64::MAX, me);
        let mut state = State { newest, ..State::default() };
        let mut sequence = 0;
        loop {
            let first = 1000 * sequence;
            sequence += 1;
            let changes = (first..first + 1000).map(|number| largest_record(number, me)).collect();
            let write = RecordWrite { home: me, epoch: u64::MAX, sequence, changes };
            if state.holds.apply(&write, &state.newest).contains(&RecordOutcome::Full) {
                break;
            }
        }
        assert!(state.holds.bytes() > MOST_TABLE_BYTES - 200, "{} bytes", state.holds.bytes());
        let bytes = postcard::to_allocvec(&state).unwrap();
        println!(
            "{} records, {} bytes, a snapshot of {}",
            state.holds.records().len(),
            state.holds.bytes(),
            bytes.len()
        );
        let rpc = Rpc::Snapshot { vote: Vote::new(u64::MAX, u64::MAX), meta: state.meta(), state: bytes };
        let query = ConsensusQuery::Raft { cluster: u64::MAX, to: u64::MAX, rpc };
        let stamp = StoreStamp { store: u64::MAX, start: u64::MAX, opened: u64::MAX, commits: u64::MAX };
        let message = wire::write(&QueryMessage { member: me.id, stamp, query }).expect("it fits");
        assert!(wire::read::<QueryMessage>(&message).is_ok());
    }
}
