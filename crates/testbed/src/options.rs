//! The command line of a test that is a program of its own.

use std::time::{Duration, Instant};

/// The options of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The duration of random faults; `None` injects every fault once. `--soak MINUTES`
    pub soak: Option<Duration>,
    /// The seed of all random choices. Default: 1. `--seed NUMBER`
    pub seed: u64,
    /// The number of members. Default: 3. `--members NUMBER`
    pub members: u32,
}

impl Options {
    /// Reads the arguments that follow the program's name.
    pub fn read(arguments: &[String]) -> Self {
        let after = |flag: &str| {
            let at = arguments.iter().position(|argument| argument == flag)?;
            let value = arguments.get(at + 1).and_then(|value| value.parse::<u64>().ok());
            Some(value.unwrap_or_else(|| panic!("{flag} needs a number")))
        };
        Self {
            soak: after("--soak").map(|minutes| Duration::from_secs(60 * minutes)),
            seed: after("--seed").unwrap_or(1),
            members: u32::try_from(after("--members").unwrap_or(3)).expect("a small number of members"),
        }
    }

    /// Injects every fault once, or random faults for the duration of `--soak`.
    pub fn go_through<F: Copy>(&self, all: &[F], mut inject: impl FnMut(F)) {
        let Some(soak) = self.soak else { return all.iter().for_each(|&fault| inject(fault)) };
        // A sequence of its own, independent of the one that chooses the target of a fault.
        let mut random = Random::new(!self.seed);
        let began = Instant::now();
        while began.elapsed() < soak {
            inject(all[random.below(all.len())]);
            println!("   {} of {} minutes", began.elapsed().as_secs() / 60, soak.as_secs() / 60);
        }
    }
}

/// A pseudo-random sequence that depends only on its seed.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, less than `below`.
    pub fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % below
    }
}
