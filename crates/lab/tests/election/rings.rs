//! The elections on rings whose papers have no crashes.

use super::election;
use lockkeeper_lab::election::{ElectionSpec, Report, elect};
use lockkeeper_lab::simulator::delay::Delay;

/// An election that all sites start at once.
fn started_by_all(name: &str, sites: usize, settings: &[(&str, &str)]) -> ElectionSpec {
    let initiators: Vec<_> = (1..=sites).map(|number| (number, 0.0)).collect();
    let mut spec = election(name, sites, &initiators);
    spec.system.settings.extend(settings.iter().map(|&(name, value)| (name.into(), value.into())));
    spec
}

fn run(spec: &ElectionSpec, seed: u64) -> Report {
    let report = elect(spec, seed, 1).unwrap();
    assert!(report.held(), "{}\n{:?}", spec.command(seed), report.violations);
    report
}

/// Number of messages other than announcements.
fn searching(report: &Report) -> u64 {
    report.messages - report.by_message["COORDINATOR"]
}

/// The bound of the paper holds for every order of the sites. With the spread order many sites survive the first
/// phases, so that the cost exceeds that of rising numbers, and grows by less than the square.
#[test]
fn hirschberg_sinclair_stays_below_the_bound_of_the_paper() {
    let cost = |sites: usize, order| {
        let report = run(&started_by_all("hirschberg-sinclair", sites, &[("order", order)]), 1);
        let (n, phases) = (sites as u64, u64::from(sites.next_power_of_two().ilog2()));
        assert!(searching(&report) <= 8 * n * (1 + phases), "{sites} sites: {}", searching(&report));
        assert_eq!(report.by_message["COORDINATOR"], n);
        searching(&report)
    };
    for sites in [2, 3, 5, 8, 16, 33, 64, 128] {
        let (rising, spread) = (cost(sites, "rising"), cost(sites, "spread"));
        assert!(spread >= rising, "{sites} sites: {spread} < {rising}");
    }
    assert!(cost(64, "spread") > 64 * 10, "more than a constant per site: {}", cost(64, "spread"));
    // Chang and Roberts' election takes N(N+1)/2 messages when the numbers fall along the ring.
    let falling = run(&started_by_all("chang-roberts", 128, &[("direction", "down")]), 1);
    assert!(cost(128, "spread") < falling.by_message["ELECTION"] / 2);
}

/// Random delays, any initiators, and later elections.
#[test]
fn hirschberg_sinclair_elects_the_highest_site_under_random_delays() {
    for seed in 0..400_usize {
        let sites = 1 + seed % 9;
        let mut spec = election("hirschberg-sinclair", sites, &[(1 + seed % sites, 0.0)]);
        spec.initiators.extend(election("", sites, &[(1 + seed * 7 % sites, (seed % 40) as f64)]).initiators);
        spec.system.network.delay = Delay::parse("exponential:1").unwrap();
        spec.system.network.fifo = seed % 2 == 0;
        if seed % 3 == 0 {
            spec.system.settings.push(("order".into(), "spread".into()));
        }
        let report = run(&spec, seed as u64);
        assert_eq!(report.leaders.into_keys().next(), Some(format!("S{sites}")));
    }
}

/// The mean number of rounds, from the time: a round takes N T, and the announcement reaches the last site after N−1 T.
fn mean_rounds(sites: usize, seeds: u64) -> f64 {
    let report = elect(&started_by_all("itai-rodeh", sites, &[]), 1, seeds).unwrap();
    assert!(report.held(), "{:?}", report.violations.first());
    assert_eq!(report.properties.highest_leads, "not claimed");
    assert_eq!(report.leaders.values().sum::<u64>(), seeds);
    (report.time_to_agreement.unwrap() - (sites as f64 - 1.0)) / sites as f64
}

/// Two candidates that draw from 1 and 2 differ with probability 1/2: 2 rounds in the mean. Of three, the highest is
/// unique in 15 of 27 cases, two are equal in 9 and all in 3, and two that draw from 1 to 3 need 3/2 rounds, so that
/// x = 1 + 9/27 · 3/2 + 3/27 · x, which is 27/16. In general, the paper's bound is e·N/(N−1).
#[test]
fn itai_rodeh_needs_the_number_of_rounds_of_the_paper() {
    for (sites, expected) in [(2, 2.0), (3, 27.0 / 16.0)] {
        let rounds = mean_rounds(sites, 4_000);
        assert!((rounds - expected).abs() < 0.06, "{sites} sites: {rounds} rounds, expected {expected}");
    }
    for sites in [4, 5, 9, 17] {
        let rounds = mean_rounds(sites, 1_000);
        let bound = std::f64::consts::E * sites as f64 / (sites as f64 - 1.0);
        assert!(1.0 < rounds && rounds <= bound, "{sites} sites: {rounds} rounds, at most {bound}");
    }
}

/// With a single number to draw, the candidates stay alike for ever. One candidate alone needs no luck.
#[test]
fn itai_rodeh_needs_different_numbers() {
    let report = elect(&started_by_all("itai-rodeh", 3, &[("numbers", "1")]), 1, 1).unwrap();
    assert_eq!(report.properties.termination, "violated");
    assert_eq!(report.properties.one_leader, "held");
    let alone = elect(&election("itai-rodeh", 9, &[(4, 0.0)]), 1, 1).unwrap();
    assert!(alone.held() && alone.leaders.contains_key("S4"), "{:?}", alone.leaders);
}

#[test]
fn itai_rodeh_elects_one_leader_under_random_delays() {
    let mut leaders = std::collections::BTreeSet::new();
    for seed in 0..400_usize {
        let sites = 1 + seed % 9;
        let mut spec = started_by_all("itai-rodeh", sites, &[]);
        spec.initiators.extend(election("", sites, &[(1 + seed * 7 % sites, (seed % 40) as f64)]).initiators);
        spec.system.network.delay = Delay::parse("exponential:1").unwrap();
        spec.system.network.fifo = seed % 2 == 0;
        leaders.extend(run(&spec, seed as u64).leaders.into_keys());
    }
    assert_eq!(leaders.len(), 9, "every site leads in some run: {leaders:?}");
}
