//! `lockkeeper up --listen`, `lockkeeper join` and `lockkeeper cluster`: the join token.

use lockkeeper_testbed::ports;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A timeout far longer than any step takes, so that only a stuck test fails.
const LONG: Duration = Duration::from_secs(120);

/// `lockkeeper` in an almost empty environment, with its own home directory.
fn lockkeeper(home: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(line.split_whitespace()).env_clear().env("HOME", home).current_dir(home);
    command
}

/// A daemon that is killed when dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a daemon, and returns its output until it serves.
fn serves(mut command: Command) -> (Daemon, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let daemon = Daemon(child);
    let (sender, printed) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        for line in lines.map_while(Result::ok) {
            text = format!("{text}{line}\n");
            if line.ends_with(" serves") {
                let _ = sender.send(std::mem::take(&mut text));
            }
        }
    });
    (daemon, printed.recv_timeout(LONG).expect("the daemon serves"))
}

/// The options for a daemon with its own ports.
fn at(member: u16) -> String {
    let [clients, http] = [(); 2].map(|()| ports::free().unwrap());
    let options = format!("--clients 127.0.0.1:{clients} --http 127.0.0.1:{http}");
    if member == 0 {
        options
    } else {
        format!("--member {member} --listen 127.0.0.1:{} {options}", ports::free().unwrap())
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_member_joins_with_the_join_token_and_not_without_it() {
    let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let members = ports::free().unwrap();
    let up = format!("up --listen 127.0.0.1:{members} {}", at(0));
    let (_first, printed) = serves(lockkeeper(home.path(), &up));
    let token = home.path().join(".local/state/lockkeeper-daemon/join-token");
    assert!(printed.contains(&token.display().to_string()), "{printed}");
    assert_eq!(mode(&token), 0o600);

    // Another user of this machine.
    let join = |member: u16| format!("join 127.0.0.1:{members} {}", at(member));
    let refused = lockkeeper(other.path(), &join(2)).output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(64), "{error}");
    assert!(error.contains("--join-token") && error.contains("LOCKKEEPER_JOIN_TOKEN"), "{error}");

    // The same user needs only the command; other users need a copy of the token.
    let (_second, _) = serves(lockkeeper(home.path(), &join(2)));
    let mut with_variable = lockkeeper(other.path(), &join(3));
    with_variable.env("LOCKKEEPER_JOIN_TOKEN", std::fs::read_to_string(&token).unwrap());
    let (_third, _) = serves(with_variable);
    let by_file = format!("{} --join-token {}", join(4), token.display());
    let (_fourth, _) = serves(lockkeeper(other.path(), &by_file));
}

#[test]
fn a_daemon_alone_listens_for_no_members() {
    let home = tempfile::tempdir().unwrap();
    let (_alone, printed) = serves(lockkeeper(home.path(), &format!("up {}", at(0))));
    assert!(printed.contains("for members   closed"), "{printed}");
    assert!(!home.path().join(".local/state/lockkeeper-daemon/join-token").exists());
}

#[test]
fn cluster_init_and_add_give_every_member_the_same_join_token_for_its_owner_alone() {
    let home = tempfile::tempdir().unwrap();
    for line in ["cluster init --members a:7420,b:7420 --out c", "cluster add 3=d:7420 --out c"] {
        assert!(lockkeeper(home.path(), line).output().unwrap().status.success(), "{line}");
    }
    let token = |folder: &str| {
        let file = home.path().join("c").join(folder).join("join-token");
        assert_eq!(mode(&file), 0o600, "{}", file.display());
        std::fs::read_to_string(file).unwrap()
    };
    for member in ["member-1", "member-2", "member-3"] {
        assert_eq!(token(member), token("."), "{member}");
    }
    let file = home.path().join("c/member-1/join-token");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    let refused = lockkeeper(home.path(), "up --config c/member-1/lockkeeper.toml").output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains("chmod 600") && !refused.status.success(), "{error}");
}
