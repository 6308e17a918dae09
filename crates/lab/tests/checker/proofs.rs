//! Every algorithm has a proof sketch, whose steps the checker verifies; a mutant fails the step that relies on the
//! guard that it lacks.

use lockkeeper_core::registry;
use lockkeeper_lab::checker::{CheckSpec, ModelKind, SearchProgress, registers};
use lockkeeper_lab::proof::{Guard, ONE_TOKEN, Part, ProofStep, Sketch, StepVerdict};
use lockkeeper_lab::property::Property;
use rayon::prelude::*;
use std::path::Path;

/// The names of all algorithms, elections and algorithms for registers, without mutants.
fn all_names() -> Vec<&'static str> {
    let mutexes = registry::ALL.iter().map(|entry| entry.about.slug);
    let elections = registry::ELECTIONS.iter().map(|entry| entry.about.slug);
    let programs = registers::ALL.iter().filter(|about| about.mutant_of.is_none()).map(|about| about.slug);
    mutexes.chain(elections).chain(programs).collect()
}

const MOST_STATES: u64 = 1_000_000;

fn go_on(progress: SearchProgress) -> bool {
    progress.distinct < MOST_STATES
}

/// The sources of all algorithms, in which the sentences of the invariants are.
fn sources() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src/algorithms");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

#[test]
fn every_algorithm_has_a_sketch_of_safety_and_liveness() {
    let sources = sources();
    for name in all_names() {
        let sketch =
            Sketch::of(name).unwrap_or_else(|| panic!("{name} has no proof sketch in crates/lab/proofs"));
        for part in [Part::Safety, Part::Liveness] {
            assert!(sketch.steps.iter().any(|step| step.part == part), "{name}: {part}");
        }
        let kind = ModelKind::of(name).unwrap();
        for (place, step) in sketch.steps.iter().enumerate() {
            assert!(kind.properties().contains(&step.property), "{name}: {}", step.claim());
            if let Some(sentence) = step.invariant.filter(|sentence| *sentence != ONE_TOKEN) {
                assert!(
                    sources.contains(&format!("InvariantViolated(\"{sentence}\")")),
                    "{name}: {sentence}"
                );
            }
            let same =
                |other: &ProofStep| (other.property, other.invariant) == (step.property, step.invariant);
            assert!(!sketch.steps[..place].iter().any(same), "{name}: two steps claim {}", step.claim());
        }
    }
    assert_eq!(Sketch::of("no-such-algorithm"), None);
}

#[test]
fn the_checker_verifies_every_step() {
    all_names().into_par_iter().for_each(|name| {
        let sketch = Sketch::of(name).unwrap();
        let verdicts = sketch.verify(&sketch.spec(name, None), go_on).unwrap();
        for (step, verdict) in sketch.steps.iter().zip(verdicts) {
            let as_claimed = match verdict {
                StepVerdict::Holds { .. } => !step.refuted,
                StepVerdict::Violated { .. } => step.refuted,
                StepVerdict::Undecided { .. } => false,
            };
            assert!(as_claimed, "{name}: {}: {verdict:?}", step.claim());
        }
    });
}

/// Small systems that show a mutant: sites and requests of each.
const LADDER: [(usize, Option<u8>); 5] = [(2, Some(1)), (2, Some(2)), (3, Some(1)), (3, Some(2)), (2, None)];

/// The steps that fail for a mutant, in the smallest system in which one does.
fn failing(sketch: &Sketch, mutant: &str) -> Vec<usize> {
    let has_requests = ModelKind::of(mutant) == Some(ModelKind::MutualExclusion);
    for (sites, requests) in LADDER {
        let requests = if has_requests { requests } else { Some(1) };
        let spec = CheckSpec { requests, ..sketch.spec(mutant, Some(sites)) };
        let verdicts = sketch.verify(&spec, go_on).unwrap();
        let failing: Vec<usize> = (0..verdicts.len())
            .filter(|step| matches!(verdicts[*step], StepVerdict::Violated { .. }))
            .collect();
        if !failing.is_empty() {
            return failing;
        }
    }
    Vec::new()
}

#[test]
fn a_mutant_fails_just_the_step_that_names_its_guard() {
    // The sketch of `maekawa` is also that of its variants, and names its mutants.
    let names = all_names().into_iter().filter(|name| !["majority", "tree-quorum"].contains(name));
    let guards: Vec<(Sketch, usize, Guard)> = names
        .flat_map(|name| {
            let sketch = Sketch::of(name).unwrap();
            let steps = sketch.steps.iter().enumerate();
            let guards = steps.flat_map(|(place, step)| step.guards.iter().map(move |guard| (place, *guard)));
            guards.map(|(place, guard)| (sketch.clone(), place, guard)).collect::<Vec<_>>()
        })
        .collect();
    assert!(guards.len() > 40, "{}", guards.len());
    let wrong = guards.par_iter().filter_map(|(sketch, place, guard)| {
        let mut failing = failing(sketch, guard.mutant);
        // A site that waits in a deadlock starves.
        if sketch.steps[*place].property == Property::NoDeadlock {
            failing.retain(|failing| sketch.steps[*failing].property != Property::NoStarvation);
        }
        let right = match guard.alone {
            true => failing == [*place],
            false => failing.first() == Some(place) && failing.len() > 1,
        };
        let claims: Vec<String> = failing.iter().map(|step| sketch.steps[*step].claim()).collect();
        let claim = sketch.steps[*place].claim();
        (!right).then(|| format!("{} fails {claims:?}, and is named at {claim}", guard.mutant))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_text_that_is_no_sketch_is_rejected() {
    for wrong in [
        "safety\nAn argument without a claim.",
        "safety\nAn argument.\n  = no-such-property",
        "safety\n  = no-deadlock",
        "safety\nAn argument.\n  = invariants",
        "  - a-mutant",
        "doors: 3",
    ] {
        assert!(Sketch::parse(wrong).is_err(), "{wrong}");
    }
    let sketch =
        Sketch::parse("sites: 4\nliveness\nIt goes\non.\n  = no-deadlock (violated)\n  - m\n  ~ n").unwrap();
    assert_eq!(sketch.sites, Some(4));
    assert_eq!(sketch.steps[0].text, "It goes on.");
    assert!(sketch.steps[0].refuted);
    assert_eq!(
        sketch.steps[0].guards,
        [Guard { mutant: "m", alone: true }, Guard { mutant: "n", alone: false }]
    );
}
