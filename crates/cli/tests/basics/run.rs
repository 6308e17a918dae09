//! End-to-end tests of `lockkeeper run`: exit codes, environment, signals, standard input, kill -9.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
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

    /// Runs `lockkeeper` as under cron: without a terminal and with hardly any environment.
    fn lockkeeper(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(args).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.lockkeeper(args).output().unwrap()
    }

    /// Starts a holder and returns once its command runs. It ends when its standard input closes.
    fn holder(&self, name: &str) -> Child {
        let mark = self.path(&format!("in-{name}"));
        let script = format!("touch '{}'; cat >/dev/null", mark.display());
        let child =
            self.lockkeeper(&["run", "-c", name, "--", &script]).stdin(Stdio::piped()).spawn().unwrap();
        until(|| mark.exists());
        child
    }

    fn locks(&self) -> String {
        text(&self.output(&["locks", "--json"]).stdout)
    }
}

fn until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "stuck");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap().success());
}

fn read_pid(path: &Path) -> u32 {
    until(|| std::fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n')));
    std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

#[test]
fn the_exit_code_is_the_commands_own() {
    let place = StateDirectory::new();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
        let output = place.output(&["run", "a", "--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{script}: {output:?}");
        assert!(output.stderr.is_empty(), "quiet: {output:?}");
    }
}

#[test]
fn errors_are_reported_on_one_line() {
    let place = StateDirectory::new();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["run", "a", "--", "/no/such/command"], 69, "cannot run `/no/such/command`"),
        (&["run", "a", "--", "/etc/passwd"], 69, "Permission denied"),
        (&["run", "", "--", "true"], 64, "it is empty"),
        (&["run", "a\nb", "--", "true"], 64, "control character"),
        (&["run", "--on", "gopher://x", "a", "--", "true"], 64, "`gopher://x`: its scheme is unknown"),
        (&["run", "--on", "file://host/x", "a", "--", "true"], 64, "absolute path"),
        (&["run", "--on", "file:///proc/x", "a", "--", "true"], 69, "cannot make the directory /proc/x"),
        (&["run", "--ttl", "1ms", "a", "--", "true"], 64, "time to live"),
    ];
    for (args, code, part) in cases {
        let output = place.output(args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {stderr}");
        assert!(stderr.contains(part), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    let usage: &[(&[&str], &str)] = &[
        (&["run"], "required"),
        (&["run", "a"], "required"),
        (&["run", "-n", "-w", "1", "a", "--", "true"], "cannot be used with"),
        (&["run", "-w", "-1", "a", "--", "true"], "cannot be negative"),
        (&["run", "--ttl", "-5s", "a", "--", "true"], "cannot be negative"),
        (&["run", "--permits", "0", "a", "--", "true"], "0 is not in"),
        (&["run", "--on-lost", "shrug", "a", "--", "true"], "[possible values: term, warn, ignore]"),
        (
            &["run", "--on-lost", "warn", "--grace", "1s", "a", "--", "true"],
            "--grace applies to --on-lost term",
        ),
        (&["elect", "--on-lost", "ignore", "--grace", "1s", "a", "--", "true"], "--on-lost term"),
        (&["run", "--grace", "-1s", "a", "--", "true"], "cannot be negative"),
        (&["run", "-E", "256", "a", "--", "true"], "256 is not in"),
    ];
    for (args, part) in usage {
        let output = place.output(args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{args:?}: {stderr}");
        assert!(stderr.contains(part), "{args:?}: {stderr}");
    }
    assert!(!place.locks().contains("holder"), "nothing stays held");
}

#[test]
fn a_name_that_is_too_long_is_rejected() {
    let place = StateDirectory::new();
    // The kernel allows 128 KiB per argument.
    let output = place.output(&["run", &"x".repeat(100_000), "--", "true"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("it has 100000 bytes"));
}

#[test]
fn a_held_lock_is_a_conflict() {
    let place = StateDirectory::new();
    let mut holder = place.holder("a");
    for (args, code) in [
        (&["run", "-n", "a", "--", "true"][..], 1),
        (&["run", "-w", "0.05", "a", "--", "true"], 1),
        (&["run", "-n", "-E", "42", "a", "--", "true"], 42),
        (&["run", "-n", "-s", "a", "--", "true"], 1),
        (&["run", "-n", "b", "--", "true"], 0),
    ] {
        let output = place.output(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let lines = text(&output.stderr).lines().count();
        assert_eq!(lines, usize::from(code != 0), "one line on failure: {output:?}");
    }
    let output = place.output(&["run", "-n", "-q", "a", "--", "true"]);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(1), 0));
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    assert_eq!(place.output(&["run", "-n", "a", "--", "true"]).status.code(), Some(0));
}

#[test]
fn the_command_gets_its_input_its_arguments_and_the_lock_in_its_environment() {
    let place = StateDirectory::new();
    let script = r#"read -r line; echo "$line|$1|$LOCKKEEPER_NAME|$LOCKKEEPER_FENCE|$LOCKKEEPER_TTL_MS|$LOCKKEEPER_HOLDER""#;
    let run = |mut command: Command| {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"from stdin\n").unwrap();
        text(&child.wait_with_output().unwrap().stdout)
    };
    let plain = run(place.lockkeeper(&["run", "a b", "--", "sh", "-c", script, "sh", "an 'argument' $HOME"]));
    assert!(plain.starts_with("from stdin|an 'argument' $HOME|a b|1|0|"), "{plain}");
    let shell = run(place.lockkeeper(&["run", "-c", "a b", "--", script]));
    assert!(shell.starts_with("from stdin||a b|2|0|"), "{shell}");
}

/// All observers of a lock see the published metadata of its holders and waiters.
#[test]
fn arguments_of_the_command_are_not_published() {
    let place = StateDirectory::new();
    for (lock, args, published) in [
        ("a", &["run", "a", "--", "/bin/cat", "--db-password=s3cr3t", "-"][..], "\"command\":\"cat\""),
        ("b", &["run", "-c", "b", "--", "cat; : s3cr3t"], "\"command\":\"sh\""),
        (
            "c",
            &["run", "--purpose", "nightly\nbackup", "-c", "c", "--", "cat; : s3cr3t"],
            "\"purpose\":\"nightly backup\"",
        ),
    ] {
        let mut holder = place.holder(lock);
        let waiter = place.lockkeeper(args).stdin(Stdio::piped()).spawn().unwrap();
        until(|| place.locks().contains(published));
        let shown = [&["locks"][..], &["locks", "--json"], &["locks", "--why", lock]].map(|args| {
            let output = place.output(args);
            text(&output.stdout) + &text(&output.stderr)
        });
        assert!(!shown.concat().contains("s3cr3t"), "{args:?}: {shown:?}");
        drop(holder.stdin.take());
        holder.wait().unwrap();
        waiter.wait_with_output().unwrap();
    }
}

#[test]
fn the_command_does_not_get_the_url_and_the_token() {
    let place = StateDirectory::new();
    let url = format!("file://{}", place.path("state").display());
    let script = r#"echo "${LOCKKEEPER_URL-none} ${LOCKKEEPER_TOKEN-none}""#;
    let run = |options: &[&str], script: &str| {
        let args = [&["run"], options, &["-c", "a", "--", script]].concat();
        let mut command = place.lockkeeper(&args);
        command.env("LOCKKEEPER_URL", &url).env("LOCKKEEPER_TOKEN", "s3cr3t").output().unwrap()
    };
    assert_eq!(text(&run(&[], script).stdout), "none none\n");
    assert_eq!(text(&run(&["--keep-credentials"], script).stdout), format!("{url} s3cr3t\n"));

    // A nested `lockkeeper` must not fall back to an engine with other locks.
    let binary = env!("CARGO_BIN_EXE_lockkeeper");
    let nested = format!("{binary} run b -- true");
    let output = run(&[], &nested);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    assert!(text(&output.stderr).contains("--keep-credentials"), "{output:?}");
    assert!(run(&["--keep-credentials"], &nested).status.success());
    assert!(run(&[], &format!("{binary} run --on '{url}' b -- true")).status.success());
    assert!(!place.path(".local/state/lockkeeper").exists(), "no locks of the default directory were used");
}

#[test]
fn urls_in_error_messages_are_shown_without_their_secrets() {
    let place = StateDirectory::new();
    for args in [
        &["run", "--on", "redis://u:s3c/r3t@127.0.0.1:1", "a", "--", "true"][..],
        &["run", "--on", "lockkeeper://s3cr3t@127.0.0.1:1", "a", "--", "true"],
        &["locks", "--on", "lockkeeper://127.0.0.1:1?token=s3cr3t"],
        &["locks", "--on", "postgres://127.0.0.1:1?password=s3cr3t"],
        &["status", "--on", "redis://u:s3cr3t@127.0.0.1:1"],
        // In a position where clap does not expect it, and quotes it.
        &["locks", "redis://u:s3cr3t@127.0.0.1:1"],
        &["run", "a", "redis://u:s3cr3t@127.0.0.1:1", "--", "true"],
        &["status", "lockkeeper://127.0.0.1:1?s3cr3t"],
    ] {
        let output = place.output(args);
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && !stderr.is_empty(), "{args:?}");
        assert!(!stderr.contains("s3c") && !stderr.contains("r3t"), "{args:?}: {stderr}");
    }
    std::fs::create_dir_all(place.path(".config/lockkeeper")).unwrap();
    for config in ["url = \"redis://u:s3cr3t@h:x\"", "\"redis://u:s3cr3t@h\" = 1", "url = redis://u:s3cr3t@h"]
    {
        std::fs::write(place.path(".config/lockkeeper/config.toml"), config).unwrap();
        let output = place.output(&["locks"]);
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && !stderr.contains("s3cr3t"), "{config}: {stderr}");
    }
}

/// flock(1) rejects them, too. `sh -c echo one two` prints an empty line.
#[test]
fn a_shell_command_line_is_one_argument_and_more_are_refused() {
    let place = StateDirectory::new();
    let output = place.output(&["run", "-c", "a", "--", "echo", "one", "two"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(64), 0));
    let error = text(&output.stderr);
    assert!(error.contains("-c takes one argument") && error.contains("3 were given"), "{error}");
    assert_eq!(text(&place.output(&["run", "-c", "a", "--", "echo one two"]).stdout), "one two\n");
    assert_eq!(text(&place.output(&["run", "a", "--", "echo", "one", "two"]).stdout), "one two\n");
}

/// A permit has no fence: the variable is unset, even inside a command that has one from another lock.
#[test]
fn a_command_with_a_permit_gets_no_fence() {
    let place = StateDirectory::new();
    let script = r#"echo "$LOCKKEEPER_NAME|${LOCKKEEPER_FENCE-unset}""#;
    let mut command = place.lockkeeper(&["run", "-v", "--permits", "2", "p", "--", "sh", "-c", script]);
    let output = command.env("LOCKKEEPER_FENCE", "41").output().unwrap();
    assert_eq!(text(&output.stdout), "p|unset\n");
    assert_eq!(text(&output.stderr).lines().last(), Some("lockkeeper: holding `p`"));
}

#[test]
fn two_at_once_take_turns() {
    let place = StateDirectory::new();
    let log = place.path("log");
    let script =
        format!("echo enter >>'{0}'; for i in 1 2 3 4 5; do :; done; echo exit >>'{0}'", log.display());
    let children: Vec<Child> =
        (0..16).map(|_| place.lockkeeper(&["run", "-c", "a", "--", &script]).spawn().unwrap()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(std::fs::read_to_string(log).unwrap(), "enter\nexit\n".repeat(16));
}

#[test]
fn permits_and_shared_holders_run_together() {
    let place = StateDirectory::new();
    for option in [&["--permits", "2"][..], &["-s"]] {
        // Each command ends only when the other has begun.
        let script = |mine: &str, other: &str| {
            format!(
                "touch '{}'; until [ -e '{}' ]; do sleep 0.01; done",
                place.path(mine).display(),
                place.path(other).display()
            )
        };
        let (one, two) = (script("one", "two"), script("two", "one"));
        let start = |script: &str| {
            let mut args = vec!["run", "-c"];
            args.extend(option);
            args.extend(["a", "--", script]);
            place.lockkeeper(&args).spawn().unwrap()
        };
        let (mut one, mut two) = (start(&one), start(&two));
        assert!(one.wait().unwrap().success() && two.wait().unwrap().success());
        std::fs::remove_file(place.path("one")).unwrap();
        std::fs::remove_file(place.path("two")).unwrap();
    }
}

#[test]
fn signals_reach_the_command() {
    let place = StateDirectory::new();
    for (name, code) in [("TERM", 10), ("INT", 11), ("HUP", 12), ("USR1", 13)] {
        let ready = place.path(name);
        let script =
            format!("trap 'exit {code}' {name}; touch '{}'; while :; do sleep 0.01; done", ready.display());
        let child = place.lockkeeper(&["run", "-c", "a", "--", &script]).spawn().unwrap();
        until(|| ready.exists());
        signal(child.id(), name);
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(code), "{name}");
    }
}

#[test]
fn a_waiting_run_ends_at_once_on_sigterm_and_leaves_the_queue() {
    let place = StateDirectory::new();
    let mut holder = place.holder("a");
    let waiter = place.lockkeeper(&["run", "a", "--", "true"]).spawn().unwrap();
    until(|| place.locks().contains("\"command\":\"true\""));
    signal(waiter.id(), "TERM");
    assert_eq!(waiter.wait_with_output().unwrap().status.signal(), Some(15));
    until(|| !place.locks().contains("\"command\":\"true\""));
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}

/// Starts `run` around a script that writes its process id, and kills `run` with SIGKILL.
fn kill_run_but_not_its_child(place: &StateDirectory, script: &str) -> u32 {
    let pid_file = place.path("pid");
    let script = format!("echo $$ >'{}'; {script}", pid_file.display());
    let mut run = place.lockkeeper(&["run", "a", "--", "sh", "-c", &script]).spawn().unwrap();
    let child = read_pid(&pid_file);
    // The lock must protect the child at any time, whether it is already recorded or not: kill at once.
    run.kill().unwrap();
    run.wait().unwrap();
    child
}

#[test]
fn after_kill_9_of_run_the_lock_is_held_while_its_child_runs() {
    for closes_descriptors in [false, true] {
        let place = StateDirectory::new();
        // Some programs close all descriptors that they inherited.
        let close =
            if closes_descriptors { "for fd in 3 4 5 6 7 8 9; do eval \"exec $fd>&-\"; done; " } else { "" };
        let go = place.path("go");
        let script = format!("{close}until [ -e '{}' ]; do sleep 0.01; done", go.display());
        let pid_file = place.path("pid");
        let script = format!("echo $$ >'{}'; {script}", pid_file.display());
        let mut run = place.lockkeeper(&["run", "a", "--", "sh", "-c", &script]).spawn().unwrap();
        let child = read_pid(&pid_file);
        if closes_descriptors {
            // Until the child is recorded, only the descriptor protects it.
            until(|| {
                std::fs::read_to_string(place.path(".local/state/lockkeeper/locks/a"))
                    .is_ok_and(|q| q.contains(&format!("\"child\":{{\"pid\":{child}")))
            });
        }
        let after = place.path("after");
        let waiter_script = format!("touch '{}'", after.display());
        let mut waiter = place.lockkeeper(&["run", "-c", "a", "--", &waiter_script]).spawn().unwrap();
        until(|| place.locks().matches("\"holder\"").count() == 2);
        run.kill().unwrap();
        run.wait().unwrap();
        assert_eq!(
            place.output(&["run", "-n", "a", "--", "true"]).status.code(),
            Some(1),
            "the child still runs"
        );
        assert!(is_alive(child) && !after.exists());
        std::fs::write(&go, "").unwrap();
        assert!(waiter.wait().unwrap().success(), "enters when the child has ended");
        assert!(!is_alive(child) && after.exists());
    }
}

#[test]
fn kill_9_right_after_the_start_of_the_child_does_not_free_the_lock() {
    for _ in 0..30 {
        let place = StateDirectory::new();
        let go = place.path("go");
        let child = kill_run_but_not_its_child(
            &place,
            &format!("until [ -e '{}' ]; do sleep 0.01; done", go.display()),
        );
        assert!(is_alive(child));
        assert_eq!(place.output(&["run", "-n", "a", "--", "true"]).status.code(), Some(1));
        std::fs::write(&go, "").unwrap();
        assert!(place.output(&["run", "a", "--", "true"]).status.success());
    }
}

/// A script whose background process outlives it, with every descriptor still open.
fn leave_a_daemon(place: &StateDirectory) -> String {
    format!("sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >'{}'", place.path("daemon").display())
}

#[test]
fn a_background_process_does_not_keep_the_lock() {
    let place = StateDirectory::new();
    assert!(place.output(&["run", "-c", "a", "--", &leave_a_daemon(&place)]).status.success());
    let daemon = read_pid(&place.path("daemon"));
    assert!(is_alive(daemon));
    assert_eq!(place.output(&["run", "-n", "a", "--", "true"]).status.code(), Some(0));
    signal(daemon, "KILL");
}

#[test]
fn a_background_process_does_not_keep_the_lock_even_after_kill_9_of_run() {
    let place = StateDirectory::new();
    let (go, pid_file) = (place.path("go"), place.path("pid"));
    let script = format!(
        "{}; echo $$ >'{}'; until [ -e '{}' ]; do sleep 0.01; done",
        leave_a_daemon(&place),
        pid_file.display(),
        go.display()
    );
    let mut run = place.lockkeeper(&["run", "a", "--", "sh", "-c", &script]).spawn().unwrap();
    let (child, daemon) = (read_pid(&pid_file), read_pid(&place.path("daemon")));
    let queue = place.path(".local/state/lockkeeper/locks/a");
    until(|| {
        std::fs::read_to_string(&queue).is_ok_and(|q| q.contains(&format!("\"child\":{{\"pid\":{child}")))
    });
    run.kill().unwrap();
    run.wait().unwrap();
    let mut waiter = place.lockkeeper(&["run", "a", "--", "true"]).spawn().unwrap();
    until(|| place.locks().contains("\"command\":\"true\""));
    std::fs::write(&go, "").unwrap();
    assert!(waiter.wait().unwrap().success());
    assert!(is_alive(daemon) && !is_alive(child));
    signal(daemon, "KILL");
}

#[test]
fn a_nested_run_of_the_same_lock_is_rejected() {
    let place = StateDirectory::new();
    let output =
        place.output(&["run", "a", "--", env!("CARGO_BIN_EXE_lockkeeper"), "run", "a", "--", "true"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("would wait for itself"));
}

#[test]
fn verbose_prints_the_holder_and_the_position_in_the_queue() {
    let place = StateDirectory::new();
    let mut holder = place.holder("a");
    let mut waiter = place.lockkeeper(&["run", "-v", "a", "--", "true"]).spawn().unwrap();
    let mut lines = BufReader::new(waiter.stderr.take().unwrap()).lines().map(|line| line.unwrap());
    let waiting = lines.next().unwrap();
    assert!(waiting.contains(&format!("number 1 in the queue; held by pid {}", holder.id())), "{waiting}");
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert_eq!(lines.last().unwrap(), "lockkeeper: holding `a` with fence 2");
    assert!(waiter.wait().unwrap().success());
}

/// A limit on the size of files simulates a full disk: every write to a file fails.
#[test]
fn on_a_full_disk_nothing_is_granted_and_release_still_works() {
    let place = StateDirectory::new();
    let binary = env!("CARGO_BIN_EXE_lockkeeper");
    assert!(place.output(&["run", "a", "--", "true"]).status.success());
    let full = |script: &str| {
        let mut command = place.lockkeeper(&[]);
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("trap '' XFSZ; {script}")).env("HOME", place.0.path());
        std::mem::swap(&mut command, &mut shell);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let ran = place.path("ran");
    let output =
        full(&format!("ulimit -f 0; exec {binary} run a -- touch '{}'", ran.display())).output().unwrap();
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    assert!(text(&output.stderr).contains("cannot write"), "{output:?}");
    assert!(!ran.exists(), "nothing was granted");

    // The disk fills up while the lock has a holder and a waiter.
    let mark = place.path("in");
    let mut holder =
        full(&format!("exec {binary} run -c a -- \"touch '{}'; cat\"", mark.display())).spawn().unwrap();
    until(|| mark.exists());
    let mut waiter = place.lockkeeper(&["run", "a", "--", "true"]).spawn().unwrap();
    until(|| place.locks().contains("\"command\":\"true\""));
    let limited =
        Command::new("prlimit").args(["--fsize=0:0", "--pid", &holder.id().to_string()]).status().unwrap();
    assert!(limited.success());
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success(), "release needs no space");
    assert!(waiter.wait().unwrap().success());
    let fence = place.output(&["run", "a", "--", "sh", "-c", "echo $LOCKKEEPER_FENCE"]).stdout;
    assert!(text(&fence).trim().parse::<u64>().unwrap() >= 4);
}

#[test]
fn directories_that_cannot_be_used_are_named() {
    let place = StateDirectory::new();
    let read_only = place.path("read-only");
    std::fs::create_dir(&read_only).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&read_only, PermissionsExt::from_mode(0o555)).unwrap();
    let url = format!("file://{}", read_only.display());
    let mut command = place.lockkeeper(&["run", "--on", &url, "a", "--", "true"]);
    if rustix::process::geteuid().is_root() {
        // Root can write everywhere: run as another user, who must be able to reach the directory and the binary.
        std::fs::set_permissions(place.0.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let binary = place.path("lockkeeper");
        // Copied by a separate process: a child of another test could inherit the open file, which could then not be
        // executed.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_lockkeeper")).arg(&binary).status().unwrap();
        assert!(copied.success());
        command = Command::new(binary);
        command.args(["run", "--on", &url, "a", "--", "true"]).uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{stderr}");
    assert!(stderr.contains("read-only") && stderr.contains("Permission denied"), "{stderr}");

    let shared = place.path("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o777)).unwrap();
    let output = place.output(&["run", "--on", &format!("file://{}", shared.display()), "a", "--", "true"]);
    assert_eq!(output.status.code(), Some(69));
    assert!(text(&output.stderr).contains("other users can write"));
    assert_eq!(std::fs::read_dir(&shared).unwrap().count(), 0, "nothing was made there");
}

/// As with flock(1), the command begins after the lock's name; its own options belong to it.
#[test]
fn the_separator_before_the_command_is_optional() {
    let place = StateDirectory::new();
    for args in [
        &["run", "a", "echo", "-n", "one", "--", "two"][..],
        &["run", "a", "--", "echo", "-n", "one", "--", "two"],
        &["run", "a", "-w", "9", "echo", "-n", "one", "--", "two"],
    ] {
        let output = place.output(args);
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(0), "one -- two"),
            "{args:?}"
        );
    }
    assert_eq!(place.output(&["run", "a"]).status.code(), Some(64));
}

/// `script` gives the waiter a terminal.
#[test]
fn a_long_wait_on_a_terminal_shows_the_holder_in_place() {
    let place = StateDirectory::new();
    let mut holder = place.holder("slow");
    let shown = place.path("shown");
    let line = format!("{} run slow true", env!("CARGO_BIN_EXE_lockkeeper"));
    let mut waiter = Command::new("script")
        .args(["-qefc", &line])
        .arg(&shown)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", place.0.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let seen = || std::fs::read_to_string(&shown).unwrap_or_default();
    until(|| seen().contains("\r\x1b[Klockkeeper: waiting for `slow`, number 1 in the queue; held by"));
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success() && waiter.wait().unwrap().success());
    assert!(seen().contains("held by pid"), "{}", seen());
    assert!(!seen().contains("waiting for `slow`, number 1 in the queue; held by nobody"), "{}", seen());
}
