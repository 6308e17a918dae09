//! # Dijkstra's self-stabilising ring
//!
//! Edsger W. Dijkstra: *Self-stabilizing Systems in Spite of Distributed Control*. Communications of the ACM 17(11),
//! 1974, pages 643–644; the solution with K-state machines.
//!
//! **Idea.** Each machine of a ring has a number below K and reads that of its left neighbour. The bottom machine S1
//! has the privilege, which is the right to enter, if its number equals that of its left neighbour SN, and then adds 1
//! modulo K. Any other machine has it if the numbers differ, and then copies the number of its neighbour. From any
//! numbers at all, the ring reaches a state with exactly one privilege, which then goes round for ever.
//!
//! **Assumes** that a machine reads the number of its neighbour and changes its own in one atomic move; at least as
//! many numbers as machines.
//!
//! **Cost.** At most 3N(N−1)/2 moves from any state. Machine i+1 copies each number of machine i at most once, and one
//! number of its own beginning: if S1 has moved b times, machine i (from 0) has moved at most b + i times. The N−1
//! other machines leave one of the next N numbers of S1 unused, which S1 takes after at most N−1 moves. S1 moves again
//! only when this number has reached all others, and then the state is legitimate. So there were at most N−1 moves of
//! S1, and (N−1) + i of machine i, which is the sum.
//!
//! **Pitfalls.** With too few numbers, S1 may take a number that another machine still has, and the privileges chase
//! each other round for ever. Without a bottom machine, all equal numbers are a state without a privilege.

use super::Ring;

/// Dijkstra's ring of K-state machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KState {
    /// Number of machines, N.
    pub machines: usize,
    /// Number of states of a machine, K.
    pub states: u32,
}

impl Ring for KState {
    fn machines(&self) -> usize {
        self.machines
    }

    fn states(&self) -> u32 {
        self.states
    }

    fn next(&self, numbers: &[u32], machine: usize) -> Option<u32> {
        let (own, left) = (numbers[machine], numbers[(machine + self.machines - 1) % self.machines]);
        if machine == 0 {
            // Example with K = 4: S1 has 3 and S5, its left neighbour, has 3: S1 takes 0.
            (own == left).then(|| (own + 1) % self.states)
        } else {
            (own != left).then_some(left)
        }
    }
}

impl KState {
    /// The largest number of moves from any state to a legitimate one, if there are enough numbers.
    pub fn most_moves(&self) -> Option<u64> {
        let n = self.machines as u64;
        (u64::from(self.states) >= n).then(|| 3 * n * (n - 1) / 2)
    }
}
