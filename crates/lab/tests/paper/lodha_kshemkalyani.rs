//! Lodha and Kshemkalyani, *A Fair Distributed Mutual Exclusion Algorithm*, 2000.

use super::{LoadSpec, SITES, assert_equal, measure, n};

/// The paper's upper bound: a request that crosses no other costs 2(N−1) messages. This is the case at low
/// load, and in a closed loop with constant delay, where a site that leaves requests again with all earlier
/// requests at hand.
#[test]
fn requests_that_do_not_cross_cost_as_much_as_with_ricart_agrawala() {
    for sites in SITES {
        for load in [LoadSpec::Low, LoadSpec::High] {
            let report = measure("lodha-kshemkalyani", sites, load, &[]);
            assert_equal(report.messages_per_entry, 2.0 * (n(sites) - 1.0), "messages");
            assert_equal(report.on_exit, 0.0, "REPLY and FLUSH count as messages to enter");
        }
    }
}

/// If all sites request at once, all requests cross each other: N−1 REQUESTs each, no REPLY, and a FLUSH from
/// each site but the last to the next, N²−1 messages for N entries.
#[test]
fn a_burst_costs_about_n_messages_per_entry() {
    for sites in SITES {
        let report = measure("lodha-kshemkalyani", sites, LoadSpec::Burst, &[]);
        assert_equal(report.messages_per_entry, n(sites) - 1.0 / n(sites), "messages");
        let (bursts, sites) = (report.entries / sites as u64, sites as u64);
        assert_eq!(report.by_message["REQUEST"], bursts * sites * (sites - 1));
        assert_eq!(report.by_message["REPLY"], 0);
        assert_eq!(report.by_message["FLUSH"], bursts * (sites - 1));
        assert_equal(report.sync_delay.max, 1.0, "synchronization delay");
    }
}

/// In comparison, Ricart and Agrawala's algorithm costs as much in a burst as at every other load.
#[test]
fn ricart_and_agrawala_save_nothing_in_a_burst() {
    for sites in SITES {
        let report = measure("ricart-agrawala", sites, LoadSpec::Burst, &[]);
        assert_equal(report.messages_per_entry, 2.0 * (n(sites) - 1.0), "messages");
    }
}

/// A round trip without contention, one message from an exit to the next entry, and the order of timestamps.
#[test]
fn delays_and_order_are_those_of_ricart_and_agrawala() {
    for sites in SITES {
        let low = measure("lodha-kshemkalyani", sites, LoadSpec::Low, &[]);
        assert_equal(low.client_delay.max, 2.0, "client delay");
        let high = measure("lodha-kshemkalyani", sites, LoadSpec::High, &[]);
        assert_equal(high.sync_delay.max, 1.0, "synchronization delay");
        assert_eq!(high.fairness.timestamp_inversions, 0);
        assert_eq!(high.fairness.max_bypass, sites as u64 - 1);
    }
}
