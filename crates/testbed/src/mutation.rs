//! Random mutations of inputs, for tests that run a fuzz target without a fuzzer.

use crate::options::Random;

/// Number of random mutations of each seed.
const ROUNDS: usize = 300;

/// Runs a target on its seeds and on random mutations of them.
///
/// # Panics
///
/// If the target panics; the message shows the input.
pub fn run(seeds: &[Vec<u8>], target: fn(&[u8])) {
    let mut random = Random::new(1);
    for seed in seeds {
        attempt(target, seed);
        for _ in 0..ROUNDS {
            attempt(target, &mutated(&mut random, seed, seeds));
        }
    }
}

fn attempt(target: fn(&[u8]), input: &[u8]) {
    let result = std::panic::catch_unwind(|| target(input));
    assert!(result.is_ok(), "fails on {:?}", String::from_utf8_lossy(input));
}

fn mutated(random: &mut Random, seed: &[u8], seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(16)).min(bytes.len());
        match random.below(5) {
            0 if at < bytes.len() => bytes[at] = random.below(256) as u8,
            1 => bytes.insert(at, b"\"\\{}[]=,\x00\xff9-\n"[random.below(13)]),
            2 => drop(bytes.drain(at..end)),
            3 => bytes = [&bytes[..end], &bytes[at..]].concat(),
            _ => {
                let other = &seeds[random.below(seeds.len())];
                bytes = [&bytes[..at], &other[random.below(other.len().max(1))..]].concat();
            }
        }
    }
    bytes
}
