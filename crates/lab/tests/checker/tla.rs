//! The TLA+ module of a system has the states and steps that the checker counts.

use lockkeeper_lab::checker::registers::RegisterKind;
use lockkeeper_lab::checker::{CheckSpec, ModelKind, check, tla};
use std::collections::BTreeSet;

/// The numbers of each line between `name == <<` and `>>`.
fn successors(module: &str) -> Vec<Vec<usize>> {
    let lines = module.lines().skip_while(|line| *line != "Succ == <<").skip(1);
    let lines = lines.take_while(|line| *line != ">>");
    let numbers = |line: &str| {
        let tuple = line.trim().strip_prefix("<<").and_then(|rest| rest.split_once(">>")).expect("a tuple").0;
        tuple.split(", ").filter(|number| !number.is_empty()).map(|number| number.parse().unwrap()).collect()
    };
    lines.map(numbers).collect()
}

/// The sets of the tuple of this name.
fn sets(module: &str, name: &str) -> Vec<usize> {
    let begin = format!("{name} == <<");
    let lines = module.lines().skip_while(|line| *line != begin).skip(1).take_while(|line| *line != ">>");
    let size = |set: &str| set.split_once('}').unwrap().0.split(',').filter(|site| !site.is_empty()).count();
    lines.flat_map(|line| line.split('{').skip(1).map(size).collect::<Vec<_>>()).collect()
}

/// What TLC would count: distinct states, generated states, and those that violate the invariants.
fn explored(module: &str) -> (u64, u64, usize, usize) {
    let (successors, inside, waiting) = (successors(module), sets(module, "Inside"), sets(module, "Waiting"));
    assert!(successors.len() == inside.len() && successors.len() == waiting.len());
    assert!(module.contains("Init == state \\in 1..1\n"));
    let (mut seen, mut open, mut generated) = (BTreeSet::from([1]), vec![1], 1);
    while let Some(state) = open.pop() {
        for &next in &successors[state - 1] {
            generated += 1;
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    let together = seen.iter().filter(|state| inside[**state - 1] > 1).count();
    let stuck =
        seen.iter().filter(|state| waiting[**state - 1] > 0 && successors[**state - 1].is_empty()).count();
    (seen.len() as u64, generated, together, stuck)
}

#[test]
fn module_has_the_states_and_steps_that_the_checker_counts() {
    let registers = |name: &str, kind| CheckSpec { registers: kind, ..CheckSpec::new(name, 2) };
    let specs = [
        CheckSpec::new("ricart-agrawala", 2).requests(2),
        CheckSpec::new("lamport", 2).requests(2),
        CheckSpec::new("maekawa", 2).requests(2),
        CheckSpec::new("suzuki-kasami", 2).requests(2),
        CheckSpec::new("naimi-trehel", 3),
        CheckSpec::new("readers-writers", 2),
        registers("dijkstra", RegisterKind::Atomic),
        registers("bakery", RegisterKind::Safe),
        registers("mcs", RegisterKind::Atomic),
    ];
    for spec in specs {
        // Models of registers have no reduction.
        let full = ModelKind::of(&spec.algorithm) == Some(ModelKind::MutualExclusion);
        let spec = CheckSpec { full, ..spec };
        let report = check(&spec, |_| true).unwrap();
        assert!(report.complete && report.is_verified(), "{}", spec.algorithm);
        let module = tla::module(&spec, "Checked").unwrap();
        let (states, generated, together, stuck) = explored(&module.module);
        assert_eq!(
            (states, generated),
            (report.distinct, report.generated - report.cut),
            "{}",
            spec.algorithm
        );
        assert_eq!((module.states as u64, module.steps as u64 + 1), (states, generated));
        assert_eq!(stuck, 0);
        if spec.algorithm != "readers-writers" {
            assert_eq!(together, 0, "{}", spec.algorithm);
            assert!(module.config.contains("INVARIANT MutualExclusion"));
        }
    }
}

#[test]
fn invariants_of_the_module_find_what_the_checker_finds() {
    let broken = tla::module(&CheckSpec::new("bakery-without-choosing", 2), "Broken").unwrap();
    assert!(explored(&broken.module).2 > 0, "two processes are inside");
    let deadlock = tla::module(&CheckSpec::new("maekawa-basic", 3), "Deadlock").unwrap();
    assert!(explored(&deadlock.module).3 > 0, "all sites wait, and no step is possible");
    assert!(
        deadlock.module.starts_with("---- MODULE Deadlock ----\n") && deadlock.module.ends_with("\n====\n")
    );
    assert!(deadlock.module.is_ascii());
}

#[test]
fn wrong_names_elections_and_large_systems_are_rejected() {
    let error = |spec: &CheckSpec, name: &str| tla::module(spec, name).unwrap_err().to_string();
    let small = CheckSpec::new("lamport", 2);
    for name in ["", "1st", "ring-1", "../up"] {
        assert!(error(&small, name).contains("letters, digits and _"), "{name}");
    }
    assert!(error(&CheckSpec::new("bully", 3), "Bully").contains("is an election"));
    assert!(error(&CheckSpec::new("lamport", 3).requests(3), "Large").contains("more than 50000 states"));
}
