//! End-to-end tests of `lockkeeper step` and `lockkeeper lab`.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

fn lockkeeper() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
}

/// Runs `step` with these keys as input.
fn step(args: &[&str], keys: &str) -> Output {
    let mut command = lockkeeper();
    command.arg("step").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    // A command that rejects its options ends without reading.
    match child.stdin.take().expect("it is piped").write_all(keys.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("it cannot be written to: {error}"),
        _ => {}
    }
    child.wait_with_output().expect("it ends")
}

#[test]
fn maekawas_triangle_is_driven_into_its_deadlock_with_keys() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("by-hand");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("deadlock.scenario");
    let file = file.to_str().unwrap();
    // The first choice three times: S1, then S2 and S3 after the messages in flight; then the three messages.
    let output = step(&["maekawa-basic", "--save", file], "1 2 3 111 u1 w q");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("deadlock at 6 T"), "{printed}");
    assert!(
        printed.contains("S1 waiting  quorum: S1, S2 · votes: S1 · voted for: S1 · queue: S3"),
        "{printed}"
    );
    let replay = lockkeeper().args(["replay", file]).output().unwrap();
    let printed = String::from_utf8_lossy(&replay.stdout);
    assert_eq!(replay.status.code(), Some(2), "{printed}");
    assert!(printed.contains("S1 waits for S2; S2 waits for S3; S3 waits for S1"), "{printed}");
}

#[test]
fn election_is_driven_with_keys_and_replayed() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("by-hand-election");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("bully.scenario");
    let file = file.to_str().unwrap();
    // S3 crashes, and S1 misses it; ELECTION arrives at S2, and OK at S1; the timer of S2 expires, and COORDINATOR
    // arrives at S1.
    let output = step(&["bully", "--save", file], "6 1 1 2 7 3 w p q");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    for part in [
        "S3 leads    state: quiet",
        "▶ send ELECTION to every higher site",
        "S2 leads    state: has announced",
    ] {
        assert!(printed.contains(part), "{part}\n{printed}");
    }
    // The whole pseudo-code, with the line of the last step.
    assert!(printed.contains("  ▶ 10      if i > k: leader := i"), "{printed}");
    let saved = std::fs::read_to_string(file).unwrap();
    assert!(saved.contains("election: bully\n") && saved.contains("S1 campaigns"), "{saved}");
    let replay = lockkeeper().args(["replay", file]).output().unwrap();
    let printed = String::from_utf8_lossy(&replay.stdout);
    assert!(replay.status.success() && printed.contains("S1 takes S2 for the leader"), "{printed}");
}

#[test]
fn answers_to_exercises_are_graded() {
    let quiz = |args: &[&str], lines: &str| {
        let mut command = lockkeeper();
        command.arg("quiz").args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        child.stdin.take().expect("it is piped").write_all(lines.as_bytes()).unwrap();
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let solutions = quiz(&["--seed", "1", "--questions", "2", "--answers"], "");
    let right: Vec<&str> = solutions.lines().filter_map(|line| line.strip_prefix("The answer is ")).collect();
    assert_eq!(right.len(), 2, "{solutions}");
    // A line that is no answer is asked again; a right answer, then the end of the input.
    let graded = quiz(&["--seed", "1"], &format!("perhaps\n{}\n", right[0]));
    assert!(
        graded.contains("not 'perhaps'") && graded.contains(&format!("✓ right: {}", right[0])),
        "{graded}"
    );
    assert!(graded.ends_with("1 of 1 right.\n"), "{graded}");
    let json = quiz(&["--json", "--questions", "3", "--answers"], "");
    for line in json.lines() {
        let question: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(question["answer"].is_string() && question["text"].is_string(), "{question}");
    }
    assert_eq!(json.lines().count(), 3);
}

#[test]
fn explanation_has_pseudo_code_and_names_its_lines() {
    for (name, parts) in [
        ("lamport", ["L1: it has received from every other site a message", "REQUEST(1) to S2, S3. [2, 3]"]),
        ("bully", ["send ELECTION to every higher site", "ELECTION to S2, S3, S4. [2]"]),
    ] {
        let output = lockkeeper().args(["explain", name]).output().unwrap();
        let printed =
            String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        for part in parts {
            assert!(printed.contains(part), "{part}\n{printed}");
        }
    }
}

#[test]
fn read_of_the_bakery_flickers_as_the_keys_choose() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("by-hand-registers");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("run.txt");
    let bakery = ["bakery", "--sites", "2", "--safe-registers", "--save", file.to_str().unwrap()];
    // P1 begins to write choosing[1]; then the second choice is P2's first step. P1 ends its write, and reads.
    let output = step(&bakery, "1 1 1 1 2 2 5 w q");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("number[1]      undefined  being written by P1"), "{printed}");
    for value in 0..=4 {
        let choice = format!("P2 reads number[1] while it is being written, and gets {value}");
        assert!(printed.contains(&choice), "{value}: {printed}");
    }
    let run = std::fs::read_to_string(&file).unwrap();
    assert!(run.starts_with(
        "bakery, driven by hand\n   1. P1 begins to write choosing[1] := true (wants to enter)\n"
    ));
    assert!(run.contains("   7. P2 reads number[1] while it is being written, and gets 3\n"), "{run}");
}

#[test]
fn two_threads_are_driven_inside_together() {
    let output = step(&["bakery-without-choosing", "-n", "2"], "1 2 2 2 1 1 q");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("mutual exclusion is violated: P1 and P2 are both inside"), "{printed}");
}

#[test]
fn options_of_the_other_kind_of_algorithm_are_rejected() {
    for (args, part) in [
        (&["bakery", "--non-fifo"][..], "'non-fifo' cannot be used with 'bakery'"),
        (&["lamport", "--safe-registers"][..], "'safe-registers' cannot be used with 'lamport'"),
        (&["bakery", "--sites", "4"][..], "2 to 3 processes that share registers, not 4"),
    ] {
        let output = step(args, "q");
        assert_eq!(output.status.code(), Some(64), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(part), "{output:?}");
    }
}

#[test]
fn algorithms_for_shared_memory_are_explained_with_runs_on_registers() {
    let explain = |name: &str| {
        let output = lockkeeper().args(["explain", name]).output().unwrap();
        assert!(output.status.success(), "{name}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let bakery = explain("bakery");
    for part in [
        "Lamport's bakery  (bakery, shared memory)",
        "Idea. A slot takes a ticket one higher than all it sees",
        "number[1] = 0, number[2] = 0, choosing[1] = false",
        "P1 writes choosing[1] := true (wants to enter)",
        "while it is being written, and gets 4",
        "lockkeeper check bakery-without-choosing",
    ] {
        assert!(bakery.contains(part), "{part}\n{bakery}");
    }
    assert!(explain("dijkstra").contains("P1 writes b[1] := false (wants to enter)"));
    assert!(explain("semaphore").contains("one instruction"));
}

#[test]
fn an_unknown_algorithm_is_rejected_with_the_nearest_name() {
    let output = step(&["maekava"], "q");
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean 'maekawa'"));
}

#[test]
fn the_page_is_served_at_the_address_that_is_printed() {
    let mut command = lockkeeper();
    let mut lab = command.args(["lab", "--no-open", "--port", "0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(lab.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let host = url
        .trim()
        .strip_prefix("http://")
        .and_then(|rest| rest.strip_suffix('/'))
        .expect("an address")
        .to_string();
    let mut page = TcpStream::connect(&host).unwrap();
    write!(page, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    page.read_to_string(&mut answer).unwrap();
    lab.kill().unwrap();
    lab.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Lockkeeper lab"), "{answer}");
}
