//! Raft's election: one leader in each term whatever happens, and a leader when a majority is up.

use super::{at, election, site, t};
use lockkeeper_lab::election::{ElectionSpec, Report, elect};
use lockkeeper_lab::simulator::delay::Delay;
use lockkeeper_lab::simulator::network::Partition;
use lockkeeper_lab::simulator::spec::{Action, DetectorSpec};

fn run(spec: &ElectionSpec, seed: u64) -> Report {
    elect(spec, seed, 1).unwrap()
}

/// All sites miss the leader at the same time, and wait for different times before they become candidates.
#[test]
fn random_timeouts_resolve_split_votes() {
    let mut terms = Vec::new();
    for seed in 0..200 {
        let mut spec = election("raft", 7, &[]);
        spec.system.detector = DetectorSpec::Perfect;
        at(&mut spec, 10.0, Action::Crash(site(7)));
        let report = run(&spec, seed);
        assert!(report.held(), "{}\n{:?}", spec.command(seed), report.violations);
        // Each candidacy sends a request to six sites.
        terms.push(report.by_message["REQUEST-VOTE"] / 6);
    }
    assert!(terms.contains(&1), "one candidate at once in some runs: {terms:?}");
    assert!(terms.iter().any(|candidacies| *candidacies > 1), "a split vote in some runs: {terms:?}");
}

/// Random crashes and restarts of a minority, with delays within the timeout.
#[test]
fn leader_is_elected_while_a_majority_is_up() {
    for seed in 0..300_usize {
        let sites = 3 + seed % 5;
        let mut spec = election("raft", sites, &[(1 + seed % sites, 3.0)]);
        spec.system.detector = DetectorSpec::Perfect;
        spec.system.network.delay = Delay::parse("uniform:0.1..1.4").unwrap();
        let mut down = Vec::new();
        for step in 0..6 {
            let time = 100.0 * f64::from(step) + (seed % 17) as f64 / 3.0;
            let victim = site(1 + (seed * 7 + step as usize * 3) % sites);
            match down.iter().position(|&other| other == victim) {
                Some(place) => at(&mut spec, time, Action::Recover(down.swap_remove(place))),
                None if 2 * (down.len() + 1) < sites => {
                    at(&mut spec, time, Action::Crash(victim));
                    down.push(victim);
                }
                None => {}
            }
        }
        let report = run(&spec, seed as u64);
        assert!(report.held(), "{}\n{:?}", spec.command(seed as u64), report.violations);
    }
}

/// Without a majority, the candidates start one term after the other.
#[test]
fn no_leader_without_a_majority() {
    let mut spec = election("raft", 4, &[(1, 10.0)]);
    at(&mut spec, 10.0, Action::Crash(site(4)));
    at(&mut spec, 10.0, Action::Crash(site(3)));
    let report = run(&spec, 1);
    assert_eq!(report.properties.one_leader, "held");
    assert_eq!(report.properties.agreement, "violated");
    assert_eq!(report.properties.termination, "violated");
}

/// The sites without a majority elect no leader, unlike in the other elections. Afterwards, all follow one leader.
#[test]
fn partition_does_not_lead_to_two_leaders() {
    for (initiator, sides) in
        [(1, "1,2,3|4,5,6,7@30..60"), (5, "1,2,3|4,5,6,7@30..60"), (7, "1,2,3,7|4,5,6@30..60")]
    {
        let mut spec = election("raft", 7, &[(initiator, 31.0)]);
        spec.system.network.partitions = vec![Partition::parse(sides, 7).unwrap()];
        // A site of the other side notices the old leader after the partition.
        spec.initiators.push((site(2), t(70.0)));
        let report = run(&spec, 1);
        assert!(report.held(), "{sides}: {:?}", report.violations);
    }
}

/// Messages slower than the timeout, crashes, restarts and pauses: at most one leader in each term.
#[test]
fn one_leader_in_a_term_when_every_assumption_on_time_is_violated() {
    for seed in 0..100_usize {
        let sites = 3 + seed % 4;
        let initiators: Vec<_> = (1..=sites).map(|number| (number, (seed * number % 20) as f64)).collect();
        let mut spec = election("raft", sites, &initiators);
        spec.system.network.delay = Delay::parse("exponential:2").unwrap();
        spec.system.detector = DetectorSpec::parse("timeout:4").unwrap();
        for victim in 1..=2 {
            let crash = (seed * victim % 23) as f64;
            at(&mut spec, crash, Action::Crash(site(victim)));
            at(&mut spec, crash + 1.0, Action::Recover(site(victim)));
        }
        assert_eq!(run(&spec, seed as u64).properties.one_leader, "held", "{}", spec.command(seed as u64));
    }
}
