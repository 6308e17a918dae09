//! Peterson, "Myths about the mutual exclusion problem", IPL 12(3), 1981: two processes; here N slots as a tournament
//! (Peterson and Fischer, STOC 1977).
//!
//! **Idea.** A slot announces itself by `flag`, gives the other side the `turn`, and waits while the other side is
//! announced and has the turn. For more than two slots, the slots are the leaves of a tree: a slot plays at each node
//! on its path to the root, for the side on which it comes, and is inside when it has won at the root. A node whose
//! other side has no slots is passed without a game.
//!
//! **Registers.** For each node: `flag[0]` and `flag[1]`, each written by one side; `turn`, written by both.
//!
//! **Guarantees** that at most one slot is inside and that every slot enters: at each node it waits for at most one
//! entry of the other side. Two slots enter first come, first served; more do not, because paths are overtaken.
//!
//! **Pitfalls.** `turn` is written after `flag`: in the other order, both sides enter. A slot lowers its flags from the
//! root downwards: once its leaf is free, another slot may come up on the same side.

use crate::algorithm::{About, Algorithm, FAMILY, Sealed};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Padded, each, write_before_read};
use crate::wait_strategy::{WaitEnded, WaitStrategy};

/// The nodes of the tournament.
#[derive(Debug)]
pub struct Peterson {
    /// The nodes, as in a heap: the root is number 1, and the children of node n are 2n and 2n + 1.
    nodes: Box<[Padded<Node>]>,
    /// For each slot the number of games that it has entered. Only the slot itself uses it.
    games: Box<[Padded<AtomicUsize>]>,
    /// The number of leaves of the tree: the power of two that is not lower than the number of slots.
    leaves: usize,
}

#[derive(Debug, Default)]
struct Node {
    flag: [AtomicBool; 2],
    turn: AtomicUsize,
}

impl Peterson {
    /// The games on a slot's path to the root: the node, and the side for which the slot plays.
    fn path(&self, me: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (leaves, slots) = (self.leaves, self.games.len());
        let up = std::iter::successors(Some(leaves + me), |at| Some(at / 2)).take_while(|&at| at > 1);
        up.enumerate().filter_map(move |(height, at)| {
            // Example: three slots, four leaves. The sibling of slot 2's leaf (6) is 7, the leaf of no slot.
            let first_leaf = ((at ^ 1) << height) - leaves;
            (first_leaf < slots).then_some((at / 2, at % 2))
        })
    }

    /// The trying protocol. The fences are arguments, so that a test can omit one and observe two slots inside.
    pub(crate) fn try_to_enter(
        &self,
        me: usize,
        strategy: &mut impl WaitStrategy,
        after_flag: impl Fn(),
        after_turn: impl Fn(),
    ) -> Result<(), WaitEnded> {
        for (game, (node, side)) in self.path(me).enumerate() {
            let Node { flag, turn } = &self.nodes[node].0;
            self.games[me].0.store(game + 1, Ordering::Relaxed);
            // Release, both: the other side may enter on reading either of them, and must see the critical sections
            // of this side before it.
            flag[side].store(true, Ordering::Release);
            // If the other side writes `turn` later, it sees the flag: that write comes after this fence, and its read
            // of the flag after its second fence.
            after_flag();
            turn.store(1 - side, Ordering::Release);
            // Of two sides, the one whose fence comes later sees the other's flag and `turn`.
            after_turn();
            // Acquire: pairs with the releases here and in `leave`.
            while flag[1 - side].load(Ordering::Acquire) && turn.load(Ordering::Acquire) != side {
                strategy.pause()?;
            }
        }
        Ok(())
    }

    fn leave(&self, me: usize) {
        let games = self.games[me].0.swap(0, Ordering::Relaxed);
        for game in (0..games).rev() {
            if let Some((node, side)) = self.path(me).nth(game) {
                // Release: the other side enters on this write, and must see the critical section before it.
                self.nodes[node].0.flag[side].store(false, Ordering::Release);
            }
        }
    }
}

impl Sealed for Peterson {}

impl Algorithm for Peterson {
    const ABOUT: About = About {
        slug: "peterson",
        title: "Peterson's tournament",
        family: FAMILY,
        paper: "G. L. Peterson, Myths about the mutual exclusion problem, IPL 12(3), 1981; tournament: G. L. Peterson \
                and M. J. Fischer, STOC 1977",
        idea: "announce yourself, give the turn to the other side, wait while it is announced and has the turn; for \
               more than two, win each game up to the root of a tree",
        needs: "reads and writes of registers, one of which both sides write",
        fairness: "every thread enters; two enter first come, first served",
        source: include_str!("peterson.rs"),
    };

    fn new(slots: usize) -> Self {
        let leaves = slots.next_power_of_two();
        Self { nodes: each(leaves), games: each(slots), leaves }
    }

    fn enter(&self, me: usize, strategy: &mut impl WaitStrategy) -> Result<(), WaitEnded> {
        self.try_to_enter(me, strategy, write_before_read, write_before_read)
    }

    fn exit(&self, me: usize) {
        self.leave(me);
    }

    fn withdraw(&self, me: usize) {
        // `turn` may continue to favour the other side, or this one: without the flag, no side waits.
        self.leave(me);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn peterson_paths_lead_to_the_root_and_skip_nodes_without_an_opponent() {
        let path = |slots, me| Peterson::new(slots).path(me).collect::<Vec<_>>();
        assert_eq!(path(1, 0), []);
        assert_eq!([path(2, 0), path(2, 1)], [[(1, 0)], [(1, 1)]]);
        assert_eq!(
            [path(3, 0), path(3, 1), path(3, 2)],
            [vec![(2, 0), (1, 0)], vec![(2, 1), (1, 0)], vec![(1, 1)]]
        );
        assert_eq!(path(5, 4), [(1, 1)]);
        // Two slots meet at exactly one node on different sides.
        for slots in 2..20 {
            for (a, b) in (0..slots).flat_map(|a| (0..a).map(move |b| (a, b))) {
                let meets = path(slots, a)
                    .iter()
                    .filter(|(node, side)| path(slots, b).contains(&(*node, 1 - side)))
                    .count();
                assert_eq!(meets, 1, "{slots} slots, {a} and {b}");
            }
        }
    }
}
