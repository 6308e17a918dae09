//! `lockkeeper run` on a Redis server, where a lock can be lost.
#![cfg(feature = "redis")]

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A timeout that only a stuck test reaches.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A redis-server and a directory, removed with the test.
struct Redis {
    child: Child,
    port: u16,
    place: tempfile::TempDir,
}

impl Redis {
    /// Returns `None` if there is no redis-server; fails for root, who can install it.
    fn start() -> Option<Redis> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            let root = rustix::process::geteuid().is_root();
            assert!(!root, "redis-server is missing: apt-get install redis-server");
            eprintln!("SKIPPED: redis-server is missing; install the package redis-server to run this test");
            return None;
        }
        let place = tempfile::tempdir().unwrap();
        loop {
            let port = lockkeeper_testbed::ports::free().unwrap();
            let mut child = Command::new("redis-server")
                .args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()])
                .current_dir(place.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let up = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
            until(|| up() || child.try_wait().unwrap().is_some());
            // Another process may have taken the port first.
            if child.try_wait().unwrap().is_none() {
                return Some(Redis { child, port, place });
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn lockkeeper(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(args).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.place.path());
        command.env("LOCKKEEPER_URL", format!("redis://127.0.0.1:{}", self.port));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn signal(&self, signal: &str) {
        kill(self.child.id(), signal);
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kill(pid: u32, signal: &str) {
    assert!(Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap().success());
}

fn until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "stuck");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn pid_in(path: &Path) -> u32 {
    until(|| std::fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n')));
    std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

#[test]
fn a_command_runs_under_a_lock_of_the_server() {
    let Some(redis) = Redis::start() else { return };
    let script = "test $LOCKKEEPER_FENCE -gt 0 && test $LOCKKEEPER_TTL_MS = 3000 && exit 7";
    let output = redis.lockkeeper(&["run", "--ttl", "3s", "a", "--", "sh", "-c", script]).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(output.stderr.is_empty(), "quiet: {output:?}");
    let shared = redis.lockkeeper(&["run", "--shared", "a", "--", "true"]).output().unwrap();
    assert_eq!(shared.status.code(), Some(64));
    let words = String::from_utf8(shared.stderr).unwrap();
    assert!(words.contains("shared locks: not supported by redis"), "{words}");
}

#[test]
fn two_runs_take_turns() {
    let Some(redis) = Redis::start() else { return };
    let mark = redis.path("inside");
    let script = format!("set -C; : > '{0}' && rm '{0}'", mark.display());
    let runs: Vec<Child> =
        (0..6).map(|_| redis.lockkeeper(&["run", "-c", "a", "--", &script]).spawn().unwrap()).collect();
    for mut run in runs {
        assert!(run.wait().unwrap().success(), "mutual exclusion was violated");
    }
}

/// The server dies, or stops replying: the command is stopped before the lock can be granted again, and the exit code
/// is 79.
#[test]
fn a_lost_lock_stops_the_command_with_exit_code_79() {
    for signal in ["KILL", "STOP"] {
        let Some(redis) = Redis::start() else { return };
        let pid_file = redis.path("pid");
        let script = format!("echo $$ > '{}'; exec sleep 1000", pid_file.display());
        let run = redis.lockkeeper(&["run", "--ttl", "6s", "-c", "a", "--", &script]).spawn().unwrap();
        let command = pid_in(&pid_file);
        redis.signal(signal);
        let output = run.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(79), "{signal}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("the lock is lost"), "{output:?}");
        assert!(!Path::new(&format!("/proc/{command}")).exists(), "the command was waited for");
        if signal == "STOP" {
            redis.signal("CONT");
        }
    }
}

/// Whether a process runs; a zombie that has not been waited for does not.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")))
}

/// Covers a process in the background, one in its own session, one whose parent has ended, and one that ignores
/// SIGTERM.
#[test]
fn a_lost_lock_stops_all_processes_that_the_command_has_started() {
    let Some(redis) = Redis::start() else { return };
    let file = |name: &str| redis.path(name).display().to_string();
    let script = format!(
        "sh -c 'echo $$ > {0}; exec sleep 1000' & \
         setsid sh -c 'echo $$ > {1}; exec sleep 1000' & \
         sh -c 'setsid sh -c \"echo \\$\\$ > {2}; exec sleep 1000\" &' ; \
         sh -c 'trap \"\" TERM; echo $$ > {3}; while :; do sleep 0.1; done' & \
         echo $$ > {4}; wait",
        file("background"),
        file("setsid"),
        file("orphan"),
        file("stubborn"),
        file("command")
    );
    // Not a process of the command: `run` is started by exec(2) in a shell that already has a child.
    let outer = format!("sleep 1000 & echo $! > {}; exec \"$@\"", file("earlier"));
    let inner = redis.lockkeeper(&["run", "--ttl", "6s", "-c", "a", "--", &script]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &outer, "sh"]).arg(inner.get_program()).args(inner.get_args()).env_clear();
    shell.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let run = shell.spawn().unwrap();
    let pids = ["background", "setsid", "orphan", "stubborn", "command"]
        .map(|name| (name, pid_in(&redis.path(name))));
    let earlier = pid_in(&redis.path("earlier"));
    redis.signal("KILL");
    // Not `wait_with_output`: the processes have inherited the pipe, and would keep it open if they survived.
    let mut run = run;
    let status = run.wait().unwrap();
    assert_eq!(status.code(), Some(79));
    let survivors: Vec<_> = pids.iter().filter(|(_, pid)| runs(*pid)).collect();
    for (_, pid) in &survivors {
        kill(*pid, "KILL");
    }
    assert!(survivors.is_empty(), "{survivors:?} still run although the lock is lost");
    assert!(runs(earlier), "a process that is not the command's was stopped");
    kill(earlier, "KILL");
}

#[test]
fn a_lost_lock_sends_sigterm_before_sigkill() {
    let Some(redis) = Redis::start() else { return };
    let ready = redis.path("ready");
    let script = format!(
        "trap 'echo tidy; exit 0' TERM; echo $$ > '{}'; while :; do sleep 0.01; done",
        ready.display()
    );
    // SIGKILL is sent when three quarters of the margin of 5 s have passed.
    let run = redis.lockkeeper(&["run", "--ttl", "30s", "-c", "a", "--", &script]).spawn().unwrap();
    pid_in(&ready);
    redis.signal("KILL");
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(79), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "tidy\n");
}

#[test]
fn grace_is_the_time_between_sigterm_and_sigkill() {
    let Some(redis) = Redis::start() else { return };
    let ready = redis.path("ready");
    let script = format!("trap '' TERM; echo $$ > '{}'; while :; do sleep 0.01; done", ready.display());
    let args = ["run", "--ttl", "30s", "--grace", "0", "-c", "a", "--", &script];
    let run = redis.lockkeeper(&args).spawn().unwrap();
    pid_in(&ready);
    redis.signal("KILL");
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(79), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("the lock is lost, stopping the command at once"), "{error}");
    assert!(error.contains("refuses connections") && error.lines().count() == 1, "the cause: {error}");
}

