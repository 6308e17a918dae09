//! The choice of voters: the next change that the leader makes to the membership.
//!
//! There are as many voters as possible: an odd number, at most the number of members and at most the configured
//! maximum. A store gets a vote only if it is reachable and has caught up, so that no majority ever depends on a store
//! that still has to learn the log. Changes are made one at a time.

use super::types::{StoreName, StoreNode};
use lockkeeper_member::MemberId;
use std::collections::{BTreeMap, BTreeSet};

/// The membership as the leader sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaderMembership {
    /// The leader's own store.
    pub me: StoreName,
    /// The voters; two sets while a joint change is in progress.
    pub voters: Vec<BTreeSet<StoreName>>,
    /// All stores of the cluster.
    pub nodes: BTreeMap<StoreName, StoreNode>,
    /// Stores that have answered recently.
    pub live: BTreeSet<StoreName>,
    /// Stores that have not answered for so long that another store may get their vote.
    pub silent: BTreeSet<StoreName>,
    /// Stores that have nearly all of the log.
    pub caught_up: BTreeSet<StoreName>,
    /// Stores that request to join.
    pub joiners: BTreeMap<StoreName, StoreNode>,
    /// Members that an operator has removed.
    pub removed: BTreeSet<MemberId>,
    pub most_voters: usize,
    /// The leader is about to leave and is the only voter: another store is to get its vote, and to keep it.
    pub transfers_vote: bool,
}

/// One change of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MembershipChange {
    /// Makes exactly these stores voters.
    Voters(BTreeSet<StoreName>),
    /// Adds this store as a learner, or changes its address.
    StoreNode(StoreName, StoreNode),
    /// Removes these stores.
    Remove(BTreeSet<StoreName>),
}

impl LeaderMembership {
    /// The next change, if one is needed.
    pub fn next(&self) -> Option<MembershipChange> {
        // A leader may have crashed between the two phases of a joint change. It is completed first.
        if let [_, .., target] = self.voters.as_slice() {
            return Some(MembershipChange::Voters(target.clone()));
        }
        let present = self.voters.first()?;
        let target = self.target(present);
        if target != *present {
            return Some(MembershipChange::Voters(target));
        }
        let gone: BTreeSet<StoreName> = self
            .nodes
            .keys()
            .filter(|&&store| {
                !present.contains(&store) && (self.is_removed(store) || self.is_replaced(store))
            })
            .copied()
            .collect();
        if !gone.is_empty() {
            return Some(MembershipChange::Remove(gone));
        }
        let mut joiners = self.joiners.iter();
        joiners
            .find(|&(&store, node)| self.is_new(store, node))
            .map(|(&store, node)| MembershipChange::StoreNode(store, node.clone()))
    }

    /// Whether the store is not known at this address, and its member has not been removed.
    pub fn is_new(&self, store: StoreName, node: &StoreNode) -> bool {
        let known = self.nodes.get(&store);
        known.is_none_or(|known| known.address != node.address) && !self.removed.contains(&node.member)
    }

    fn is_removed(&self, store: StoreName) -> bool {
        self.nodes.get(&store).is_some_and(|node| self.removed.contains(&node.member))
    }

    /// Whether its member has a newer store, which has caught up.
    fn is_replaced(&self, store: StoreName) -> bool {
        let Some(node) = self.nodes.get(&store) else { return false };
        self.nodes.iter().any(|(&other, newer)| {
            newer.member == node.member && newer.since > node.since && self.can_vote(other)
        })
    }

    fn can_vote(&self, store: StoreName) -> bool {
        store == self.me || self.live.contains(&store) && self.caught_up.contains(&store)
    }

