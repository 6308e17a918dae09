//! Runs of a ring from random states.

use super::{Daemon, Ring};
use crate::parallel;
use crate::simulator::rng::{Purpose, Rng};
use serde::Serialize;

/// The measurements of several runs, with successive seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stabilisation {
    /// Number of runs.
    pub runs: u64,
    /// Number of runs that reached a legitimate state.
    pub stabilised: u64,
    /// The mean number of moves until then. `None` if no run got there.
    pub mean_moves: Option<f64>,
    /// The largest number of moves until then.
    pub most_moves: u64,
    /// The largest number of steps until then. In a step, several machines may move, as the daemon chooses.
    pub most_steps: u64,
    /// The first violation after stabilisation, in a sentence: the ring left the legitimate states, or a machine got no
    /// privilege while the others did.
    pub violation: Option<String>,
}

/// The result of one run.
struct Outcome {
    stabilised: bool,
    moves: u64,
    steps: u64,
    violation: Option<String>,
}

/// Runs a ring from random states with these seeds, each for at most `limit` steps, on all cores. The result does not
/// depend on their number.
pub fn simulate(ring: &dyn Ring, daemon: Daemon, seed: u64, seeds: u64, limit: u64) -> Stabilisation {
    let runs = seeds.min(u64::MAX - seed);
    let one = |offset: usize| run(ring, daemon, seed + offset as u64, limit);
    let outcomes = parallel::map(runs as usize, &one);
    let stable = || outcomes.iter().filter(|outcome| outcome.stabilised);
    let stabilised = stable().count() as u64;
    let moves: u64 = stable().map(|outcome| outcome.moves).sum();
    Stabilisation {
        runs,
        stabilised,
        mean_moves: (stabilised > 0).then(|| moves as f64 / stabilised as f64),
        most_moves: stable().map(|outcome| outcome.moves).max().unwrap_or(0),
        most_steps: stable().map(|outcome| outcome.steps).max().unwrap_or(0),
        violation: outcomes.iter().find_map(|outcome| outcome.violation.clone()),
    }
}

fn run(ring: &dyn Ring, daemon: Daemon, seed: u64, limit: u64) -> Outcome {
    let mut rng = Rng::new(seed, Purpose::Stabilisation);
    let start = (0..ring.machines()).map(|_| rng.below(ring.states() as usize) as u32);
    let mut numbers: Vec<u32> = start.collect();
    let (mut moves, mut steps) = (0, 0);
    loop {
        let privileged = ring.privileged(&numbers);
        let stabilised = privileged.len() == 1;
        if stabilised || privileged.is_empty() || steps == limit {
            let violation = stabilised.then(|| after(ring, numbers)).flatten();
            return Outcome { stabilised, moves, steps, violation };
        }
        let moving = choose(daemon, privileged, &mut rng);
        moves += moving.len() as u64;
        steps += 1;
        numbers = ring.moved(&numbers, &moving);
    }
}

fn choose(daemon: Daemon, privileged: Vec<usize>, rng: &mut Rng) -> Vec<usize> {
    match daemon {
        Daemon::Central => vec![*rng.pick(&privileged)],
        Daemon::Synchronous => privileged,
        Daemon::Distributed => {
            let one = *rng.pick(&privileged);
            let moves = |machine: &usize| *machine == one || rng.chance(0.5);
            privileged.into_iter().filter(moves).collect()
        }
    }
}

/// Follows the only privilege of a legitimate state twice round the ring; returns a violation in that time.
fn after(ring: &dyn Ring, mut numbers: Vec<u32>) -> Option<String> {
    let machines = ring.machines();
    let mut moved = vec![false; machines];
    for _ in 0..2 * machines {
        let privileged = ring.privileged(&numbers);
        let [machine] = privileged[..] else {
            return Some(format!("after a legitimate state, there are {} privileges", privileged.len()));
        };
        moved[machine] = true;
        numbers = ring.moved(&numbers, &[machine]);
    }
    let never = moved.iter().position(|moved| !moved)?;
    Some(format!("in {} moves, S{} never has the privilege", 2 * machines, never + 1))
}
