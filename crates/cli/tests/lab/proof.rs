//! End-to-end tests of `lockkeeper proof`.

use std::process::Command;

/// Runs `proof` with these arguments.
fn proof(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    let output = command.arg("proof").args(args).output().expect("the binary runs");
    (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
}

#[test]
fn a_sketch_is_printed_and_each_step_is_verified() {
    let (code, printed) = proof(&["ricart-agrawala"]);
    assert_eq!(code, Some(0));
    assert!(printed.contains("Safety\n  1. ") && printed.contains("Liveness\n"), "{printed}");
    assert!(!printed.contains('✓'), "{printed}");
    let (code, printed) = proof(&["ricart-agrawala", "--check", "--sites", "2"]);
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(printed.matches("✓ holds in every reachable state").count(), 5, "{printed}");
}

#[test]
fn a_mutant_fails_one_step() {
    let (code, printed) = proof(&["ricart-agrawala-ties-unbroken", "--check", "--sites", "2"]);
    assert_eq!(code, Some(2), "{printed}");
    assert_eq!(printed.matches("✗ violated").count(), 1, "{printed}");
    assert!(printed.contains("✗ violated: S2 enters while S1 is inside"), "{printed}");
}

#[test]
fn a_step_that_states_a_violation_is_verified_by_one() {
    let (code, printed) = proof(&["maekawa-basic", "--check"]);
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(printed.matches("✓ violated").count(), 2, "{printed}");
}

#[test]
fn an_unfinished_search_and_unknown_names_have_their_exit_codes() {
    let (code, printed) = proof(&["lamport", "--check", "--most-states", "500"]);
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("? not decided"), "{printed}");
    assert_eq!(proof(&["no-such-algorithm"]).0, Some(64));
}
