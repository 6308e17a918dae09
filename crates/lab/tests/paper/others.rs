//! Lamport with suppressed replies, Roucairol and Carvalho, Neilsen and Mizuno, the bakery by messages.

use super::{LoadSpec, SITES, assert_equal, assert_near, mean, measure, n};
use lockkeeper_lab::{Progress, Spec, simulate};

/// Lamport's algorithm in which a pending request replaces the reply: 3(N−1) without contention, 2(N−1) if
/// all sites request.
#[test]
fn suppressed_replies_save_a_third_at_high_load() {
    for sites in SITES {
        let low = measure("lamport-suppressed", sites, LoadSpec::Low, &[]);
        assert_equal(low.messages_per_entry, 3.0 * (n(sites) - 1.0), "low");
        let high = measure("lamport-suppressed", sites, LoadSpec::High, &[]);
        assert_equal(high.messages_per_entry, 2.0 * (n(sites) - 1.0), "high");
        assert_equal(high.sync_delay.max, 1.0, "synchronization delay");
        assert_eq!(high.fairness.timestamp_inversions, 0);
    }
}

/// Carvalho and Roucairol, *On Mutual Exclusion in Computer Networks*, 1983: between 0 and 2(N−1) messages; in the steady
/// state half of the permissions are missing on average.
#[test]
fn lasting_permissions_cost_half_at_low_load() {
    for sites in SITES {
        let low = mean("roucairol-carvalho", sites, LoadSpec::Low, &[]);
        assert_near(low.messages_per_entry, n(sites) - 1.0, "low");
        let high = measure("roucairol-carvalho", sites, LoadSpec::High, &[]);
        assert_equal(high.messages_per_entry, 2.0 * (n(sites) - 1.0), "high");
        assert_equal(high.sync_delay.max, 1.0, "synchronization delay");
    }
}

/// Neilsen and Mizuno, *A DAG-Based Algorithm for Distributed Mutual Exclusion*, 1991: at most three messages on a star,
/// and one delay between two sections.
#[test]
fn a_star_costs_three_messages_at_most_and_one_delay() {
    for sites in SITES {
        let low = measure("neilsen-mizuno", sites, LoadSpec::Pairs, &[]);
        let expected = (n(sites) - 1.0) * (3.0 * n(sites) - 2.0) / (n(sites) * n(sites));
        assert_equal(low.messages_per_entry, expected, "low");
        let high = measure("neilsen-mizuno", sites, LoadSpec::High, &[]);
        assert_equal(high.messages_per_entry, 3.0 - 2.0 / n(sites), "high");
        assert_equal(high.sync_delay.max, 1.0, "synchronization delay");
        for tree in ["line", "binary", "random:5"] {
            let report = measure("neilsen-mizuno", sites, LoadSpec::Pairs, &[("tree", tree)]);
            assert_equal(report.messages_per_entry, report.expected.messages_per_entry.unwrap(), tree);
        }
    }
}

/// The bakery of 1974 with variables read by messages: three reads of two messages each for every other site.
#[test]
fn the_bakery_reads_three_variables_of_every_other_site() {
    for sites in SITES {
        for load in [LoadSpec::Low, LoadSpec::High] {
            let report = measure("bakery-messages", sites, load, &[]);
            assert_equal(report.messages_per_entry, 6.0 * (n(sites) - 1.0), "messages");
        }
        let low = measure("bakery-messages", sites, LoadSpec::Low, &[]);
        assert_equal(low.client_delay.max, 6.0, "client delay");
    }
}

/// "SD is T" holds for the bakery where the next site has only TURN to wait for: with many sites at high load. With few,
/// the next site is still at an earlier read when the exit comes.
#[test]
fn the_bakery_with_few_sites_needs_more_than_one_delay_between_sections() {
    for (sites, expected, largest) in [(2, 3.0, 5.0), (6, 1.175, 1.7), (9, 1.0, 1.0), (16, 1.0, 1.0)] {
        let mut spec = Spec::new("bakery-messages", sites);
        spec.entries = 600;
        let report = simulate(&spec, 7, 1, &Progress::default()).unwrap();
        assert_equal(report.sync_delay.mean, expected, "synchronization delay");
        assert_equal(report.sync_delay.max, largest, "largest synchronization delay");
    }
}
