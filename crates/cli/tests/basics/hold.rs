//! End-to-end tests of holds that outlive their process: `run --at-least`, `hold`, `release --as`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A timeout that only a stuck test reaches.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A separate state directory, without the caller's environment.
struct StateDirectory(tempfile::TempDir);

impl StateDirectory {
    fn new() -> StateDirectory {
        StateDirectory(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn lockkeeper(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command
            .args(line.split_whitespace())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn output(&self, line: &str) -> Output {
        self.lockkeeper(line).output().unwrap()
    }

    /// The exit code, standard output and standard error of a command.
    fn result(&self, line: &str) -> (i32, String, String) {
        let output = self.output(line);
        let code = output.status.code().expect("no signal ended it");
        (code, String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    }
}

fn until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "stuck");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn pid_in(path: &Path) -> u32 {
    until(|| std::fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n')));
    std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status().unwrap().success());
}

/// Ten machines with clocks that differ start the job one after the other.
#[test]
fn a_job_that_several_machines_start_runs_once() {
    let place = StateDirectory::new();
    let log = place.path("log");
    let line = format!("run --at-least 10m --skip nightly -- sh -c echo${{IFS}}ran>>{}", log.display());
    let machines: Vec<Child> = (0..5).map(|_| place.lockkeeper(&line).spawn().unwrap()).collect();
    for machine in machines {
        let output = machine.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "quiet: {output:?}");
    }
    for _ in 0..5 {
        assert_eq!(place.result(&line), (0, String::new(), String::new()));
    }
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "ran\n");
    // Another client sees the owner of the hold, and the time that is left.
    let (code, _, error) = place.result("run -n nightly -- true");
    assert_eq!(code, 1);
    assert!(error.contains(" (sh) for ") && error.contains(", kept for at least "), "{error}");
    let (_, why, _) = place.result("locks why nightly");
    assert!(why.contains("kept for at least "), "{why}");
    // An operator ends it.
    let (_, json, _) = place.result("locks --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let holder = json[0]["holders"][0]["detached"]["owner"].as_str().unwrap();
    assert_eq!(json[0]["holders"][0]["tag"]["holder"], holder);
    assert_eq!(place.result(&format!("release nightly --as {holder}")).0, 0);
    assert_eq!(place.result("run -n nightly -- true").0, 0);
}

#[test]
fn a_lock_is_kept_after_kill_9_of_run_and_its_command() {
    let place = StateDirectory::new();
    let pid_file = place.path("pid");
    let line = format!(
        "run --at-least 3s a -- sh -c echo${{IFS}}$$>{};exec${{IFS}}sleep${{IFS}}1000",
        pid_file.display()
    );
    let asked = Instant::now();
    let mut run = place.lockkeeper(&line).spawn().unwrap();
    let command = pid_in(&pid_file);
    assert_eq!(place.result("release a --as x").0, 1, "its process holds it");
    run.kill().unwrap();
    run.wait().unwrap();
    kill(command);
    let waiter = place.lockkeeper("run a -- true").spawn().unwrap();
    assert!(waiter.wait_with_output().unwrap().status.success());
    assert!(asked.elapsed() >= Duration::from_secs(3), "granted after {:?}", asked.elapsed());
}

#[test]
fn a_command_that_cannot_be_run_keeps_nothing() {
    let place = StateDirectory::new();
    assert_eq!(place.result("run --at-least 1h a -- /no/such/command").0, 69);
    assert_eq!(place.result("run -n a -- true").0, 0);
}

#[test]
fn skip_is_quiet_only_if_another_client_holds_the_lock() {
    let place = StateDirectory::new();
    assert_eq!(place.result("hold a --as other --for 1h").0, 0);
    for line in ["run --skip a -- false", "run --skip -w 0.05 a -- false"] {
        assert_eq!(place.result(line), (0, String::new(), String::new()), "{line}");
    }
    assert_eq!(place.result("run --skip b -- false").0, 1, "the exit code of the command");
    assert_eq!(place.result("run --skip -n a -- true").0, 64);
    assert_eq!(place.result("run --skip -E 3 a -- true").0, 64);
    assert_eq!(place.result("run --skip --on file:///proc/x a -- true").0, 69);
    let (code, _, error) = place.result("run --at-least 0 a -- true");
    assert!(code == 64 && error.contains("366 days"), "{error}");
}

#[test]
fn a_hold_outlives_the_command_and_belongs_to_its_owner() {
    let place = StateDirectory::new();
    let (code, said, _) = place.result("hold reboot --as web-3 --for 2h");
    assert!(code == 0 && said.starts_with("`web-3` holds `reboot` with fence 1 for "), "{said}");
    // After the reboot, the same owner succeeds again.
    let (code, said, _) = place.result("hold reboot --as web-3");
    assert!(code == 0 && said.starts_with("`web-3` holds `reboot` with fence 1 for 1 h 5"), "{said}");
    let (code, said, error) = place.result("hold -n reboot --as web-4 --for 1h");
    assert_eq!((code, said.as_str()), (1, ""));
    assert!(
        error.contains("`reboot` is held by web-3 for ") && error.contains("more unless released"),
        "{error}"
    );
    assert_eq!(place.result("hold -q -n -E 9 reboot --as web-4 --for 1h"), (9, String::new(), String::new()));
    assert_eq!(place.result("hold -q -w 0.05 reboot --as web-4 --for 1h").0, 1);
    let (code, _, error) = place.result("hold reboot --as web-4");
    assert!(
        code == 1 && error.contains("`web-4` does not hold `reboot`") && error.contains("--for"),
        "{error}"
    );
    let (_, shown, _) = place.result("locks");
    assert!(shown.contains("held, 1 h 5") && shown.contains("web-3"), "{shown}");
    assert_eq!(place.result("run -n reboot -- true").0, 1);

    let (code, _, error) = place.result("release reboot --as web-4");
    assert!(code == 1 && error.contains("`web-4` has no hold of `reboot`"), "{error}");
    let (code, said, _) = place.result("release reboot --as web-3");
    assert_eq!((code, said.as_str()), (0, "`reboot` was released by `web-3`\n"));
    assert_eq!(place.result("run -n reboot -- true").0, 0);
    for line in [
        "hold reboot --for 1h",
        "release reboot --as a --force",
        "hold reboot --as  --for 1h x",
        "release reboot",
    ] {
        assert_eq!(place.result(line).0, 64, "{line}");
    }
}

#[test]
fn at_most_two_machines_are_down() {
    let place = StateDirectory::new();
    for machine in ["web-1", "web-2"] {
        let (code, said, _) = place.result(&format!("hold reboot --as {machine} --for 2h --permits 2"));
        assert!(code == 0 && said.contains("holds `reboot` for 2 h 0 min"), "a permit has no fence: {said}");
    }
    assert_eq!(place.result("hold -n reboot --as web-3 --for 2h --permits 2").0, 1);
    let waits = place.lockkeeper("hold reboot --as web-3 --for 2h --permits 2").spawn().unwrap();
    until(|| place.result("locks").1.contains("waits 1"));
    assert_eq!(place.result("release reboot --as web-1").0, 0);
    assert!(waits.wait_with_output().unwrap().status.success());
}
