//! Views: who is here, as the voters decided it.

use crate::{ClusterSettings, Inherited, MemberId, Node};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use lockkeeper_core::SiteId;
use serde::{Deserialize, Serialize};

/// One view. There is one for each epoch, decided by a majority of the voters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct View {
    /// Its number: one more than that of the view before.
    pub epoch: u64,
    /// Who is in it, sorted. A member's place here is its site in every algorithm of the epoch.
    pub members: Vec<Node>,
    /// Since which epoch each of them has been in every view.
    pub since: Vec<u64>,
    /// Who alone may start it: the leader that proposed it...
    pub coordinator: Node,
    /// ... in this term of its leadership and no other.
    pub term: u64,
    /// Who may hold locks and is not in the view: nobody is let in until their leases are over. Whoever left in order is not here.
    pub missing: Vec<Node>,
    /// What its members agree on.
    pub settings: ClusterSettings,
    /// What may still be in force of the views before.
    pub inherited: Inherited,
    /// No view before this one is known to have started: the cluster is new, or was founded again after the loss of all disks.
    /// Nothing tells then who holds locks of a lost cluster, so the start waits for one lease.
    pub founding: bool,
}

/// What a leader proposes for the next view.
pub(crate) struct Proposal<'a> {
    pub members: Vec<Node>,
    /// Members that left in order: they hold nothing.
    pub departed: &'a BTreeSet<Node>,
    pub coordinator: Node,
    pub term: u64,
    /// Whether the present view is known to have started.
    pub started: bool,
    pub settings: ClusterSettings,
    pub inherited: Inherited,
}

impl View {
    /// The view before the first one: nobody.
    pub fn none() -> Self {
        let nobody = Node { id: MemberId(0), incarnation: 0 };
        Self {
            epoch: 0,
            members: Vec::new(),
            since: Vec::new(),
            coordinator: nobody,
            term: 0,
            missing: Vec::new(),
            settings: ClusterSettings::default(),
            inherited: Inherited::default(),
            founding: true,
        }
    }

    /// The view that follows this one. If this one is not known to have started, members that are missing in it are missing
    /// still.
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

    /// Since which epoch the node has been in every view, if it is in this one. A life that was left out in between has been waited
    /// for, and others may hold what it held: it must not come back, even if a late wish of it to join was heard.
    pub fn since(&self, node: Node) -> Option<u64> {
        self.site(node).and_then(|site| self.since.get(site.index()).copied())
    }

    /// A view with one member, for tests of code that only passes views on.
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

    /// The site that a node plays.
    pub fn site(&self, node: Node) -> Option<SiteId> {
        self.members.binary_search(&node).ok().map(SiteId::new)
    }

    /// The node in the view with that number.
    pub fn node(&self, id: MemberId) -> Option<Node> {
        self.members.iter().copied().find(|node| node.id == id)
    }

    /// Whether the node is in the view.
    pub fn has(&self, node: Node) -> bool {
        self.site(node).is_some()
    }
}
