//! Views: who is here, as the voters decided it.

use crate::{MemberId, Node};
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
        }
    }

    /// The view that follows this one. `started` tells whether this one is known to have started; if not, whoever was
    /// missing in it is missing still. Whoever has `departed` in order holds nothing.
    pub(crate) fn next(
        &self,
        mut members: Vec<Node>,
        departed: &BTreeSet<Node>,
        coordinator: Node,
        term: u64,
        started: bool,
    ) -> Self {
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
        Self { epoch, members, since, coordinator, term, missing }
    }

    /// Since which epoch the node has been in every view, if it is in this one. A life that was left out in between has been waited
    /// for, and others may hold what it held: it must not come back, even if a late wish of it to join was heard.
    pub fn since(&self, node: Node) -> Option<u64> {
        self.site(node).and_then(|site| self.since.get(site.index()).copied())
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
