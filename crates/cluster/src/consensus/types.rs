//! What the Raft library works with.

use lockkeeper_member::{MemberId, View};
use serde::{Deserialize, Serialize};
use std::io::Cursor;

/// The name of a store: what has a vote.
pub(crate) type StoreName = u64;

openraft::declare_raft_types!(
    /// Views are proposed; nothing is answered; a voter is a store.
    pub(crate) Types:
        D = View,
        R = (),
        NodeId = StoreName,
        Node = Place,
        Entry = openraft::Entry<Types>,
        SnapshotData = Cursor<Vec<u8>>,
);

pub(crate) type Entry = openraft::Entry<Types>;
pub(crate) type LogId = openraft::LogId<StoreName>;
pub(crate) type Membership = openraft::StoredMembership<StoreName, Place>;
pub(crate) type Metrics = openraft::RaftMetrics<StoreName, Place>;
pub(crate) type Raft = openraft::Raft<Types>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<StoreName, Place>;
pub(crate) type Vote = openraft::Vote<StoreName>;

/// Where a store is. Travels with the membership, so that nobody needs to be configured twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Whose store it is.
    pub member: MemberId,
    /// Where that member is reached.
    pub address: String,
    /// The first view's epoch must be above this: after the loss of all disks, epochs must not come again.
    pub epoch_above: u64,
    /// The end of the log when it was let in. Of two stores of one member, the later one counts.
    pub since: u64,
}

impl Default for Place {
    fn default() -> Self {
        Self { member: MemberId(0), address: String::new(), epoch_above: 0, since: 0 }
    }
}