    fn target(&self, present: &BTreeSet<StoreName>) -> BTreeSet<StoreName> {
        let members: BTreeSet<MemberId> = self
            .nodes
            .values()
            .map(|node| node.member)
            .filter(|member| !self.removed.contains(member))
            .collect();
        // Preference: the leader, then reachable voters, then reachable learners, then unreachable voters. So no voter
        // loses its vote unless a reachable store takes its place.
        let rank = |store: StoreName| match (present.contains(&store), self.can_vote(store)) {
            _ if store == self.me => {
                if self.transfers_vote {
                    3
                } else {
                    0
                }
            }
            (true, _) if !self.silent.contains(&store) => 1,
            (false, true) => 2,
            (true, _) => 3,
            (false, false) => 4,
        };
        // Example: five members, at most three voters. Store 10 leads, 20 votes, 30 votes but is silent, 40 and 50 are
        // learners that have caught up: the ranks are 0, 1, 3, 2, 2. Stores 10, 20 and 40 get the votes.
        let mut able: Vec<(u8, MemberId, StoreName)> = self
            .nodes
            .iter()
            .filter(|&(&store, _)| !self.is_removed(store) && !self.is_replaced(store))
            .map(|(&store, node)| (rank(store), node.member, store))
            .filter(|&(rank, ..)| rank < 4)
            .collect();
        able.sort_unstable();
        // Two stores of one member never both vote.
        let mut seats = BTreeSet::new();
        able.retain(|&(_, member, _)| seats.insert(member));
        able.truncate(odd(self.most_voters.min(members.len()).min(able.len())));
        able.into_iter().map(|(.., store)| store).collect()
    }
}

