//! Le Lann's ring, 1977, and its parked variant.

use super::{LoadSpec, SITES, assert_equal, measure, n};

/// When everybody wants in, the token moves one hop per entry.
#[test]
fn one_message_and_one_delay_when_everybody_asks() {
    for sites in SITES {
        // The ring that recovers costs no more while nobody crashes.
        let recovering = measure("token-ring-recovering", sites, LoadSpec::High, &[]);
        assert_equal(recovering.messages_per_entry, 1.0, "messages of the ring that recovers");
        let report = measure("token-ring", sites, LoadSpec::High, &[]);
        assert_equal(report.messages_per_entry, 1.0, "messages");
        assert_equal(report.sync_delay.mean, 1.0, "synchronization delay");
        assert_equal(report.sync_delay.max, 1.0, "largest synchronization delay");
        assert_equal(report.fairness.jain, 1.0, "Jain's index");
        assert_eq!(report.fairness.max_bypass, sites as u64 - 1);
    }
}

/// The token never rests: one message per T even when nobody wants anything.
#[test]
fn the_token_travels_even_when_nobody_asks() {
    for sites in SITES {
        let report = measure("token-ring", sites, LoadSpec::Low, &[]);
        assert_equal(Some(report.idle_messages), 1.0, "messages per T while idle");
        // Never more than once round; half of that on average, checked loosely since requests come at random.
        assert!(report.client_delay.max.unwrap() <= n(sites));
        let mean = report.client_delay.mean.unwrap();
        assert!((mean / (n(sites) / 2.0) - 1.0).abs() < 0.35, "{sites} sites: {mean}");
    }
}

/// Where the token rests an entry is free; elsewhere request and token go once round, N messages. Over every order
/// of requesters that is N−1 on average.
#[test]
fn a_parked_token_costs_nothing_or_one_round() {
    for sites in SITES {
        let report = measure("token-ring-parked", sites, LoadSpec::Pairs, &[]);
        assert_equal(report.messages_per_entry, n(sites) - 1.0, "messages");
        assert_equal(report.client_delay.mean, n(sites) - 1.0, "client delay");
        assert_equal(report.client_delay.max, n(sites), "largest client delay");
        assert_equal(Some(report.idle_messages), 0.0, "messages per T while idle");
    }
}
