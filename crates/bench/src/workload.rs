//! The workloads: the number of clients, the lock that each acquires next, and the duration of its hold.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A workload: a number of clients, the locks that they acquire, and the length of their holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// One client, one lock.
    W1,
    /// Eight clients, one lock.
    W2,
    /// Eight clients, each with its own lock.
    W3,
    /// 64 clients, 1,000 locks with a few popular ones, holds of 1 ms.
    W4,
}

/// A name that no workload has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no workload `{name}`: there are w1, w2, w3 and w4")]
pub struct UnknownWorkload {
    /// The name that no workload has.
    pub name: String,
}

impl Workload {
    /// All workloads, in order.
    pub const ALL: [Workload; 4] = [Workload::W1, Workload::W2, Workload::W3, Workload::W4];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::W1 => "w1",
            Workload::W2 => "w2",
            Workload::W3 => "w3",
            Workload::W4 => "w4",
        }
    }

    /// Describes the workload for readers of a report.
    pub fn what(self) -> &'static str {
        match self {
            Workload::W1 => "one client, one lock",
            Workload::W2 => "eight clients, one lock",
            Workload::W3 => "eight clients, a lock each",
            Workload::W4 => "64 clients (8 processes of 8), 1,000 locks by Zipf's law, 1 ms inside",
        }
    }

    /// Parses a workload's name.
    pub fn parse(name: &str) -> Result<Workload, UnknownWorkload> {
        let known = Workload::ALL.into_iter().find(|workload| workload.name() == name);
        known.ok_or_else(|| UnknownWorkload { name: name.into() })
    }

    /// Number of clients.
    pub fn clients(self) -> usize {
        match self {
            Workload::W1 => 1,
            Workload::W2 | Workload::W3 => 8,
            Workload::W4 => 64,
        }
    }

    /// Number of locks.
    pub fn locks(self) -> usize {
        match self {
            Workload::W1 | Workload::W2 => 1,
            Workload::W3 => 8,
            Workload::W4 => 1000,
        }
    }

    /// The duration of a hold.
    pub fn hold(self) -> Duration {
        match self {
            Workload::W4 => Duration::from_millis(1),
            _ => Duration::ZERO,
        }
    }

    /// Number of client processes, unless the clients are inside members.
    pub fn processes(self) -> usize {
        self.clients().min(8)
    }
}

/// The sequence of locks that a client acquires; the same for all engines and repeats.
pub struct Choice {
    workload: Workload,
    client: usize,
    /// For each lock, the cumulative probability of it and all locks before it; empty if nothing is drawn.
    cumulative: Vec<f64>,
    random: u64,
}

impl Choice {
    /// The sequence of one client.
    pub fn new(workload: Workload, client: usize) -> Choice {
        let mut cumulative = Vec::new();
        if workload == Workload::W4 {
            let mut sum = 0.0;
            cumulative.extend((1..=workload.locks()).map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            }));
            cumulative.iter_mut().for_each(|chance| *chance /= sum);
        }
        // Any odd seed is suitable, as long as it differs between clients.
        let random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * client as u64 + 1);
        Choice { workload, client, cumulative, random }
    }

    /// The next lock.
    pub fn next_lock(&mut self) -> usize {
        match self.workload {
            Workload::W1 | Workload::W2 => 0,
            Workload::W3 => self.client,
            Workload::W4 => {
                let drawn = self.unit();
                self.cumulative.partition_point(|chance| *chance < drawn).min(self.workload.locks() - 1)
            }
        }
    }

    /// A number from 0 to 1, by xorshift, whose quality is sufficient here.
    fn unit(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_names_are_parsed_and_unknown_ones_rejected() {
        for workload in Workload::ALL {
            assert_eq!(Workload::parse(workload.name()), Ok(workload));
        }
        assert_eq!(Workload::parse("w5"), Err(UnknownWorkload { name: "w5".into() }));
    }

    #[test]
    fn locks_are_drawn_by_zipfs_law() {
        let mut counts = vec![0_u32; 1000];
        let mut choice = Choice::new(Workload::W4, 3);
        for _ in 0..100_000 {
            counts[choice.next_lock()] += 1;
        }
        // The first lock is drawn twice as often as the second, with probability 1 / H(1000), where H(1000) =
        // 7.485.
        let share = f64::from(counts[0]) / 100_000.0;
        assert!((0.12..0.147).contains(&share), "{share}");
        let ratio = f64::from(counts[0]) / f64::from(counts[1]);
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
        assert!(counts[999] > 0);
    }

    #[test]
    fn clients_of_w3_use_disjoint_locks() {
        let locks: Vec<usize> = (0..8).map(|client| Choice::new(Workload::W3, client).next_lock()).collect();
        assert_eq!(locks, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
