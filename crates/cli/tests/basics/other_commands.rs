//! End-to-end tests of `elect`, `locks`, and the sources of the engine's URL.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn lockkeeper(home: &tempfile::TempDir, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(args).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output(home: &tempfile::TempDir, args: &[&str]) -> Output {
    lockkeeper(home, args).output().unwrap()
}

fn stdout(home: &tempfile::TempDir, args: &[&str]) -> String {
    let output = output(home, args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(120), "stuck");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn start(home: &tempfile::TempDir, args: &[&str]) -> Child {
    lockkeeper(home, args).stdin(Stdio::piped()).spawn().unwrap()
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn locks_shows_holders_waiters_and_why() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(stdout(&home, &["locks"]).trim(), "no locks are held");
    assert_eq!(stdout(&home, &["locks", "--json"]).trim(), "[]");
    assert!(stdout(&home, &["locks", "why", "a"]).contains("`a` is free"));
    let holder = start(&home, &["run", "a", "--", "cat"]);
    until(|| stdout(&home, &["locks"]).contains(&holder.id().to_string()));
    let waiter = start(&home, &["run", "a", "--", "cat", "-"]);
    until(|| stdout(&home, &["locks"]).contains("waits 1"));

    let table = stdout(&home, &["locks"]);
    assert!(table.contains(&holder.id().to_string()) && table.contains(&waiter.id().to_string()), "{table}");
    let why = stdout(&home, &["locks", "why", "a"]);
    assert!(why.contains(&format!("by pid {}", holder.id())) && why.contains(", fence 1"), "{why}");
    assert!(why.contains("1 waits for it") && why.contains(&format!("1. pid {}", waiter.id())), "{why}");
    let json: serde_json::Value = serde_json::from_str(&stdout(&home, &["locks", "--json"])).unwrap();
    assert_eq!(json[0]["name"], "a");
    assert_eq!(json[0]["holders"][0]["fence"], 1);
    assert_eq!(json[0]["waiters"][0]["tag"]["metadata"]["command"], "cat");
    let url = format!("file://{}", home.path().join("elsewhere").display());
    assert!(stdout(&home, &["locks", "why", "a", "--on", &url]).contains("`a` is free"), "elsewhere");
    end(holder);
    end(waiter);
}

#[test]
fn locks_watch_prints_every_change() {
    let home = tempfile::tempdir().unwrap();
    let mut watch = lockkeeper(&home, &["locks", "--json", "watch"]).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    assert_eq!(lines.next().unwrap(), "[]");
    let holder = start(&home, &["run", "a", "--", "cat"]);
    assert!(lines.next().unwrap().contains("\"name\":\"a\""));
    end(holder);
    assert!(lines.any(|line| line == "[]"));
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn elect_runs_one_at_a_time_and_the_next_takes_over() {
    let home = tempfile::tempdir().unwrap();
    let first = start(&home, &["elect", "e", "--value", "one", "--", "cat"]);
    until(|| stdout(&home, &["locks"]).contains("one"));
    let second = start(&home, &["elect", "e", "--value", "two", "--", "cat"]);
    until(|| stdout(&home, &["locks"]).contains("waits 1"));
    end(first);
    until(|| !stdout(&home, &["locks"]).contains("waits 1"));
    assert!(stdout(&home, &["locks"]).contains("two"));
    end(second);
}

#[test]
fn the_url_comes_from_option_environment_file_or_default() {
    let home = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("file://{}", home.path().join(name).display());
    let made = |name: &str| home.path().join(name).join("ceiling").exists();
    stdout(&home, &["run", "a", "--", "true"]);
    assert!(made(".local/state/lockkeeper"));
    let config = home.path().join(".config/lockkeeper/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, format!("url = \"{}\"\n", url("by-file"))).unwrap();
    stdout(&home, &["run", "a", "--", "true"]);
    assert!(made("by-file"));
    let by_environment =
        lockkeeper(&home, &["run", "a", "--", "true"]).env("LOCKKEEPER_URL", url("by-env")).status();
    assert!(by_environment.unwrap().success() && made("by-env"));
    let by_option = lockkeeper(&home, &["run", "--on", &url("by-option"), "a", "--", "true"])
        .env("LOCKKEEPER_URL", "gopher://never")
        .status();
    assert!(by_option.unwrap().success() && made("by-option"));

    for (bad, part) in
        [("url = 3", "config.toml"), ("colour = \"red\"", "unknown field"), ("url", "config.toml")]
    {
        std::fs::write(&config, bad).unwrap();
        let output = output(&home, &["run", "a", "--", "true"]);
        assert_eq!(output.status.code(), Some(64));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(part), "{bad}: {stderr}");
    }
}

#[test]
fn without_a_home_directory_the_error_names_the_variables() {
    let home = tempfile::tempdir().unwrap();
    let output = lockkeeper(&home, &["run", "a", "--", "true"]).env_remove("HOME").output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8(output.stderr).unwrap().contains("neither XDG_STATE_HOME nor HOME is set"));
}
