//! Views: the sets of members that the voters decided.

use crate::{ClusterSettings, Inherited, MemberId, Node};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use lockkeeper_core::SiteId;
use serde::{Deserialize, Serialize};

/// A view. There is one for each epoch, decided by a majority of the voters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct View {
    /// The view's number: one more than that of the previous view.
    pub epoch: u64,
    /// The members, sorted. A member's index is its site in every algorithm of the epoch.
    pub members: Vec<Node>,
    /// For each member, the epoch since which it has been in every view.
    pub since: Vec<u64>,
    /// The only member that may start the view: the leader that proposed it.
    pub coordinator: Node,
    /// The term in which that leader proposed the view.
    pub term: u64,
    /// Excluded members that may still hold locks: the view does not start before their leases have expired. Members
    /// that left as planned are not listed.
    pub missing: Vec<Node>,
    /// The settings that all members of the view use.
    pub settings: ClusterSettings,
    /// The largest settings of earlier views that may still be in force.
    pub inherited: Inherited,
    /// Whether no earlier view is known to have started: the cluster is new, or was founded again after the loss of
    /// all disks. The holders in a lost cluster are unknown, so the start waits for one lease.
    pub founding: bool,
}

/// A leader's proposal for the next view.
pub(crate) struct Proposal<'a> {
    pub members: Vec<Node>,
    /// Members that left as planned: they have no holds.
    pub departed: &'a BTreeSet<Node>,
    pub coordinator: Node,
    pub term: u64,
    /// Whether the present view is known to have started.
    pub started: bool,
    pub settings: ClusterSettings,
    pub inherited: Inherited,
}

impl View {
    /// The view before the first one, without members.
    pub fn none() -> Self {
        let no_node = Node { id: MemberId(0), incarnation: 0 };
        Self {
            epoch: 0,
            members: Vec::new(),
            since: Vec::new(),
            coordinator: no_node,
            term: 0,
            missing: Vec::new(),
            settings: ClusterSettings::default(),
            inherited: Inherited::default(),
            founding: true,
        }
    }

    /// The view that follows this one. If this one is not known to have started, its missing members stay missing.
    pub(crate) fn next(&self, proposal: Proposal<'_>) -> Self {
        let Proposal { mut members, departed, coordinator, term, started, settings, inherited } = proposal;
        members.sort_unstable();
        let mut missing = self.members.clone();
        if !started {
            missing.extend(&self.missing);
        }
        missing.retain(|node| !members.contains(node) && !departed.contains(node));
        missing.sort_unstable();
        missing.dedup();
        let epoch = self.epoch + 1;
        let since = members.iter().map(|&node| self.since(node).unwrap_or(epoch)).collect();
        let founding = self.founding && !started;
        Self { epoch, members, since, coordinator, term, missing, settings, inherited, founding }
    }

    /// The epoch since which the node has been in every view; `None` if it is not in this one. An incarnation that
    /// was excluded in between must not come back, even if a late request of it to join arrives: its lease was waited
    /// for, and other clients may hold the locks that its clients held.
    pub fn since(&self, node: Node) -> Option<u64> {
        self.site(node).and_then(|site| self.since.get(site.index()).copied())
    }

    /// A view with one member, for tests of code that only forwards views.
    pub fn of_one(epoch: u64, term: u64, node: Node) -> Self {
        Self {
            epoch,
            members: Vec::from([node]),
            since: Vec::from([1]),
            coordinator: node,
            term,
            ..Self::none()
        }
    }

    /// The site of a node in the algorithms of this view.
    pub fn site(&self, node: Node) -> Option<SiteId> {
        self.members.binary_search(&node).ok().map(SiteId::new)
    }

    /// The incarnation of this member that is in the view.
    pub fn node(&self, id: MemberId) -> Option<Node> {
        self.members.iter().copied().find(|node| node.id == id)
    }

    /// Whether the node is in the view.
    pub fn has(&self, node: Node) -> bool {
        self.site(node).is_some()
    }
}
