//! End-to-end tests of `lockkeeper flp`.

use std::process::{Command, Stdio};

/// Runs `flp` without a terminal.
fn flp(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    let output = command.arg("flp").args(args).stdin(Stdio::null()).output().expect("the binary runs");
    (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
}

#[test]
fn the_lesson_does_not_change() {
    let (code, printed) = flp(&[]);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/golden/flp.txt");
    if std::env::var_os("LOCKKEEPER_BLESS").is_some() {
        std::fs::write(file, &printed).unwrap();
    }
    assert_eq!(printed, std::fs::read_to_string(file).unwrap());
    assert_eq!(code, Some(0));
}

#[test]
fn one_protocol_is_shown_with_as_many_steps_as_requested() {
    let (code, printed) = flp(&["--protocol", "rounds", "--steps", "30"]);
    assert_eq!(code, Some(0));
    assert_eq!(printed.matches("\nstep ").count(), 30, "{printed}");
    assert!(!printed.contains("wait-for-all"));
    let (code, printed) = flp(&["--protocol", "wait-for-all"]);
    assert_eq!(code, Some(0));
    assert!(printed.contains("it blocks"), "{printed}");
    assert_eq!(flp(&["--protocol", "paxos"]).0, Some(64));
}