/// With `--on-lost warn` and `ignore`, the command goes on, and its exit code is that of `run`.
#[test]
fn a_command_that_is_not_stopped_goes_on_without_the_lock() {
    let Some(redis) = Redis::start() else { return };
    let go = redis.path("go");
    let run = |lock: &str, action: &str| {
        let ready = redis.path(lock);
        let (ready, go) = (ready.display(), go.display());
        let script = format!("echo $$ > '{ready}'; until [ -e '{go}' ]; do sleep 0.01; done; exit 7");
        let args = ["run", "--ttl", "5s", "--on-lost", action, "-c", lock, "--", &script];
        redis.lockkeeper(&args).spawn().unwrap()
    };
    let (ignores, mut warns) = (run("b", "ignore"), run("a", "warn"));
    let command = pid_in(&redis.path("a"));
    pid_in(&redis.path("b"));
    redis.signal("KILL");
    let mut said = BufReader::new(warns.stderr.take().unwrap()).lines();
    let warning = said.next().unwrap().unwrap();
    assert!(warning.contains("the lock is lost, and the command goes on without it: "), "{warning}");
    assert!(runs(command), "it is not stopped");
    std::fs::write(&go, "").unwrap();
    assert_eq!(warns.wait().unwrap().code(), Some(7));
    assert_eq!(said.map(Result::unwrap).collect::<Vec<_>>(), [""; 0], "one warning");
    let output = ignores.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(7), 0), "{output:?}");
}

/// `run` is the parent of the command's orphans, and must not leave them as zombies.
#[test]
fn orphans_of_the_command_are_reaped_while_it_runs() {
    let Some(redis) = Redis::start() else { return };
    let (orphan, go) = (redis.path("orphan"), redis.path("go"));
    let script = format!(
        "sh -c 'sh -c \"echo \\$\\$ > {0}\" &'; until [ -e '{1}' ]; do sleep 0.01; done",
        orphan.display(),
        go.display()
    );
    let mut run = redis.lockkeeper(&["run", "-c", "a", "--", &script]).spawn().unwrap();
    let pid = pid_in(&orphan);
    until(|| !Path::new(&format!("/proc/{pid}")).exists());
    std::fs::write(&go, "").unwrap();
    assert!(run.wait().unwrap().success());
}

/// A `run` killed with `kill -9` no longer renews, so its command must end long before the lock can be granted again.
#[test]
fn a_command_dies_with_its_run() {
    let Some(redis) = Redis::start() else { return };
    let pid_file = redis.path("pid");
    let script = format!("echo $$ > '{}'; exec sleep 1000", pid_file.display());
    let mut run = redis.lockkeeper(&["run", "--ttl", "60s", "-c", "a", "--", &script]).spawn().unwrap();
    let command = pid_in(&pid_file);
    kill(run.id(), "KILL");
    run.wait().unwrap();
    until(|| {
        let stat = std::fs::read_to_string(format!("/proc/{command}/stat"));
        // A zombie that has not been waited for no longer runs.
        stat.map_or(true, |stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")))
    });
    let held = redis.lockkeeper(&["run", "-n", "a", "--", "true"]).output().unwrap();
    assert_eq!(
        held.status.code(),
        Some(1),
        "the lease continues, and the lock is not granted before its end: {held:?}"
    );
}

#[test]
fn a_command_that_cannot_be_run_is_reported_on_a_server_too() {
    let Some(redis) = Redis::start() else { return };
    let output = redis.lockkeeper(&["run", "a", "--", "/no/such/command"]).output().unwrap();
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot run `/no/such/command`"), "{output:?}");
}
