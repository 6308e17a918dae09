//! The examples run, end by themselves, and print what they claim.

use std::path::PathBuf;
use std::process::Command;

/// An example that cargo has built beside this test: with `cargo test`, or `cargo build --examples --all-features`.
fn run(name: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let folder: PathBuf = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples");
    let program = folder.join(name);
    assert!(program.exists(), "{} is missing: cargo build --examples --all-features", program.display());
    // A time limit that only an example that never ends reaches.
    let output = Command::new("timeout").arg("240").arg(program).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{name}: {printed}{}", String::from_utf8_lossy(&output.stderr));
    printed
}

#[test]
fn a_handler_writes_with_a_fence() {
    let printed = run("axum_handler");
    assert!(printed.contains("8 of 8 requests at once: order 42 has 8 parts"), "{printed}");
    assert!(printed.contains("order 7: HTTP/1.1 200 OK"), "{printed}");
    assert!(printed.contains("the paused handler is rejected: stale fence"), "{printed}");
}

#[test]
fn a_job_of_several_machines_runs_once() {
    let printed = run("cron");
    assert!(printed.contains("the job ran 1 time(s)"), "{printed}");
    assert_eq!(printed.matches("another machine has the job").count(), 2, "{printed}");
}

#[test]
fn a_leader_hands_over() {
    let lines: Vec<String> = run("leader_handover").lines().map(str::to_owned).collect();
    let at =
        |line: &str| lines.iter().position(|printed| printed == line).unwrap_or_else(|| panic!("{lines:?}"));
    assert!(at("anna leads") < at("anna has finished its work, and resigns"));
    assert!(at("anna has finished its work, and resigns") < at("bert leads"));
    assert!(at("observers see bert") < at("bert has finished its work, and resigns"));
}

#[test]
fn a_work_queue_respects_its_semaphore() {
    let printed = run("work_queue");
    assert!(printed.contains("12 of 12 jobs done by 6 workers, at most "), "{printed}");
}

#[test]
fn readers_of_a_cache_find_whole_entries() {
    let printed = run("cache_directory");
    assert!(
        printed.contains("100 of 100 reads found files that fit each other, beside 10 writes"),
        "{printed}"
    );
}

#[test]
fn three_members_in_one_program_exclude_each_other_and_survive_a_crash() {
    let printed = run("embedded_cluster");
    for line in ["3 members serve", "30 increments by 3 members: 30", "2 more after a crash: 32"] {
        assert!(printed.contains(line), "{printed}");
    }
}

#[test]
fn a_paused_holder_is_rejected() {
    let printed = run("paused_holder");
    assert!(printed.contains("A is rejected: stale fence") && printed.contains("still 70"), "{printed}");
}
