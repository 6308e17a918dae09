//! Maekawa, *A √N Algorithm for Mutual Exclusion in Decentralized Systems*, 1985; described in section 9.8 of
//! Kshemkalyani and Singhal, *Distributed Computing*.

use super::{LoadSpec, assert_equal, measure, n};
use lockkeeper_core::SiteId;
use lockkeeper_core::quorum::{Construction, Coterie};
use lockkeeper_lab::property::Property;
use lockkeeper_lab::{Progress, Scenario, Spec, simulate};

/// A request, a vote and a release for each other site of the quorum; a round trip to enter without
/// contention.
#[test]
fn three_messages_for_every_other_site_of_the_quorum() {
    for (sites, k) in [(3, 2.0), (7, 3.0), (13, 4.0), (21, 5.0), (31, 6.0)] {
        for algorithm in ["maekawa", "maekawa-basic"] {
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
        let mut spec = Spec::new("maekawa", sites);
        spec.network.delay = lockkeeper_lab::simulator::delay::Delay::parse("exponential:1").unwrap();
        let random = simulate(&spec, 1, 4, &Progress::default()).unwrap();
        let messages = random.messages_per_entry.unwrap();
        assert!((3.0 * (k - 1.0)..=6.0 * (k - 1.0)).contains(&messages), "{sites} sites: {messages}");
    }
}

/// Textbooks give 2T for the synchronization delay. At high load it lies between T and 2T. On a plane, it depends on the
/// order of the requests: all sites that start together enter in the cyclic order of the quorums, where the shared arbiter
/// is one of the two sites; sites that start one after another enter in a random order.
#[test]
fn sync_delay_lies_between_one_and_two_delays_at_high_load() {
    for (sites, staggered) in [(7, 1.528_7), (13, 1.577_7), (21, 1.799_8), (31, 1.800_3)] {
        let delay_at = |load| {
            let mut spec = Spec::new("maekawa", sites);
            (spec.load, spec.entries) = (load, 1_200);
            let report = simulate(&spec, 1, 5, &Progress::default()).unwrap();
            assert_eq!(report.expected.sync_delay_range, Some((1.0, 2.0)));
            assert_equal(report.sync_delay.max, if load == LoadSpec::High { 1.0 } else { 2.0 }, "largest");
            report.sync_delay.mean.unwrap()
        };
        assert_equal(Some(delay_at(LoadSpec::High)), 1.0, "started together");
        let delay = delay_at(LoadSpec::Staggered);
        assert!((delay - staggered).abs() < 1e-4, "{sites} sites, pinned {staggered}: {delay}");
    }
}

/// "At most 2T" does not hold in general: where sites request at random times, the next site may still have to get votes
/// back by INQUIRE and RELINQUISH.
#[test]
fn sync_delay_exceeds_two_delays_under_poisson_load() {
    for algorithm in ["maekawa", "majority", "tree-quorum"] {
        let mut spec = Spec::new(algorithm, 5);
        (spec.load, spec.entries) = (LoadSpec::Poisson(0.05), 2_000);
        let report = simulate(&spec, 1, 3, &Progress::default()).unwrap();
        assert!(report.held());
        assert!(report.sync_delay.max.unwrap() > 4.9, "{algorithm}: {:?}", report.sync_delay);
        assert_eq!(report.expected.sync_delay_range, None, "no statement is made for this load");
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
fn the_triangle_deadlocks_without_the_deadlock_messages() {
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
