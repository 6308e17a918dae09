//! Suzuki and Kasami, *A Distributed Mutual Exclusion Algorithm*, 1985; described in section 9.11 of
//! Kshemkalyani and Singhal, *Distributed Computing*.

use super::{LoadSpec, SITES, assert_equal, measure, n};

/// Section 9.11 of the book, on performance: nothing at the site of the token; elsewhere a request to each
/// other site, and the token: N.
#[test]
fn zero_or_n_messages_per_entry() {
    for sites in SITES {
        let low = measure("suzuki-kasami", sites, LoadSpec::Pairs, &[]);
        assert_equal(low.messages_per_entry, n(sites) - 1.0, "messages, low");
        assert_equal(low.client_delay.mean, 2.0 * (1.0 - 1.0 / n(sites)), "client delay");
        let high = measure("suzuki-kasami", sites, LoadSpec::High, &[]);
        assert_equal(high.messages_per_entry, n(sites), "messages, high");
        assert_equal(high.sync_delay.max, 1.0, "synchronization delay");
    }
}

/// Section 9.11 of the book, on starvation: a request that has reached the token's queue has at most N−1 others before it.
#[test]
fn at_most_n_minus_one_others_enter_first() {
    for sites in SITES {
        let report = measure("suzuki-kasami", sites, LoadSpec::High, &[]);
        assert_eq!(report.fairness.max_bypass, sites as u64 - 1);
    }
}
