//! The recordings that the page shows.

use lockkeeper_core::election::Winner;
use lockkeeper_core::mutex::Family;
use lockkeeper_core::{Phase, SiteId, registry};
use lockkeeper_lab::checker::counterexamples;
use lockkeeper_lab::election::ElectionSpec;
use lockkeeper_lab::simulator::spec::{Action, Scripted};
use lockkeeper_lab::trace::recording::{Limits, Recording, record, record_election, record_run};
use lockkeeper_lab::{Progress, Scenario, Spec, Time};

const LIMITS: Limits = Limits { processes: 64, steps: 20_000, messages: 60_000 };

fn recorded(spec: &Spec) -> Recording {
    record(spec, 1, LIMITS, &Progress::default())
        .unwrap_or_else(|error| panic!("{}: {error}", spec.algorithm))
}

#[test]
fn every_algorithm_has_readable_state_fields() {
    for entry in registry::ALL {
        let slug = entry.about.slug;
        let mut spec = Spec::new(slug, 7);
        (spec.entries, spec.warmup) = (20, Some(0));
        let run = recorded(&spec);
        for (name, states) in run.names.iter().zip(&run.states) {
            assert_eq!(states[0].0, 0, "{slug}: {name} has a state at the start");
            for (_, state) in states {
                assert!(!state.fields.is_empty(), "{slug}: {name} has no fields");
                for field in &state.fields {
                    let printed =
                        ["{", "}", "Some(", "None", "::"].iter().any(|sign| field.value.contains(sign));
                    assert!(!printed, "{slug}: {name} has the field {}: {}", field.name, field.value);
                }
            }
        }
        let waited = run.states.iter().flatten().any(|(_, state)| state.phase == Phase::Waiting);
        assert!(waited, "{slug}: a site waits");
        check_messages(&run, slug);
        let quorums = run.states.iter().take(7).all(|states| !states[0].1.quorum.is_empty());
        assert_eq!(quorums, entry.about.family == Family::Quorum, "{slug}");
    }
}

fn check_messages(run: &Recording, slug: &str) {
    assert!(!run.messages.is_empty(), "{slug}");
    for message in &run.messages {
        assert!(message.sent < run.steps.len(), "{slug}");
        if let Some(ended) = message.ended {
            assert!(message.sent < ended, "{slug}: nothing arrives before it is sent");
            assert!(message.lost || run.steps[ended].site == Some(message.to), "{slug}");
            assert!(message.lost || run.steps[ended].say.contains(&message.text), "{slug}");
        }
    }
}

/// The tree follows the token: when no message is under way, all pointers lead to the token.
#[test]
fn pointers_lead_to_the_token() {
    for slug in ["raymond", "naimi-trehel", "neilsen-mizuno", "gate"] {
        let mut spec = Spec::new(slug, 7);
        (spec.entries, spec.warmup, spec.load) =
            (20, Some(0), lockkeeper_lab::simulator::spec::LoadSpec::Low);
        let run = recorded(&spec);
        let at_end: Vec<_> = run.states.iter().map(|states| &states.last().expect("a state").1).collect();
        for start in 0..7 {
            let mut at = start;
            for _ in 0..7 {
                at = at_end[at].points_to.map_or(at, |next| next.index());
            }
            assert_eq!(at_end[at].tokens, 1, "{slug}: the pointers from S{} lead to the token", start + 1);
        }
    }
}

#[test]
fn counterexamples_end_in_their_violation() {
    for failure in counterexamples::ALL {
        let run = match failure.scenario() {
            Some(text) => {
                let run = Scenario::parse(failure.name, text).unwrap().run_spec();
                record_run(&run, 1, LIMITS, &Progress::default()).unwrap()
            }
            None => failure.recording(),
        };
        assert!(run.steps.len() > 3 && run.names.len() >= 2, "{}", failure.name);
        let violated = !run.wrong.is_empty();
        assert_eq!(violated, failure.scenario().is_some(), "{}", failure.name);
        let two_inside = run
            .states
            .iter()
            .filter(|states| states.last().is_some_and(|(_, state)| state.phase == Phase::Inside));
        let expected = match failure.name {
            "lamport-on-channels-that-reorder"
            | "bakery-without-choosing"
            // The sites that lead count as inside: S1 here, and S3 on the other side of the partition.
            | "bully-under-partition"
            | "two-tokens-after-a-hasty-regeneration" => 2,
            _ => 0,
        };
        assert_eq!(two_inside.count(), expected, "{}", failure.name);
    }
}

#[test]
fn long_run_is_cut_off_and_marked_as_such() {
    let spec = Spec { entries: 1_000_000, ..Spec::new("lamport", 9) };
    let run = record(&spec, 1, Limits { steps: 500, ..LIMITS }, &Progress::default()).unwrap();
    assert!(run.cut_off && run.steps.len() == 500 && run.wrong.is_empty() && run.summary.is_empty());
    let many = record(&Spec::new("lamport", 100), 1, LIMITS, &Progress::default()).unwrap_err();
    assert!(many.to_string().contains("at most 64 processes"), "{many}");
}

/// Every site points to the leader that it knows: after the crash of the highest site, to the next one.
#[test]
fn all_sites_point_to_the_leader_after_an_election() {
    let survivors = registry::ELECTIONS.iter().filter(|entry| entry.about.survives_crashes);
    for entry in survivors.filter(|entry| entry.about.winner == Winner::Highest) {
        let mut spec = ElectionSpec::new(entry.about.slug, 5);
        spec.system.script = vec![Scripted { at: Time::UNIT, action: Action::Crash(SiteId(4)) }];
        spec.initiators = vec![(SiteId(0), Time::UNIT)];
        let run = record_election(&spec, 1, LIMITS).unwrap();
        assert!(
            run.election && run.wrong.is_empty() && run.summary.starts_with("S4 leads"),
            "{}",
            run.summary
        );
        let last = |site: usize| &run.states[site].last().expect("a state").1;
        assert!((0..3).all(|site| last(site).points_to == Some(SiteId(3))), "{}", entry.about.slug);
        assert!(last(3).points_to.is_none() && last(3).phase == Phase::Inside && !last(4).up);
    }
}
