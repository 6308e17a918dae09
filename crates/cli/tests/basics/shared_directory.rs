//! `file:///DIR?shared` with several users. The tests start programs as other users, so they need root.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Two users without rights. They need no entry in /etc/passwd.
const ANNA: u32 = 61_001;
const BERT: u32 = 61_002;

/// A shared directory of root, and a copy of the program that every user can execute.
struct Machine {
    place: tempfile::TempDir,
}

impl Machine {
    fn new() -> Option<Machine> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: programs are started as other users, which needs root");
            return None;
        }
        let machine = Machine { place: tempfile::tempdir().unwrap() };
        allow(machine.place.path(), 0o755);
        // By another process: a child that another test starts meanwhile would inherit a descriptor that is open for
        // writing, and the program could not be executed.
        let copy = Command::new("cp").arg(env!("CARGO_BIN_EXE_lockkeeper")).arg(machine.program()).status();
        assert!(copy.unwrap().success());
        allow(&machine.program(), 0o755);
        std::fs::create_dir(machine.locks()).unwrap();
        allow(&machine.locks(), 0o1777);
        // Root creates the files, as systemd-tmpfiles does at the boot.
        assert!(machine.lockkeeper(0, &["locks"]).output().unwrap().status.success());
        Some(machine)
    }

    fn program(&self) -> PathBuf {
        self.place.path().join("lockkeeper")
    }

    fn locks(&self) -> PathBuf {
        self.place.path().join("locks")
    }

    /// A program as a user.
    fn command(&self, user: u32, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups", "--"]);
        command.arg(program).current_dir("/").env_clear().env("PATH", "/usr/bin:/bin");
        command.env("LOCKKEEPER_URL", format!("file://{}?shared", self.locks().display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn lockkeeper(&self, user: u32, args: &[&str]) -> Command {
        let mut command = self.command(user, &self.program());
        command.args(args);
        command
    }

    fn output(&self, user: u32, args: &[&str]) -> Output {
        self.lockkeeper(user, args).output().unwrap()
    }

    /// The locks, as a user sees them.
    fn seen(&self, user: u32) -> serde_json::Value {
        let output = self.output(user, &["locks", "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A user's `run` that holds a lock until its standard input is closed.
    fn hold(&self, user: u32, name: &str) -> Child {
        let child = self.lockkeeper(user, &["run", name, "--", "cat"]).spawn().unwrap();
        until(|| self.seen(user)[0]["holders"][0]["tag"]["pid"] == child.id());
        child
    }

    /// The fence of a hold that a user acquires and releases.
    fn fence(&self, user: u32, name: &str) -> u64 {
        let output = self.output(user, &["run", "-c", name, "--", "echo $LOCKKEEPER_FENCE"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    }

    fn is_held_for(&self, user: u32, name: &str) -> bool {
        self.output(user, &["run", "-n", name, "--", "true"]).status.code() == Some(1)
    }
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(120), "stuck");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn two_users_take_turns_on_one_lock() {
    let Some(machine) = Machine::new() else { return };
    let earlier = machine.fence(BERT, "a");
    let holder = machine.hold(ANNA, "a");
    assert!(machine.is_held_for(BERT, "a") && machine.is_held_for(0, "a"));
    assert!(!machine.is_held_for(BERT, "b"), "another lock is free");
    let seen = machine.seen(BERT);
    let record = &seen[0]["holders"][0];
    assert_eq!(record["tag"]["metadata"]["user"], ANNA.to_string(), "{seen}");
    let fence = record["fence"].as_u64().unwrap();
    assert!(fence > earlier);
    let waiter =
        machine.lockkeeper(BERT, &["run", "-c", "a", "--", "echo $LOCKKEEPER_FENCE"]).spawn().unwrap();
    end(holder);
    let output = waiter.wait_with_output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap() > fence);
    assert_eq!(machine.seen(ANNA), serde_json::json!([]));
}

#[test]
fn a_killed_holder_lets_another_user_in() {
    let Some(machine) = Machine::new() else { return };
    let mut holder = machine.hold(ANNA, "a");
    let waiter = machine.lockkeeper(BERT, &["run", "a", "--", "true"]).spawn().unwrap();
    holder.kill().unwrap();
    // The command of a killed `run` keeps the lock until it ends.
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert!(waiter.wait_with_output().unwrap().status.success());
}

#[test]
fn another_user_cannot_take_a_lock_from_its_holder() {
    let Some(machine) = Machine::new() else { return };
    let holder = machine.hold(ANNA, "a");
    let fence = machine.seen(BERT)[0]["holders"][0]["fence"].as_u64().unwrap();
    let attack = |script: &str| {
        let mut shell = machine.command(BERT, Path::new("/bin/sh"));
        shell.args(["-c", script]).current_dir(machine.locks()).output().unwrap().status.success()
    };
    for script in ["rm -f locks", "mv locks other", "rm -f fences", "rm -f h-*", "chmod 600 locks"] {
        assert!(!attack(script), "{script} must be forbidden");
    }
    for script in [": > locks", "echo garbage > locks", ": > fences", "echo '{}' > h-1-1-1", "mkfifo h-2-2-2"]
    {
        assert!(attack(script), "{script}");
        assert!(machine.is_held_for(BERT, "a"), "{script}");
        assert!(machine.is_held_for(0, "a"), "{script}");
    }
    assert_eq!(machine.seen(ANNA).as_array().unwrap().len(), 1);
    end(holder);
    assert!(machine.fence(BERT, "a") > fence, "fences rise although their file was emptied");
}

/// Otherwise its owner could replace the file while locks are held.
#[test]
fn a_file_of_locks_of_another_user_is_refused() {
    let Some(machine) = Machine::new() else { return };
    for name in ["locks", "fences"] {
        std::fs::remove_file(machine.locks().join(name)).unwrap();
    }
    let missing = machine.output(ANNA, &["run", "a", "--", "true"]);
    let error = String::from_utf8(missing.stderr).unwrap();
    assert!(error.contains("it has no file `locks`; user 0 creates it"), "{error}");
    let touched =
        machine.command(BERT, Path::new("/usr/bin/touch")).arg(machine.locks().join("locks")).status();
    assert!(touched.unwrap().success());
    allow(&machine.locks().join("locks"), 0o666);
    for user in [ANNA, 0] {
        let refused = machine.output(user, &["run", "a", "--", "true"]);
        assert_eq!(refused.status.code(), Some(69));
        let error = String::from_utf8(refused.stderr).unwrap();
        assert!(error.contains("its owner could replace it"), "{error}");
    }
}

#[test]
fn a_group_shares_a_directory_without_the_others() {
    let Some(machine) = Machine::new() else { return };
    let group = Command::new("chgrp").arg(ANNA.to_string()).arg(machine.locks()).status();
    assert!(group.unwrap().success());
    allow(&machine.locks(), 0o1770);
    for name in ["locks", "fences"] {
        std::fs::remove_file(machine.locks().join(name)).unwrap();
    }
    assert!(machine.output(0, &["locks"]).status.success());
    assert!(machine.fence(ANNA, "a") > 0);
    assert_eq!(machine.output(BERT, &["run", "a", "--", "true"]).status.code(), Some(69));
}
