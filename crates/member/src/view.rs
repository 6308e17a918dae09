//! Views: who is here, as the voters decided it.

use crate::{MemberId, Node};
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
    /// Who alone may start it: the leader that proposed it...
    pub coordinator: Node,
    /// ... in this term of its leadership and no other.
    pub term: u64,
    /// Who may hold locks and is not in the view: nobody is let in until their leases are over.
    pub missing: Vec<Node>,
}

impl View {
    /// The view before the first one: nobody.
    pub fn none() -> Self {
        let nobody = Node { id: MemberId(0), incarnation: 0 };
        Self { epoch: 0, members: Vec::new(), coordinator: nobody, term: 0, missing: Vec::new() }
    }

    /// The view that follows this one. `started` tells whether this one is known to have started; if not, whoever was
    /// missing in it is missing still.
    pub(crate) fn next(&self, mut members: Vec<Node>, coordinator: Node, term: u64, started: bool) -> Self {
        members.sort_unstable();
        let mut missing = self.members.clone();
        if !started {
            missing.extend(&self.missing);
        }
        missing.retain(|node| !members.contains(node));
        missing.sort_unstable();
        missing.dedup();
        Self { epoch: self.epoch + 1, members, coordinator, term, missing }
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
