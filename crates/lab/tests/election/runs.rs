//! Elections in virtual time: crashes, recoveries, several initiators, partitions, detectors.

use super::{at, election, site, t};
use lockkeeper_core::election::Winner;
use lockkeeper_core::registry;
use lockkeeper_lab::election::{ElectionSpec, Property, Report, elect, trace};
use lockkeeper_lab::simulator::delay::Delay;
use lockkeeper_lab::simulator::network::Partition;
use lockkeeper_lab::simulator::spec::{Action, DetectorSpec};
use lockkeeper_lab::trace::Story;

/// The elections of the highest site that survive crashes.
fn names() -> impl Iterator<Item = &'static str> {
    let abouts = registry::ELECTIONS.iter().map(|entry| entry.about);
    abouts.filter(|about| about.winner == Winner::Highest && about.survives_crashes).map(|about| about.slug)
}

fn run(spec: &ElectionSpec) -> Report {
    elect(spec, 1, 1).unwrap()
}

/// The leader on which all sites agree.
fn leader(spec: &ElectionSpec) -> String {
    let report = run(spec);
    assert!(report.held(), "{:?}", report.violations);
    assert_eq!(report.leaders.len(), 1);
    report.leaders.into_keys().next().unwrap()
}

#[test]
fn highest_site_is_elected_for_every_initiator() {
    for name in names() {
        for sites in [2, 3, 7] {
            for initiator in 1..sites {
                let mut spec = election(name, sites, &[(initiator, 10.0)]);
                at(&mut spec, 10.0, Action::Crash(site(sites)));
                assert_eq!(leader(&spec), format!("S{}", sites - 1), "{name}");
            }
        }
        assert_eq!(leader(&election(name, 1, &[(1, 0.0)])), "S1", "{name}, a single site");
    }
}

#[test]
fn concurrent_initiators_elect_one_leader() {
    for name in names() {
        let initiators: Vec<(usize, f64)> = (1..7).map(|number| (number, 10.0)).collect();
        let mut spec = election(name, 7, &initiators);
        at(&mut spec, 10.0, Action::Crash(site(7)));
        assert_eq!(leader(&spec), "S6");
        let report = run(&spec);
        assert!(report.announced.iter().all(|announced| announced.site == site(6)), "{name}");
    }
}

#[test]
fn recovered_site_without_a_leader_starts_an_election() {
    for name in names() {
        let mut spec = election(name, 7, &[(1, 10.0)]);
        at(&mut spec, 10.0, Action::Crash(site(7)));
        at(&mut spec, 50.0, Action::Recover(site(7)));
        assert_eq!(leader(&spec), "S7", "{name}");
        let report = run(&spec);
        assert_eq!(report.announced.first().map(|announced| announced.site), Some(site(6)));
        assert_eq!(
            report.elections.len(),
            2,
            "one after the crash, one after the recovery: {:?}",
            report.elections
        );

        let mut low = election(name, 5, &[]);
        at(&mut low, 1.0, Action::Crash(site(2)));
        at(&mut low, 9.0, Action::Recover(site(2)));
        assert_eq!(leader(&low), "S5", "{name}: it learns the current leader");
    }
}

/// The leader crashes, and then the initiator or the site that is about to be elected, at any time during the
/// election.
#[test]
fn initiators_and_candidates_may_crash_at_any_time() {
    for name in names() {
        for (victim, expected) in [(2, "S6"), (6, "S5"), (5, "S6"), (1, "S6")] {
            for quarter in 0..100 {
                let mut spec = election(name, 7, &[(2, 10.0)]);
                spec.system.detector = DetectorSpec::Perfect;
                at(&mut spec, 10.0, Action::Crash(site(7)));
                at(&mut spec, 10.0 + f64::from(quarter) / 4.0, Action::Crash(site(victim)));
                assert_eq!(leader(&spec), expected, "{}", spec.command(1));
            }
        }
    }
}

/// Random crashes and recoveries, one after the other, with delays within the timeout.
#[test]
fn random_successive_faults_always_end_in_agreement() {
    for name in names() {
        for seed in 0..300_usize {
            let sites = 2 + seed % 6;
            let mut spec = election(name, sites, &[(1 + seed % sites, 3.0)]);
            spec.system.detector = DetectorSpec::Perfect;
            spec.system.network.delay = Delay::parse("uniform:0.1..1.4").unwrap();
            let mut down = Vec::new();
            for step in 0..5 {
                let time = 60.0 * f64::from(step) + (seed % 17) as f64 / 3.0;
                let victim = site(1 + (seed * 7 + step as usize * 3) % sites);
                match down.iter().position(|&other| other == victim) {
                    Some(place) => at(&mut spec, time, Action::Recover(down.swap_remove(place))),
                    None if down.len() + 1 < sites => {
                        at(&mut spec, time, Action::Crash(victim));
                        down.push(victim);
                    }
                    None => {}
                }
            }
            let report = elect(&spec, seed as u64, 1).unwrap();
            assert!(report.held(), "{}\n{:?}", spec.command(seed as u64), report.violations);
        }
    }
}

