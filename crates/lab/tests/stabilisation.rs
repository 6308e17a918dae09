//! Self-stabilisation: Dijkstra's ring from every state, and wrong variants of it.

use lockkeeper_lab::stabilisation::exhaustive::{Verdict, explore};
use lockkeeper_lab::stabilisation::simulation::simulate;
use lockkeeper_lab::stabilisation::{Daemon, KState, Ring};

const DAEMONS: [Daemon; 3] = [Daemon::Central, Daemon::Distributed, Daemon::Synchronous];

fn of(machines: usize, states: u32, daemon: Daemon) -> Verdict {
    explore(&KState { machines, states }, daemon).expect("a small ring")
}

/// With at least as many numbers as machines, from every state and whatever the daemon does.
#[test]
fn ring_stabilises_from_every_state() {
    for daemon in DAEMONS {
        for (machines, states) in [(2, 2), (2, 3), (3, 3), (3, 5), (4, 4), (4, 6), (5, 5), (5, 6)] {
            let verdict = of(machines, states, daemon);
            assert!(verdict.stabilises(), "{machines} machines, {states} states, {daemon}: {verdict:?}");
            assert_eq!(verdict.states, u64::from(states).pow(machines as u32));
            // All numbers are equal, or the first machines have one number and the others another one.
            let (n, k) = (machines as u64, u64::from(states));
            assert_eq!(verdict.legitimate, k + (n - 1) * k * (k - 1));
            let bound = KState { machines, states }.most_moves();
            assert!(verdict.most_moves <= bound && bound.is_some(), "{verdict:?}, at most {bound:?}");
        }
    }
}

/// The exact worst case under the central daemon. The bound 3N(N−1)/2 is 3, 9, 18, 30 and 45; from 4 machines on, the
/// worst case is N+1 moves less.
#[test]
fn worst_case_is_pinned() {
    let worst = |machines: usize| of(machines, machines as u32, Daemon::Central).most_moves;
    assert_eq!([2, 3, 4, 5, 6].map(worst), [Some(0), Some(2), Some(13), Some(24), Some(38)]);
}

/// The central daemon needs one number fewer than the bound assumes; with fewer, it can keep the ring unstable for
/// ever.
#[test]
fn too_few_numbers_do_not_stabilise() {
    for machines in [4, 5] {
        let n = machines as u32;
        assert!(of(machines, n - 1, Daemon::Central).stabilises(), "{machines} machines");
        let few = of(machines, n - 2, Daemon::Central);
        assert!(!few.stabilises() && few.most_moves.is_none(), "{machines} machines: {few:?}");
        assert!(KState { machines, states: n - 2 }.most_moves().is_none());
    }
    // A cycle of the daemon's choices returns to its first state and has more than one privilege all the time.
    let ring = KState { machines: 5, states: 3 };
    let cycle = explore(&ring, Daemon::Central).unwrap().cycle;
    assert!(cycle.len() > 1);
    for (place, numbers) in cycle.iter().enumerate() {
        let next = &cycle[(place + 1) % cycle.len()];
        let privileged = ring.privileged(numbers);
        assert!(privileged.len() > 1);
        assert!(privileged.iter().any(|&machine| ring.moved(numbers, &[machine]) == *next));
    }
    assert!(!of(4, 2, Daemon::Distributed).stabilises());
}

/// Wrong variants of the ring.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// All machines copy; none is the bottom machine.
    NoBottom,
    /// The bottom machine counts up without waiting for its number to come round.
    BottomNeverWaits,
    /// The last machine does not read its neighbour.
    BrokenRing,
}

struct Variant(Wrong, KState);

impl Ring for Variant {
    fn machines(&self) -> usize {
        self.1.machines
    }

    fn states(&self) -> u32 {
        self.1.states
    }

    fn next(&self, numbers: &[u32], machine: usize) -> Option<u32> {
        let left = numbers[(machine + self.machines() - 1) % self.machines()];
        match self.0 {
            Wrong::NoBottom => (numbers[machine] != left).then_some(left),
            Wrong::BottomNeverWaits if machine == 0 => Some((numbers[0] + 1) % self.states()),
            Wrong::BrokenRing if machine + 1 == self.machines() => None,
            _ => self.1.next(numbers, machine),
        }
    }
}

#[test]
fn wrong_rings_are_caught_by_both_methods() {
    let right = KState { machines: 4, states: 5 };
    for wrong in [Wrong::NoBottom, Wrong::BottomNeverWaits, Wrong::BrokenRing] {
        let ring = Variant(wrong, right);
        let verdict = explore(&ring, Daemon::Central).unwrap();
        assert!(!verdict.stabilises(), "{wrong:?}: {verdict:?}");
        let report = simulate(&ring, Daemon::Central, 1, 100, 10_000);
        assert!(report.violation.is_some() || report.stabilised < report.runs, "{wrong:?}: {report:?}");
    }
    let report = simulate(&right, Daemon::Central, 1, 100, 10_000);
    assert_eq!((report.violation, report.stabilised), (None, 100));
}

/// Random runs of larger rings stay below the bound, and reach no more than the exact worst case of small ones.
#[test]
fn random_runs_stay_below_the_bound() {
    for daemon in DAEMONS {
        for machines in [2, 3, 5, 9, 16, 33] {
            let ring = KState { machines, states: machines as u32 };
            let report = simulate(&ring, daemon, 1, 300, u64::MAX);
            assert_eq!((report.stabilised, &report.violation), (300, &None), "{machines} machines, {daemon}");
            assert!(report.mean_moves.unwrap() <= report.most_moves as f64);
            assert!(
                Some(report.most_moves) <= ring.most_moves(),
                "{machines} machines, {daemon}: {report:?}"
            );
            if machines <= 5 {
                let worst = of(machines, machines as u32, daemon).most_moves;
                assert!(Some(report.most_moves) <= worst, "{machines} machines, {daemon}: {report:?}");
            }
        }
    }
}

#[test]
fn runs_are_a_function_of_their_seed() {
    let ring = KState { machines: 9, states: 9 };
    let report = |seed| simulate(&ring, Daemon::Distributed, seed, 50, u64::MAX);
    assert_eq!(report(7), report(7));
    assert_ne!(report(7), report(8));
}

#[test]
fn large_rings_are_not_explored() {
    assert!(explore(&KState { machines: 40, states: 40 }, Daemon::Central).is_none());
}
