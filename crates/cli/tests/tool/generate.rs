//! End-to-end tests of `completions` and `man`.

use std::process::{Command, Output};

fn lockkeeper(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lockkeeper")).args(args).output().unwrap()
}

fn stdout(args: &[&str]) -> String {
    let output = lockkeeper(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn completions_and_man_pages_are_generated() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&["completions", shell]).contains("conflict-exit-code"), "{shell}");
    }
    stdout(&["man", &home.path().display().to_string()]);
    let page = std::fs::read_to_string(home.path().join("lockkeeper-run.1")).unwrap();
    assert!(page.contains("nonblock") && page.contains("Exit codes"));
    // A missing directory is created; a path through a file is an error.
    let below = home.path().join("made/for/it").display().to_string();
    assert_eq!(lockkeeper(&["man", &below]).status.code(), Some(0));
    let inside_a_file = home.path().join("lockkeeper-run.1/x").display().to_string();
    assert_eq!(lockkeeper(&["man", &inside_a_file]).status.code(), Some(69));
}
