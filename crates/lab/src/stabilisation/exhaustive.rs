//! All states of a small ring, and the worst choice of the daemon in each of them.
//!
//! The steps between states that are not legitimate form a graph. If it has a cycle, a daemon can keep the ring from
//! stabilising for ever. If it has none, the longest path through it is the exact worst case.

use super::{Daemon, Ring};
use serde::Serialize;

/// The largest number of states that are explored.
pub const MOST_STATES: u64 = 20_000_000;

/// The verdict on all states of a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Number of states, K^N.
    pub states: u64,
    /// Number of legitimate states.
    pub legitimate: u64,
    /// The largest number of moves until a legitimate state, over all states and all choices of the daemon. `None` if
    /// the ring does not always stabilise.
    pub most_moves: Option<u64>,
    /// A state from which the daemon can reach that number.
    pub worst: Vec<u32>,
    /// States that are not legitimate and that the daemon can repeat for ever; empty if there are none.
    pub cycle: Vec<Vec<u32>>,
    /// A state without a privilege, if there is one.
    pub dead: Option<Vec<u32>>,
    /// A legitimate state that is followed by another one, if there is one.
    pub not_closed: Option<Vec<u32>>,
    /// A legitimate state from which the privilege does not visit every machine, if there is one.
    pub not_fair: Option<Vec<u32>>,
}

impl Verdict {
    /// Whether the ring is self-stabilising.
    pub fn stabilises(&self) -> bool {
        let wrong = self.dead.is_some() || self.not_closed.is_some() || self.not_fair.is_some();
        self.cycle.is_empty() && !wrong
    }
}

/// Explores all states of a ring; `None` if there are more than [`MOST_STATES`].
pub fn explore(ring: &dyn Ring, daemon: Daemon) -> Option<Verdict> {
    let machines = u32::try_from(ring.machines()).ok()?;
    let states = u64::from(ring.states()).checked_pow(machines).filter(|&states| states <= MOST_STATES)?;
    let mut search = Search {
        ring,
        daemon,
        progress: vec![Progress::Unseen; states as usize],
        longest: vec![0; states as usize],
    };
    let mut verdict = Verdict {
        states,
        legitimate: 0,
        most_moves: Some(0),
        worst: Vec::new(),
        cycle: Vec::new(),
        dead: None,
        not_closed: None,
        not_fair: None,
    };
    for index in 0..states as usize {
        let numbers = search.numbers(index);
        match ring.privileged(&numbers)[..] {
            [] => verdict.dead = verdict.dead.or(Some(numbers)),
            [_] => {
                verdict.legitimate += 1;
                search.check_legitimate(numbers, &mut verdict);
            }
            _ => {}
        }
    }
    for index in 0..states as usize {
        if let Err(cycle) = search.visit(index) {
            verdict.cycle = cycle.into_iter().map(|index| search.numbers(index)).collect();
            verdict.most_moves = None;
            return Some(verdict);
        }
        let moves = u64::from(search.longest[index]);
        if verdict.worst.is_empty() || verdict.most_moves < Some(moves) {
            verdict.most_moves = Some(moves);
            verdict.worst = search.numbers(index);
        }
    }
    verdict.most_moves = verdict.most_moves.filter(|_| verdict.dead.is_none());
    Some(verdict)
}

/// How far the search has got with a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Unseen,
    OnPath,
    Done,
}

/// A state on the current path of a search, with the successors that are left.
struct Frame {
    index: usize,
    /// The successors, each with the number of moves.
    left: Vec<(usize, u32)>,
}

struct Search<'a> {
    ring: &'a dyn Ring,
    daemon: Daemon,
    progress: Vec<Progress>,
    /// For each state, the longest path from it that was found so far, in moves.
    longest: Vec<u32>,
}

impl Search<'_> {
    /// The numbers of a state. A state is the number whose digits to the base K they are.
    fn numbers(&self, index: usize) -> Vec<u32> {
        let (mut rest, base) = (index as u64, u64::from(self.ring.states()));
        let mut digit = || {
            let digit = rest % base;
            rest /= base;
            digit as u32
        };
        (0..self.ring.machines()).map(|_| digit()).collect()
    }

    fn index(&self, numbers: &[u32]) -> usize {
        let base = u64::from(self.ring.states());
        numbers.iter().rev().fold(0, |index, &number| index * base + u64::from(number)) as usize
    }

    /// Follows the privilege of a legitimate state once round the ring.
    fn check_legitimate(&self, start: Vec<u32>, verdict: &mut Verdict) {
        let machines = self.ring.machines();
        let (mut numbers, mut moved) = (start.clone(), vec![false; machines]);
        for _ in 0..machines {
            let [machine] = self.ring.privileged(&numbers)[..] else {
                verdict.not_closed.get_or_insert(start);
                return;
            };
            moved[machine] = true;
            numbers = self.ring.moved(&numbers, &[machine]);
        }
        if moved.contains(&false) {
            verdict.not_fair.get_or_insert(start);
        }
    }

    /// Computes the longest path from a state; an error has the states of a cycle.
    fn visit(&mut self, start: usize) -> Result<(), Vec<usize>> {
        let mut path = Vec::new();
        if self.progress[start] == Progress::Unseen {
            path.push(self.begin(start));
        }
        while let Some(frame) = path.last_mut() {
            let Some((next, moves)) = frame.left.last().copied() else {
                self.progress[frame.index] = Progress::Done;
                path.pop();
                continue;
            };
            match self.progress[next] {
                Progress::Unseen => path.push(self.begin(next)),
                Progress::OnPath => {
                    let cycle = path.iter().map(|frame| frame.index).skip_while(|&index| index != next);
                    return Err(cycle.collect());
                }
                Progress::Done => {
                    frame.left.pop();
                    let through = moves + self.longest[next];
                    let longest = &mut self.longest[frame.index];
                    *longest = through.max(*longest);
                }
            }
        }
        Ok(())
    }

    /// Puts a state on the path. A state with at most one privilege has no successors: the run ends there.
    fn begin(&mut self, index: usize) -> Frame {
        self.progress[index] = Progress::OnPath;
        let numbers = self.numbers(index);
        let privileged = self.ring.privileged(&numbers);
        let successor =
            |moving: Vec<usize>| (self.index(&self.ring.moved(&numbers, &moving)), moving.len() as u32);
        let left = match self.daemon {
            _ if privileged.len() <= 1 => Vec::new(),
            Daemon::Central => privileged.iter().map(|&machine| successor(vec![machine])).collect(),
            Daemon::Synchronous => vec![successor(privileged)],
            Daemon::Distributed => {
                let subset = |bits: u32| {
                    let chosen = privileged.iter().enumerate().filter(|(place, _)| bits >> place & 1 == 1);
                    successor(chosen.map(|(_, &machine)| machine).collect())
                };
                (1..1 << privileged.len()).map(subset).collect()
            }
        };
        Frame { index, left }
    }
}
