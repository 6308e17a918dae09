//! Naimi, Tréhel and Arnold, *A log(N) Distributed Mutual Exclusion Algorithm Based on Path Reversal*, 1996.

use super::{LoadSpec, SITES, assert_equal, assert_near, mean, n};

/// The paper's theorem on the average number of messages: the harmonic number of N−1 in the steady state.
#[test]
fn harmonic_at_low_load() {
    for sites in SITES {
        let report = mean("naimi-trehel", sites, LoadSpec::Low, &[]);
        let harmonic = (1..sites).map(|k| 1.0 / k as f64).sum();
        assert_near(report.messages_per_entry, harmonic, "messages");
    }
}

/// If all sites request, the chain of NEXT pointers is the order of entries, and the token takes one message
/// per entry.
#[test]
fn constant_at_high_load() {
    for sites in SITES {
        let report = mean("naimi-trehel", sites, LoadSpec::High, &[]);
        assert_near(report.messages_per_entry, (4.0 * n(sites) - 2.0) / (n(sites) + 1.0), "messages");
        assert_equal(report.sync_delay.max, 1.0, "synchronization delay");
    }
}
