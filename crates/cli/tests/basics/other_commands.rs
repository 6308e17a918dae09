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

#[test]
fn engines_lists_every_engine_and_what_it_lacks() {
    let home = tempfile::tempdir().unwrap();
    let table = stdout(&home, &["engines"]);
    for name in ["file", "lockkeeper", "etcd", "zookeeper", "postgres", "mysql", "redis", "redlock"] {
        assert!(table.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}: {table}");
    }
    let widest = table.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{widest:?} columns:\n{table}");
    let rest_of_redis = "\n             rediss-sentinel:";
    assert!(table.contains(rest_of_redis), "continued lines are indented:\n{table}");
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (header, redlock) = (table.lines().next().unwrap(), "redlock – – – – – – yes yes");
    assert_eq!(columns(header).len(), columns(redlock).len(), "{table}");
    assert!(table.lines().any(|line| columns(line) == columns(redlock)), "{table}");
    let engines: serde_json::Value = serde_json::from_str(&stdout(&home, &["engines", "--json"])).unwrap();
    let engines = engines.as_array().unwrap();
    let engine = |name: &str| engines.iter().find(|engine| engine["name"] == name).unwrap();
    assert_eq!(
        (&engine("file")["built_in"], &engine("lockkeeper")["built_in"]),
        (&true.into(), &true.into())
    );
    assert_eq!(engine("file")["capabilities"]["fence"], true);
    assert_eq!(engine("redlock")["capabilities"]["fence"], false);
    for absent in engines.iter().filter(|engine| engine["built_in"] == false) {
        let needs = format!("it needs the cargo feature `{}`", absent["feature"].as_str().unwrap());
        assert!(table.contains(&needs), "{table}");
    }
}

#[test]
fn doctor_exits_with_4_if_it_finds_risks() {
    let home = tempfile::tempdir().unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let url = format!("file://{}", memory.path().display());
    let risky = output(&home, &["doctor", "--on", &url]);
    assert_eq!(risky.status.code(), Some(4), "{risky:?}");
    let text = String::from_utf8(risky.stdout).unwrap();
    assert!(text.contains("0 critical, 1 warning\n") && text.contains("warning  file-system: "), "{text}");
    assert!(text.contains("→ use a directory on a disk"), "{text}");

    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let url = format!("file://{}", disk.path().display());
    let safe = output(&home, &["doctor", "--json", "--on", &url]);
    let json: serde_json::Value = serde_json::from_slice(&safe.stdout).unwrap();
    assert_eq!(json["engine"], "file");
    let risks = json["findings"].as_array().unwrap().iter().filter(|finding| finding["severity"] != "note");
    // The target directory may be in memory, too.
    let expected = if risks.count() == 0 { 0 } else { 4 };
    assert_eq!(safe.status.code(), Some(expected), "{json}");

    let unreachable = output(&home, &["doctor", "--on", "lockkeeper://127.0.0.1:1"]);
    assert_eq!((unreachable.status.code(), unreachable.stdout.len()), (Some(69), 0), "{unreachable:?}");
    assert_eq!(output(&home, &["doctor", "--on", "gopher://x"]).status.code(), Some(64));
}
