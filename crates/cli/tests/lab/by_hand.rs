//! End-to-end tests of `lockkeeper step` and `lockkeeper lab`.

use std::io::{BufRead, BufReader, Read, Write};
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
    child.stdin.take().expect("it is piped").write_all(keys.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

#[test]
fn maekawas_triangle_is_driven_into_its_deadlock_with_keys() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("by-hand");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("deadlock.scenario");
    let file = file.to_str().unwrap();
    // The first choice three times: S1, then S2 and S3 after the messages in flight; then the three messages.
    let output = step(&["maekawa-published", "--save", file], "1 2 3 111 u1 w q");
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
