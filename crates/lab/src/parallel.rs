//! Several runs on all cores.

use rayon::prelude::*;
use std::sync::OnceLock;

/// The results of `run` for the numbers below `count`, in their order; computed on all cores.
///
/// Rayon's own `collect` compiles to ten times as much code, for each closure and each type of result.
pub(crate) fn map<T: Send + Sync>(count: usize, run: &(dyn Fn(usize) -> T + Sync)) -> Vec<T> {
    let results: Vec<OnceLock<T>> = (0..count).map(|_| OnceLock::new()).collect();
    for_each(count, &|index| {
        results[index].get_or_init(|| run(index));
    });
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}

fn for_each(count: usize, run: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().for_each(run);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_their_numbers() {
        assert_eq!(map(1_000, &|index| index * 2), (0..1_000).map(|index| index * 2).collect::<Vec<_>>());
        assert!(map(0, &|index| index).is_empty());
    }
}
