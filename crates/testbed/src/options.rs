//! The command line of a test that is a program of its own.

use std::time::{Duration, Instant};

/// What the command line says.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// For how long to go on; every fault once if nothing is said. `--soak MINUTES`
    pub soak: Option<Duration>,
    /// Decides the order of things. `--seed NUMBER`
    pub seed: u64,
    /// How many members there are. `--members NUMBER`
    pub members: u32,
}

impl Options {
    /// Reads what follows the program's name.
    pub fn read(arguments: &[String]) -> Self {
        let after = |flag: &str| {
            let at = arguments.iter().position(|argument| argument == flag)?;
            let value = arguments.get(at + 1).and_then(|value| value.parse::<u64>().ok());
            Some(value.unwrap_or_else(|| panic!("{flag} wants a number")))
        };
        Self {
            soak: after("--soak").map(|minutes| Duration::from_secs(60 * minutes)),
            seed: after("--seed").unwrap_or(1),
            members: u32::try_from(after("--members").unwrap_or(3)).expect("a small number of members"),
        }
    }

    /// Every fault once, or faults of any kind for as long as the command line says.
    pub fn go_through<F: Copy>(&self, all: &[F], mut suffer: impl FnMut(F)) {
        let Some(soak) = self.soak else { return all.iter().for_each(|&fault| suffer(fault)) };
        // Other numbers than those that decide whom a fault befalls.
        let mut random = Random::new(!self.seed);
        let began = Instant::now();
        while began.elapsed() < soak {
            suffer(all[random.below(all.len())]);
            println!("   {} of {} minutes", began.elapsed().as_secs() / 60, soak.as_secs() / 60);
        }
    }
}

/// Numbers that follow from a seed.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number below this one.
    pub fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % below
    }
}
