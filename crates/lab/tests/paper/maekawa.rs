//! Maekawa, *A √N Algorithm for Mutual Exclusion in Decentralized Systems*, 1985; described in section 9.8 of
//! Kshemkalyani and Singhal, *Distributed Computing*.

use super::{LoadSpec, assert_equal, measure, n};
use lockkeeper_core::SiteId;
use lockkeeper_core::quorum::{Construction, Coterie};
use lockkeeper_lab::property::Property;
use lockkeeper_lab::{Progress, Scenario, simulate};

/// A request, a vote and a release for each other site of the quorum; a round trip to enter without
/// contention.
#[test]
fn three_messages_for_every_other_site_of_the_quorum() {
    for (sites, k) in [(3, 2.0), (7, 3.0), (13, 4.0), (21, 5.0), (31, 6.0)] {
        for algorithm in ["maekawa", "maekawa-published"] {
            let report = measure(algorithm, sites, LoadSpec::Pairs, &[]);
            assert_equal(report.messages_per_entry, 3.0 * (k - 1.0), algorithm);
            assert_equal(report.client_delay.max, 2.0, "client delay");
            assert_equal(report.to_enter, 2.0 * (k - 1.0), "to enter");
            assert_equal(report.on_exit, k - 1.0, "on exit");
        }
    }
    for sites in [2, 5, 8, 9] {
        let report = measure("majority", sites, LoadSpec::Pairs, &[]);
        assert_equal(report.messages_per_entry, 3.0 * (n(sites) / 2.0).floor(), "majority");
    }
}

/// Under constant contention each vote is requested, failed or inquired about, given and released: 4(K−1)
/// with constant delay; never more than 6(K−1).
#[test]
fn between_three_and_six_messages_under_contention() {
    for (sites, k) in [(7, 3.0), (13, 4.0), (21, 5.0), (31, 6.0)] {
        let report = measure("maekawa", sites, LoadSpec::High, &[]);
        assert_equal(report.messages_per_entry, 4.0 * (k - 1.0), "plane, constant delay");
        let mut spec = lockkeeper_lab::Spec::new("maekawa", sites);
        spec.network.delay = lockkeeper_lab::simulator::delay::Delay::parse("exponential:1").unwrap();
        let random = simulate(&spec, 1, 4, &Progress::default()).unwrap();
        let messages = random.messages_per_entry.unwrap();
        assert!((3.0 * (k - 1.0)..=6.0 * (k - 1.0)).contains(&messages), "{sites} sites: {messages}");
    }
}

/// Section 9.8 of the book: N = K(K−1)+1, so that K is about √N, which costs less than the permission of
/// every site beyond four sites.
#[test]
fn quorums_grow_with_the_root_of_n() {
    for sites in [7, 13, 21, 31, 57, 73, 91, 133] {
        let k = Coterie::new(&Construction::Plane, sites).quorums[0].len() as f64;
        assert!((k - n(sites).sqrt()).abs() < 1.0, "{sites}: {k}");
        assert!(3.0 * (k - 1.0) < 2.0 * (n(sites) - 1.0));
    }
}

/// The lecture's example of a deadlock: three sites, each with its own vote, each waiting for the next.
#[test]
fn the_triangle_deadlocks_as_published() {
    let scenario = Scenario::open("maekawa-deadlock").unwrap();
    let report = simulate(&scenario.spec, 1, 1, &Progress::default()).unwrap();
    let found = &report.violations[0].violation;
    assert_eq!(found.property, Property::NoDeadlock);
    assert_eq!(found.sites, [SiteId(0), SiteId(1), SiteId(2)]);
    assert!(found.what.contains("S1 waits for S2; S2 waits for S3; S3 waits for S1"), "{}", found.what);

    let mut resolved = scenario.spec.clone();
    resolved.algorithm = "maekawa".into();
    let report = simulate(&resolved, 1, 1, &Progress::default()).unwrap();
    assert!(report.held() && report.entries == 3);
}
