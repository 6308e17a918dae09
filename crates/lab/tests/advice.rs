//! Explanations of algorithms, recommendations, and the size of a site's state.

use lockkeeper_core::registry;
use lockkeeper_lab::comparison::choose::{Advice, ExclusionReason, Fairness, Requirements, Topology, choose};
use lockkeeper_lab::comparison::explain;
use lockkeeper_lab::comparison::table::measure;
use lockkeeper_lab::simulator::spec::{LoadSpec, Spec};
use lockkeeper_lab::{Progress, election};

#[test]
fn every_algorithm_has_a_complete_explanation() {
    for entry in registry::ALL {
        let slug = entry.about.slug;
        let explanation = explain::explain(slug).unwrap();
        for section in ["Idea", "Assumes", "Cost", "Pitfalls"] {
            let text = explanation.header.section(section);
            assert!(text.is_some_and(|text| text.len() > 20), "{slug}: {section}");
            assert!(
                !text.is_some_and(|text| text.contains("](") || text.contains("**")),
                "{slug}: {section}"
            );
        }
        assert!(explanation.header.paper.len() > 40, "{slug}");
        assert!(!explanation.messages.is_empty() && !explanation.rules.is_empty(), "{slug}");
        assert!(explanation.run.steps.len() > 3, "{slug}");
    }
}

#[test]
fn every_election_has_a_complete_explanation() {
    for entry in registry::ELECTIONS {
        let explanation = election::explain::explain(entry.about.slug).unwrap().unwrap();
        for section in ["Idea", "Assumes", "Cost", "Pitfalls"] {
            assert!(explanation.header.section(section).is_some_and(|text| text.len() > 20), "{section}");
        }
        // S1 starts. Where crashes are survived, S4 has crashed.
        let leader = match entry.about.slug {
            "hirschberg-sinclair" => "S4 leads",
            "itai-rodeh" | "raft" => "S1 leads",
            _ => "S3 leads",
        };
        assert!(explanation.run.ending.starts_with(leader), "{}", explanation.run.ending);
    }
    assert!(election::explain::explain("lamport").unwrap().is_none());
}

fn requirements() -> Requirements {
    Requirements {
        sites: 5,
        failures: 0,
        topology: Topology::Lan,
        load: LoadSpec::Low,
        fairness: Fairness::None,
    }
}

fn slugs(advice: &Advice) -> Vec<&str> {
    advice.ranked.iter().map(|candidate| candidate.algorithm.as_str()).collect()
}

#[test]
fn strict_fairness_keeps_only_algorithms_that_grant_by_timestamp() {
    let advice =
        choose(&Requirements { fairness: Fairness::Strict, ..requirements() }, &Progress::default()).unwrap();
    let left = slugs(&advice);
    assert!(left.contains(&"lamport") && left.contains(&"ricart-agrawala"), "{left:?}");
    for slug in ["token-ring", "raymond", "maekawa", "roucairol-carvalho"] {
        assert!(!left.contains(&slug), "{slug} in {left:?}");
    }
    assert!(advice.left_out.iter().any(|(slug, _)| slug == "maekawa-basic"));
}

#[test]
fn share_of_survived_crashes_is_measured() {
    let advice = choose(&Requirements { failures: 1, ..requirements() }, &Progress::default()).unwrap();
    for candidate in &advice.ranked {
        let survived = candidate.survived.unwrap();
        match candidate.algorithm.as_str() {
            "ricart-agrawala" | "lamport" => assert_eq!(survived, 0.0, "it needs a reply from every site"),
            "centralized" => {
                assert!(
                    (0.5..=0.8).contains(&survived),
                    "a crash of the coordinator is not survived: {survived}"
                )
            }
            _ => {}
        }
    }
}

#[test]
fn semaphores_and_readers_writers_locks_are_not_recommended_as_mutexes() {
    let advice = choose(&requirements(), &Progress::default()).unwrap();
    for slug in ["k-mutual-exclusion", "readers-writers"] {
        assert!(!slugs(&advice).contains(&slug));
        let (_, why) = advice.left_out.iter().find(|(left_out, _)| left_out == slug).unwrap();
        assert!(matches!(why, ExclusionReason::Shares(_)), "{why}");
    }
}

#[test]
fn raymond_uses_the_tree_of_the_topology() {
    let advice =
        choose(&Requirements { topology: Topology::Tree, ..requirements() }, &Progress::default()).unwrap();
    let raymond = advice.ranked.iter().find(|candidate| candidate.algorithm == "raymond").unwrap();
    assert_eq!(raymond.settings, [("tree".to_string(), "binary".to_string())]);
    assert!(choose(&Requirements { failures: 5, ..requirements() }, &Progress::default()).is_err());
    assert!(choose(&Requirements { sites: 1, ..requirements() }, &Progress::default()).is_err());
}

#[test]
fn state_of_naimi_trehel_is_constant_and_that_of_lamport_grows_with_n() {
    let size = |algorithm: &str, sites| {
        let spec = Spec { entries: 100, ..Spec::new(algorithm, sites) };
        measure(&spec, 1, &Progress::default()).unwrap().unwrap().max
    };
    assert_eq!(size("naimi-trehel", 5), size("naimi-trehel", 50));
    assert!(size("lamport", 50) > 5 * size("lamport", 5));
}
