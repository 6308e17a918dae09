//! Le Lann's ring (1977), and its variant with a parked token.

use super::{LoadSpec, SITES, assert_equal, measure, n};
use lockkeeper_core::SiteId;
use lockkeeper_lab::simulator::delay::Delay;
use lockkeeper_lab::simulator::spec::{Action, MessageSelector, Scripted};
use lockkeeper_lab::{Progress, Spec, Time, simulate};

/// If all sites request, the token moves one hop per entry.
#[test]
fn one_message_and_one_delay_at_high_load() {
    for sites in SITES {
        // The recovering ring costs no more while no site crashes.
        let recovering = measure("token-ring-recovering", sites, LoadSpec::High, &[]);
        assert_equal(recovering.messages_per_entry, 1.0, "messages of the recovering ring");
        let report = measure("token-ring", sites, LoadSpec::High, &[]);
        assert_equal(report.messages_per_entry, 1.0, "messages");
        assert_equal(report.sync_delay.mean, 1.0, "synchronization delay");
        assert_equal(report.sync_delay.max, 1.0, "largest synchronization delay");
        assert_equal(report.fairness.jain, 1.0, "Jain's index");
        assert_eq!(report.fairness.max_bypass, sites as u64 - 1);
    }
}

/// The token is perpetual: one message per T even if no site requests.
#[test]
fn token_circulates_even_without_requests() {
    for sites in SITES {
        let report = measure("token-ring", sites, LoadSpec::Low, &[]);
        assert_equal(Some(report.idle_messages), 1.0, "messages per T while idle");
        // Never more than one round; half of that on average, checked loosely since requests are random.
        assert!(report.client_delay.max.unwrap() <= n(sites));
        let mean = report.client_delay.mean.unwrap();
        assert!((mean / (n(sites) / 2.0) - 1.0).abs() < 0.35, "{sites} sites: {mean}");
    }
}

/// Where the token is parked, an entry is free; elsewhere the request and the token travel one round
/// together, N messages. Over every order of requesters that is N−1 on average.
#[test]
fn parked_token_costs_nothing_or_one_round() {
    for sites in SITES {
        let report = measure("token-ring-parked", sites, LoadSpec::Pairs, &[]);
        assert_equal(report.messages_per_entry, n(sites) - 1.0, "messages");
        assert_equal(report.client_delay.mean, n(sites) - 1.0, "client delay");
        assert_equal(report.client_delay.max, n(sites), "largest client delay");
        assert_equal(Some(report.idle_messages), 0.0, "messages per T while idle");
    }
}

/// "At most (N−1)T" holds for the perpetual ring at every load. It does not hold for the parked token: at an exit, the
/// request of the only waiting site can still be on its way to the token.
#[test]
fn parked_token_can_need_a_whole_round_after_an_exit() {
    for sites in [3, 5, 9] {
        let largest = |algorithm| {
            let mut spec = Spec::new(algorithm, sites);
            (spec.load, spec.entries) = (LoadSpec::Poisson(0.02), 2_000);
            let report = simulate(&spec, 1, 3, &Progress::default()).unwrap();
            assert!(report.held());
            report.sync_delay.max.unwrap()
        };
        assert!(largest("token-ring") <= n(sites) - 1.0);
        let parked = largest("token-ring-parked");
        assert!(parked > n(sites) - 1.0 && parked < n(sites), "{sites} sites: {parked}");
        let high = measure("token-ring-parked", sites, LoadSpec::High, &[]);
        assert_equal(high.sync_delay.max, 1.0, "at high load");
    }
}

/// PING takes 1 T and E per entry when all sites request, and PONG is sent once per T, beside the meetings.
#[test]
fn misra_sends_pong_as_long_as_a_site_is_inside() {
    for (sites, cs) in SITES.into_iter().zip([0, 1, 2, 3, 5, 7]) {
        let mut spec = Spec::new("misra-ping-pong", sites);
        (spec.load, spec.entries) = (LoadSpec::High, 60 * sites as u64);
        spec.cs = Some(Delay::Constant(Time::from_milli_t(1000 * cs)));
        let report = simulate(&spec, 7, 1, &Progress::default()).unwrap();
        assert!(report.held(), "{:?}", report.violations);
        assert_equal(report.sync_delay.mean, 1.0, "synchronization delay");
        let of = |name| report.by_message[name] as f64 / report.entries as f64;
        assert_eq!(of("PING"), 1.0);
        let expected = 1.0 + cs as f64;
        assert!((of("PONG") / expected - 1.0).abs() < 0.05, "{sites} sites, E = {cs}: {}", of("PONG"));
    }
}

/// Either token is lost at any time: every request is served, at most two rounds of the other token later.
#[test]
fn misra_replaces_a_lost_token_within_two_rounds() {
    let mut made = [0, 0];
    for (sites, tenths) in (2..=6).flat_map(|sites| (0..80).map(move |tenths| (sites, tenths))) {
        for (place, name) in ["PING", "PONG"].into_iter().enumerate() {
            let mut spec = Spec::new("misra-ping-pong", sites);
            (spec.load, spec.entries, spec.warmup) = (LoadSpec::High, 12 * sites as u64, Some(0));
            let from = SiteId::new(tenths as usize % sites);
            let which = MessageSelector { from, to: from.next_on_ring(sites), name: Some(name.into()) };
            spec.script =
                vec![Scripted { at: Time::from_milli_t(100 * tenths), action: Action::Lose(which) }];
            let report = simulate(&spec, 1, 1, &Progress::default()).unwrap();
            assert!(report.held(), "{}\n{:?}", spec.command(1), report.violations);
            assert!(report.entries >= spec.entries, "{}", spec.command(1));
            let delay = report.sync_delay.max.unwrap();
            assert!(delay <= 3.0 * n(sites), "{}: {delay}", spec.command(1));
            made[place] += u64::from(delay > 1.0);
        }
    }
    assert!(made[0] > 200, "the loss of PING delays an entry: {made:?}");
    assert_eq!(made[1], 0, "the loss of PONG delays none");
}
