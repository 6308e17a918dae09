//! Every order of events in systems of 3 and 4 sites: one crash at any point, where the election survives crashes;
//! elections started spontaneously at any point; and elections started by all survivors when they detect the crash of
//! the leader.
//!
//! The state counts are pinned, so that a change of an election or of the search shows how much is still
//! explored.

use lockkeeper_core::registry;
use lockkeeper_lab::checker::registers::RegisterKind;
use lockkeeper_lab::checker::{CheckReport, CheckSpec, Fault, Faults, SearchLimits, Verdict, check};
use lockkeeper_lab::property::Property;

fn spec(election: &str, sites: usize, initiators: u8, fifo: bool) -> CheckSpec {
    CheckSpec {
        initiators: Some(initiators),
        faults: Faults::default().with(Fault::Crash, survives_crashes(election).into()),
        fifo: Some(fifo),
        limits: SearchLimits::states(3_000_000),
        ..CheckSpec::new(election, sites)
    }
}

fn survives_crashes(election: &str) -> bool {
    registry::find_election(election).is_some_and(|entry| entry.about.survives_crashes)
}

fn explore(spec: &CheckSpec) -> CheckReport {
    check(spec, |_| true).expect("a valid spec")
}

fn holds(election: &str, sites: usize, initiators: u8, fifo: bool, states: u64) {
    let report = explore(&spec(election, sites, initiators, fifo));
    if let Some(counterexample) = report.counterexample {
        panic!("{election}, {sites} sites:\n{counterexample}");
    }
    assert!(report.complete && report.never_fired.is_empty(), "{:?}", report.never_fired);
    assert!(report.properties.len() == 3 && report.properties.values().all(|found| *found == Verdict::Holds));
    assert_eq!(report.distinct, states, "{election}, {sites} sites");
}

#[test]
fn three_sites_bully() {
    holds("bully", 3, 3, true, 9_800);
    holds("bully", 3, 2, false, 5_649);
}

#[test]
fn three_sites_ring_election() {
    holds("ring-election", 3, 2, false, 412_648);
}

#[test]
fn three_sites_chang_roberts() {
    holds("chang-roberts", 3, 3, true, 482_345);
    holds("chang-roberts", 3, 2, false, 156_683);
}

#[test]
fn four_sites_bully() {
    holds("bully", 4, 1, true, 149_277);
}

#[test]
fn four_sites_ring_election() {
    holds("ring-election", 4, 1, true, 1_074_460);
}

#[test]
fn four_sites_chang_roberts() {
    holds("chang-roberts", 4, 1, true, 410_993);
}

#[test]
fn hirschberg_sinclair_with_two_initiators() {
    holds("hirschberg-sinclair", 3, 2, false, 108_912);
    holds("hirschberg-sinclair", 4, 1, true, 1_001);
}

/// The draws of 32 seeds. With numbers from 1 to 2, three candidates often draw the same.
#[test]
fn itai_rodeh_with_every_initiator_and_many_draws() {
    let (mut states, mut never_fired) = (0, None::<Vec<String>>);
    for draw in 0..32 {
        let mut spec = spec("itai-rodeh", 3, 3, false);
        spec.settings = [("numbers", "2".to_string()), ("draw", draw.to_string())]
            .map(|(name, value)| (name.into(), value))
            .into();
        let report = explore(&spec);
        assert!(report.is_verified(), "draw {draw}: {:#?}", report.counterexample);
        assert_eq!(report.properties.len(), 3);
        states += report.distinct;
        match &mut never_fired {
            Some(never) => never.retain(|rule| report.never_fired.contains(rule)),
            none => *none = Some(report.never_fired),
        }
    }
    assert_eq!(never_fired.as_deref(), Some(&[][..]));
    assert_eq!(states, 73_124);
}

#[test]
fn three_sites_raft() {
    holds("raft", 3, 2, true, 8_637);
}

/// Timeouts that are too short and a partition cost Raft the end of the election, but never a second leader in a term.
/// Terms grow without bound then, so that only the shortest runs are searched.
#[test]
fn raft_has_one_leader_in_a_term_whatever_the_timing() {
    for partition in [false, true] {
        let spec = CheckSpec {
            only: Some(Property::OneLeader),
            short_timeouts: true,
            partition,
            limits: SearchLimits::states(60_000),
            ..spec("raft", 3, 2, false)
        };
        let report = explore(&spec);
        assert!(report.counterexample.is_none() && !report.complete && report.distinct >= 60_000);
        let mutant = CheckSpec { algorithm: "raft-votes-twice".into(), ..spec };
        let found = explore(&mutant).counterexample.expect("two leaders in a term");
        assert_eq!(found.violation.property, Property::OneLeader);
    }
}

/// The shortest run to two leaders: only a timeout that expires before the reply.
#[test]
fn timeout_that_is_too_short_leads_to_two_leaders() {
    let breaks = |election, steps| {
        let report = explore(&CheckSpec { short_timeouts: true, ..spec(election, 3, 1, true) });
        let found = report.counterexample.expect("two leaders");
        assert_eq!(found.violation.property, Property::HighestLeads);
        assert_eq!(found.violation.what, "S1 comes to lead although S3 is up");
        assert_eq!(found.steps, steps, "{found}");
    };
    breaks("bully", 2);
    breaks("ring-election", 3);
    breaks("chang-roberts", 3);
}

#[test]
fn several_threads_find_the_same_states_and_the_same_run() {
    for short_timeouts in [false, true] {
        let only = Some(Property::HighestLeads);
        let spec = CheckSpec { only, short_timeouts, ..spec("bully", 3, 2, false) };
        let (one, several) = (explore(&spec), explore(&CheckSpec { threads: 3, ..spec.clone() }));
        assert_eq!(
            (one.distinct, one.generated, one.depth),
            (several.distinct, several.generated, several.depth)
        );
        let story = |report: &CheckReport| report.counterexample.as_ref().map(|found| found.story.clone());
        assert_eq!(story(&one), story(&several));
        assert_eq!(story(&one).is_some(), short_timeouts);
    }
}

#[test]
fn options_of_other_models_are_rejected() {
    for (spec, option) in [
        (CheckSpec { requests: Some(2), ..spec("bully", 3, 1, true) }, "'requests'"),
        (CheckSpec { full: true, ..spec("bully", 3, 1, true) }, "'full'"),
        (CheckSpec { registers: RegisterKind::Safe, ..spec("bully", 3, 1, true) }, "'safe-registers'"),
        (CheckSpec { only: Some(Property::NoDeadlock), ..spec("bully", 3, 1, true) }, "'only no-deadlock'"),
        (CheckSpec { initiators: Some(1), ..CheckSpec::new("lamport", 2) }, "'initiators'"),
    ] {
        let error = check(&spec, |_| true).expect_err(option).to_string();
        assert!(error.starts_with(&format!("{option} cannot be used with '{}'", spec.algorithm)), "{error}");
    }
}
