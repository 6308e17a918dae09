//! The size of a site's state.

use crate::simulator::run::Sim;
use crate::simulator::runner::{self, Error, Progress};
use crate::simulator::spec::Spec;
use lockkeeper_core::SiteId;
use serde::Serialize;
use std::hash::{Hash, Hasher};

/// The size of the state of one site, in bytes, measured after each entry of a run.
///
/// It counts the bytes that the state's `Hash` writes, which are all that distinguishes two states: integers
/// with their width, one byte for an enum's variant, four for the length of a list. Unlike `size_of` it
/// includes the heap; unlike the allocated memory it excludes reserved capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StateSize {
    /// The mean over sites and entries.
    pub mean: f64,
    /// The maximum over sites and entries.
    pub max: u64,
}

/// Measures the state of the sites in a run of the given spec.
pub fn measure(spec: &Spec, seed: u64, progress: &Progress) -> Result<Option<StateSize>, Error> {
    let algorithm = runner::registered(spec)?;
    let sim = Sim::new(spec, &*algorithm, seed, None);
    let (mut sum, mut looks, mut max) = (0, 0u64, 0);
    let (outcome, _) = sim.run_watched(runner::watch(progress), |world| {
        for site in SiteId::all(world.processes()) {
            let size = bytes(world.state(site));
            sum += size;
            looks += 1;
            max = size.max(max);
        }
    });
    if outcome.interrupted {
        return Err(Error::Interrupted);
    }
    Ok((looks > 0).then(|| StateSize { mean: sum as f64 / looks as f64, max }))
}

/// Number of bytes that a value's `Hash` writes.
fn bytes(state: &(impl Hash + ?Sized)) -> u64 {
    let mut counter = Counter(0);
    state.hash(&mut counter);
    counter.0
}

struct Counter(u64);

impl Hasher for Counter {
    fn write(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }

    // Derived `Hash` writes the variant of an enum as an isize, and the length of a list as a usize.
    fn write_isize(&mut self, _variant: isize) {
        self.0 += 1;
    }

    fn write_usize(&mut self, _length: usize) {
        self.0 += 4;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_by_width_variant_and_length() {
        assert_eq!(bytes(&7u32), 4);
        assert_eq!(bytes(&Some(7u64)), 9);
        assert_eq!(bytes(&None::<u64>), 1);
        assert_eq!(bytes(&vec![SiteId(1), SiteId(2)]), 4 + 8);
        assert_eq!(bytes(&vec![1u64, 2, 3]), 4 + 24);
    }
}