/// The largest odd number up to this one. One more voter would make the majority larger without tolerating another
/// crash: 4 voters tolerate one, like 3.
pub(crate) fn odd(number: usize) -> usize {
    if number == 0 { 0 } else { number - (1 - number % 2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(member: u32, since: u64) -> StoreNode {
        StoreNode { member: MemberId(member), address: format!("m{member}"), epoch_above: 0, since }
    }

    /// Stores 10, 20, … of members 1, 2, …, all reachable and caught up.
    fn membership(members: u32, voters: &[StoreName]) -> LeaderMembership {
        let stores = (1..=members).map(|member| (u64::from(member) * 10, node(member, 0)));
        let nodes: BTreeMap<StoreName, StoreNode> = stores.collect();
        let all: BTreeSet<StoreName> = nodes.keys().copied().collect();
        LeaderMembership {
            me: 10,
            voters: vec![voters.iter().copied().collect()],
            nodes,
            live: all.clone(),
            caught_up: all,
            most_voters: 5,
            ..LeaderMembership::default()
        }
    }

    #[test]
    fn voters_grow_in_odd_steps_with_stores_that_have_caught_up() {
        assert_eq!(membership(2, &[10]).next(), None);
        assert_eq!(membership(3, &[10]).next(), Some(MembershipChange::Voters([10, 20, 30].into())));
        assert_eq!(
            membership(5, &[10, 20, 30]).next(),
            Some(MembershipChange::Voters([10, 20, 30, 40, 50].into()))
        );
        assert_eq!(membership(9, &[10, 20, 30, 40, 50]).next(), None);
        let mut slow = membership(3, &[10]);
        slow.caught_up.remove(&30);
        assert_eq!(slow.next(), None);
        let mut silent = membership(3, &[10]);
        silent.live.remove(&20);
        assert_eq!(silent.next(), None);
    }

    #[test]
    fn silent_voter_keeps_its_vote_until_another_store_can_take_it() {
        let mut silent = membership(3, &[10, 20, 30]);
        silent.live.remove(&30);
        assert_eq!(silent.next(), None);
        silent.silent.insert(30);
        assert_eq!(silent.next(), None);
        silent.nodes.insert(40, node(4, 7));
        silent.live.insert(40);
        assert_eq!(silent.next(), None, "has not caught up");
        silent.caught_up.insert(40);
        assert_eq!(silent.next(), Some(MembershipChange::Voters([10, 20, 40].into())));
    }

    #[test]
    fn new_store_of_a_member_replaces_its_old_one() {
        let mut lost = membership(3, &[10, 20, 30]);
        lost.live.remove(&30);
        lost.joiners.insert(31, node(3, 7));
        assert_eq!(lost.next(), Some(MembershipChange::StoreNode(31, node(3, 7))));
        lost.nodes.insert(31, node(3, 7));
        assert_eq!(lost.next(), None);
        lost.live.insert(31);
        lost.caught_up.insert(31);
        assert_eq!(lost.next(), Some(MembershipChange::Voters([10, 20, 31].into())));
        lost.voters = vec![[10, 20, 31].into()];
        assert_eq!(lost.next(), Some(MembershipChange::Remove([30].into())));
        lost.nodes.remove(&30);
        assert_eq!(lost.next(), None);
    }

    #[test]
    fn removed_member_loses_its_vote_and_then_its_place() {
        let mut dead = membership(4, &[10, 20, 30]);
        dead.removed.insert(MemberId(3));
        dead.live.remove(&30);
        dead.joiners.insert(31, node(3, 9));
        assert_eq!(dead.next(), Some(MembershipChange::Voters([10, 20, 40].into())));
        dead.voters = vec![[10, 20, 40].into()];
        assert_eq!(dead.next(), Some(MembershipChange::Remove([30].into())));
        dead.nodes.remove(&30);
        assert_eq!(dead.next(), None);
        // From three to two members: one voter, the leader.
        let mut three = membership(3, &[10, 20, 30]);
        three.removed.insert(MemberId(2));
        assert_eq!(three.next(), Some(MembershipChange::Voters([10].into())));
    }

    #[test]
    fn only_voter_that_leaves_transfers_its_vote_to_a_ready_store() {
        let mut leaving = LeaderMembership { transfers_vote: true, ..membership(2, &[10]) };
        assert_eq!(leaving.next(), Some(MembershipChange::Voters([20].into())));
        leaving.voters = vec![[20].into()];
        assert_eq!(leaving.next(), None, "it is not taken back");
        leaving.voters = vec![[10].into()];
        leaving.caught_up.remove(&20);
        assert_eq!(leaving.next(), None);
        assert_eq!(LeaderMembership { transfers_vote: true, ..membership(1, &[10]) }.next(), None);
    }

    #[test]
    fn unfinished_joint_change_is_completed_first() {
        let mut joint = membership(5, &[10]);
        joint.voters.push([10, 20, 30].into());
        assert_eq!(joint.next(), Some(MembershipChange::Voters([10, 20, 30].into())));
    }

    #[test]
    fn changed_address_is_put_into_the_membership() {
        let mut moved = membership(3, &[10, 20, 30]);
        moved.joiners.insert(20, StoreNode { address: "elsewhere".to_string(), ..node(2, 5) });
        assert!(
            matches!(moved.next(), Some(MembershipChange::StoreNode(20, node)) if node.address == "elsewhere")
        );
        moved.joiners.insert(20, node(2, 5));
        assert_eq!(moved.next(), None);
    }

    /// Checks in every small situation: a store that gets a vote is reachable and has caught up; the leader keeps its
    /// vote; the number of voters is odd; and a reachable majority stays reachable.
    #[test]
    fn no_change_makes_a_majority_depend_on_a_store_that_is_not_ready() {
        let mut changes = 0;
        for bits in 0..(1_u32 << 13) {
            let bit = |at: u32| bits >> at & 1 == 1;
            let mut some = membership(5, &[10]);
            for (at, store) in [20, 30, 40, 50].into_iter().enumerate() {
                let at = at as u32;
                if bit(at) {
                    some.voters[0].insert(store);
                }
                if bit(4 + at) {
                    some.live.remove(&store);
                    some.silent.insert(store);
                }
                if bit(8 + at) {
                    some.caught_up.remove(&store);
                }
            }
            if bit(12) {
                some.removed.insert(MemberId(3));
            }
            let before = some.voters[0].clone();
            let Some(MembershipChange::Voters(after)) = some.next() else { continue };
            changes += 1;
            assert!(after.contains(&10) && after.len() % 2 == 1 && after.len() <= 5, "{some:?}: {after:?}");
            assert!(after.difference(&before).all(|&store| some.can_vote(store)), "{some:?}: {after:?}");
            let here = |voters: &BTreeSet<StoreName>| {
                2 * voters.iter().filter(|&store| some.live.contains(store)).count() > voters.len()
            };
            assert!(!here(&before) || here(&after), "{some:?}: {after:?}");
        }
        assert!(changes > 1000, "{changes}");
    }
}
