//! `lockkeeper run --on URL` on engines where holds can be lost: the command is stopped, and the exit code is 79.

#![cfg(any(feature = "etcd", feature = "zookeeper"))]

use lockkeeper_testbed::servers::{LocalServer, Server, program};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A timeout that only a stuck test reaches.
const TIMEOUT: Duration = Duration::from_secs(120);

fn until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "stuck");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `lockkeeper` in an almost empty environment.
fn lockkeeper(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(args).env_clear().env("PATH", "/usr/bin:/bin").env("LOCKKEEPER_URL", url);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a shell script under the lock `job`, and returns once it has created the file `started`.
fn holder(url: &str, script: &str, started: &Path) -> Child {
    let child = lockkeeper(url, &["run", "--ttl", "2", "-c", "job", "--", script]).spawn().unwrap();
    until(|| started.exists());
    child
}

fn a_lost_lock_stops_the_command_with_79(url: &str, server: &LocalServer) {
    let place = tempfile::tempdir().unwrap();
    let (started, tidied) = (place.path().join("started"), place.path().join("tidied"));
    let script = format!(
        "trap 'touch {}; exit 0' TERM; touch {}; while :; do sleep 0.02; done",
        tidied.display(),
        started.display()
    );
    let child = holder(url, &script, &started);
    let shown = lockkeeper(url, &["locks", "--json"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("\"job\"") && shown.contains(&child.id().to_string()), "{shown}");
    let conflict = lockkeeper(url, &["run", "-n", "job", "--", "true"]).output().unwrap();
    assert_eq!(conflict.status.code(), Some(1));

    server.stop();
    let ended = child.wait_with_output().unwrap();
    let printed = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(79), "{printed}");
    assert!(printed.contains("the lock is lost"), "{printed}");
    assert!(tidied.exists(), "SIGTERM came first, with time to tidy up");

    let unreachable = lockkeeper(url, &["run", "job", "--", "true"]).output().unwrap();
    assert_eq!(unreachable.status.code(), Some(69));
    server.start();
    until(|| lockkeeper(url, &["run", "job", "--", "true"]).status().unwrap().code() == Some(0));
}

fn runs_take_turns_and_fences_rise(url: &str) {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    // Without the lock, the pause in the middle would mix the lines.
    let script = format!(
        "echo in $LOCKKEEPER_FENCE >> {0}; sleep 0.02; echo out $LOCKKEEPER_FENCE >> {0}",
        log.display()
    );
    let runs: Vec<Child> =
        (0..5).map(|_| lockkeeper(url, &["run", "-c", "turns", "--", &script]).spawn().unwrap()).collect();
    for run in runs {
        assert!(run.wait_with_output().unwrap().status.success());
    }
    let text = std::fs::read_to_string(log).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 10);
    let mut highest = 0;
    for pair in lines.chunks(2) {
        let fence: u64 = pair[0].strip_prefix("in ").unwrap().parse().unwrap();
        assert_eq!(pair[1], format!("out {fence}"));
        assert!(fence > highest, "{text}");
        highest = fence;
    }
}

#[cfg(feature = "etcd")]
#[test]
fn on_etcd() {
    let Some(etcd) = program("etcd", &[], "etcd-server") else { return };
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().to_owned();
    let server = LocalServer::start(move |port| {
        let clients = format!("http://127.0.0.1:{port}");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&etcd).env_clear().arg("--data-dir").arg(&directory);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", "http://127.0.0.1:0"]);
        command
    });
    let url = format!("etcd://127.0.0.1:{}", server.port());
    runs_take_turns_and_fences_rise(&url);
    a_lost_lock_stops_the_command_with_79(&url, &server);
}

#[cfg(feature = "zookeeper")]
#[test]
fn on_zookeeper() {
    let Some(java) = program("java", &[], "default-jre-headless") else { return };
    let Some(jar) = program("zookeeper.jar", &["/usr/share/java"], "zookeeper") else { return };
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().to_owned();
    let server = LocalServer::start(move |port| {
        let (config, data) = (directory.join("zoo.cfg"), directory.join("data"));
        let text = format!(
            "tickTime=500\nclientPortAddress=127.0.0.1\nclientPort={port}\ndataDir={}\nadmin.enableServer=false\n",
            data.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&java).args(["-Xmx64m", "-XX:+UseSerialGC", "-cp"]);
        command.arg(&jar).arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(config);
        command
    });
    let url = format!("zookeeper://127.0.0.1:{}", server.port());
    runs_take_turns_and_fences_rise(&url);
    a_lost_lock_stops_the_command_with_79(&url, &server);
}
