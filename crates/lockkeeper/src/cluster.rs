//! Operations that only a cluster of lockkeeper's own daemons offers, for its operators.

pub use crate::engine::cluster::{Operator, probe};

use lockkeeper_session::protocol::{ClusterLine, MemberLine};
use serde::Serialize;

/// The state of a cluster as one of its daemons sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The cluster's name.
    pub cluster: String,
    /// The algorithm of its locks.
    pub algorithm: String,
    /// The number of the member that reports this.
    pub member: u32,
    /// Whether that member grants locks.
    pub serves: bool,
    /// The reason why it does not grant locks or does not take part. `None` if it does both.
    pub trouble: Option<String>,
    /// The epoch of its view; 0 if it is in no view.
    pub epoch: u64,
    /// The remaining time of its lease, in milliseconds.
    pub lease_ms: u64,
    /// The leader of the voters, if it knows one.
    pub leader: Option<u32>,
    /// All members known to the cluster.
    pub members: Vec<MemberStatus>,
    /// The settings that all members share, as pairs like `lease` and `1200ms`.
    pub settings: Vec<(String, String)>,
}

/// The state of one member as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemberStatus {
    /// The member's number.
    pub id: u32,
    /// The address on which other members reach it; `none` if it does not listen for members.
    pub address: String,
    /// Whether it votes on views.
    pub votes: bool,
    /// Whether it is in the view.
    pub in_view: bool,
    /// Whether the reporting member has a connection to it now.
    pub connected: bool,
}

// The messages of the protocol are not part of this API: they change with the protocol's version.
impl ClusterStatus {
    pub(crate) fn of(line: ClusterLine) -> ClusterStatus {
        let ClusterLine {
            cluster,
            algorithm,
            member,
            serves,
            trouble,
            epoch,
            lease_ms,
            leader,
            members,
            settings,
        } = line;
        let members = members.into_iter().map(MemberStatus::of).collect();
        ClusterStatus {
            cluster,
            algorithm,
            member,
            serves,
            trouble,
            epoch,
            lease_ms,
            leader,
            members,
            settings,
        }
    }
}

impl MemberStatus {
    fn of(line: MemberLine) -> MemberStatus {
        let MemberLine { id, address, votes, in_view, connected } = line;
        MemberStatus { id, address, votes, in_view, connected }
    }
}
