//! The types that parameterise the Raft library.

use lockkeeper_member::{MemberId, RecordOutcome, RecordWrite, View};
use serde::{Deserialize, Serialize};
use std::io::Cursor;

/// The name of a store. Votes belong to stores.
pub(crate) type StoreName = u64;

/// An entry of the log: a proposed view, or a write to the table of recorded holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Proposal {
    View(View),
    Write(RecordWrite),
}

openraft::declare_raft_types!(
    /// Entries are views and writes, responses are the outcomes of writes, and nodes are stores.
    pub(crate) Types:
        D = Proposal,
        R = Vec<RecordOutcome>,
        NodeId = StoreName,
        Node = StoreNode,
        Entry = openraft::Entry<Types>,
        SnapshotData = Cursor<Vec<u8>>,
);

pub(crate) type Entry = openraft::Entry<Types>;
pub(crate) type LogId = openraft::LogId<StoreName>;
pub(crate) type Membership = openraft::StoredMembership<StoreName, StoreNode>;
pub(crate) type Metrics = openraft::RaftMetrics<StoreName, StoreNode>;
pub(crate) type Raft = openraft::Raft<Types>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<StoreName, StoreNode>;
pub(crate) type Vote = openraft::Vote<StoreName>;

/// The member and address of a store. It is part of the membership, so that addresses need not be configured at every
/// member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreNode {
    /// The member that the store belongs to.
    pub member: MemberId,
    /// The address of that member.
    pub address: String,
    /// The first view's epoch must be above this: after the loss of all disks, epochs must not be reused.
    pub epoch_above: u64,
    /// The last index of the log when the store was admitted. Of two stores of one member, the later one counts.
    pub since: u64,
}

impl Default for StoreNode {
    fn default() -> Self {
        Self { member: MemberId(0), address: String::new(), epoch_above: 0, since: 0 }
    }
}