/// Each side has a leader, and there are still two after the partition, until a site starts another election.
#[test]
fn partition_leads_to_a_leader_on_each_side() {
    for name in names() {
        let mut spec = election(name, 7, &[(1, 31.0)]);
        spec.system.network.partitions = vec![Partition::parse("1,2,3|4,5,6,7@30..60", 7).unwrap()];
        let report = run(&spec);
        assert_eq!(report.properties.highest_leads, "violated", "{name}");
        assert_eq!(report.properties.agreement, "violated", "{name}");
        let found =
            report.violations.iter().find(|found| found.violation.property == Property::Agreement).unwrap();
        assert_eq!(found.violation.what, "S1, S2, S3 follow S3; S4, S5, S6, S7 follow S7");

        spec.initiators.push((site(2), t(70.0)));
        let report = run(&spec);
        assert_eq!(
            report.properties.agreement, "held",
            "{name}: an election after the partition finds the highest site"
        );
    }
}

/// Delays that occasionally exceed what the timeout allows: two leaders, with the command that reproduces it.
#[test]
fn slow_messages_lead_to_two_leaders() {
    for name in names() {
        let mut spec = election(name, 5, &[(1, 0.0)]);
        spec.system.network.delay = Delay::parse("exponential:1").unwrap();
        let report = elect(&spec, 1, 50).unwrap();
        assert_eq!(report.properties.highest_leads, "violated", "{name}");
        let found = &report.violations[0];
        let again = elect(&spec, found.seed, 1).unwrap();
        assert_eq!(again.violations[0].violation, found.violation);
        assert!(found.reproduce.starts_with(&format!("lockkeeper sim --election {name} --sites 5")));

        spec.system.settings.push(("timeout".into(), "40".into()));
        let report = elect(&spec, 1, 50).unwrap();
        assert!(report.held(), "{name}: a longer timeout helps: {:?}", report.violations.first());
    }
}

/// The three detectors: perfect, by timeout, and with false suspicions.
#[test]
fn detectors_start_elections() {
    for name in names() {
        let mut spec = election(name, 5, &[]);
        at(&mut spec, 10.0, Action::Crash(site(5)));
        let report = run(&spec);
        assert_eq!(
            report.properties.agreement, "violated",
            "{name}: no site detects the crash without a detector"
        );
        for detector in ["perfect", "timeout:4"] {
            spec.system.detector = DetectorSpec::parse(detector).unwrap();
            assert_eq!(leader(&spec), "S4", "{name}, {detector}");
        }
        // The old leader is slow and has not crashed: it still leads, and the timeout makes another site
        // leader beside it.
        let mut slow = election(name, 5, &[]);
        slow.system.detector = DetectorSpec::parse("timeout:4").unwrap();
        at(&mut slow, 10.0, Action::Pause(site(5)));
        at(&mut slow, 60.0, Action::Resume(site(5)));
        assert_eq!(run(&slow).properties.highest_leads, "violated", "{name}");
    }
}

#[test]
fn trace_describes_each_step_in_a_sentence() {
    let mut spec = election("bully", 3, &[(1, 10.0)]);
    at(&mut spec, 10.0, Action::Crash(site(3)));
    let mut story = Story::default();
    trace(&spec, 1, &mut story).unwrap();
    let lines: Vec<String> = story.lines.iter().map(|(at, line)| format!("{at} {line}")).collect();
    assert_eq!(
        lines,
        [
            "0 S3 leads.",
            "10 S3 crashes.",
            "10 S1 misses the leader: it asks every higher site whether it is there. It sends ELECTION to S2, S3.",
            "11 S2 receives ELECTION from S1: it answers the lower site; it asks every higher site whether it is there. \
             It sends OK to S1. It sends ELECTION to S3.",
            "11 ELECTION from S1 to S3 is lost.",
            "12 S1 receives OK from S2: it learns that a higher site is up, and waits.",
            "12 ELECTION from S2 to S3 is lost.",
            "14 a timer of S2 runs out: it finds no higher site that is up and announces itself. \
             It sends COORDINATOR to S1.",
            "14 S2 leads.",
            "15 S1 receives COORDINATOR from S2: it accepts the leader.",
            "15 S1 takes S2 for the leader.",
            "17 a timer of S2 runs out.",
        ]
    );
}

#[test]
fn invalid_elections_are_rejected() {
    let refused = |spec: &ElectionSpec| elect(spec, 1, 1).unwrap_err().to_string();
    assert!(refused(&election("bully", 3, &[(4, 0.0)])).contains("there is no site S4"));
    assert!(refused(&election("bullly", 3, &[])).contains("there is bully, ring-election, chang-roberts, "));
    assert!(refused(&election("bully", 0, &[])).contains("between 1 and"));
    let mut spec = election("bully", 3, &[]);
    spec.system.settings.push(("timeout".into(), "0".into()));
    assert!(refused(&spec).contains("a time between"));
    spec.system.settings = vec![("colour".into(), "blue".into())];
    assert!(refused(&spec).contains("there is timeout"));
}
