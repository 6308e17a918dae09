//! End-to-end tests of `lockkeeper causality`.

use std::process::Command;

/// Runs `causality` with these arguments.
fn causality(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    let output = command.arg("causality").args(args).output().expect("the binary runs");
    (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
}

#[test]
fn clocks_and_relations_of_lamports_figure_do_not_change() {
    let (code, printed) = causality(&["lamport-two-requests", "--event", "S2:2"]);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/golden/causality.txt");
    if std::env::var_os("LOCKKEEPER_BLESS").is_some() {
        std::fs::write(file, &printed).unwrap();
    }
    assert_eq!(printed, std::fs::read_to_string(file).unwrap());
    assert_eq!(code, Some(0));
}

#[test]
fn a_cut_is_judged_and_drawn() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("causality");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("cut.svg");
    let (code, printed) =
        causality(&["lamport-two-requests", "--cut", "S1=1", "--svg", file.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("The cut is consistent"), "{printed}");
    assert!(printed.contains("REQUEST(1) from S1:1 to S2:2"), "{printed}");
    let drawn = std::fs::read_to_string(&file).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("consistent cut"), "{drawn}");

    let (code, printed) = causality(&["lamport-two-requests", "--cut", "S2=2,S3=1"]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(
        printed.contains("inconsistent") && printed.contains("REQUEST(1) from S1:1 to S2:2"),
        "{printed}"
    );
}

#[test]
fn wrong_events_and_cuts_are_usage_errors() {
    assert_eq!(causality(&["lamport-two-requests", "--event", "S9:1"]).0, Some(64));
    assert_eq!(causality(&["lamport-two-requests", "--cut", "S1=99"]).0, Some(64));
    assert_eq!(causality(&["no-such-figure"]).0, Some(64));
}
