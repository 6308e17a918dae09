//! End-to-end tests of commands for operators: their daemon, and `cluster init` and `add`.

use lockkeeper_daemon::{Config, Daemon};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};

/// `lockkeeper` in an almost empty environment, with its own home directory.
fn lockkeeper(home: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(line.split_whitespace()).env_clear().env("HOME", home).current_dir(home);
    command
}

fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("errors are UTF-8")
}

/// All commands that need a daemon.
const OPERATOR_COMMANDS: [&str; 6] =
    ["members", "status", "release --force nightly", "leave", "leave --dead 3", "cluster set lease=2s"];

#[test]
fn cluster_set_refuses_values_that_no_cluster_can_read() {
    let home = tempfile::tempdir().unwrap();
    for (change, why) in
        [("lease", "NAME=VALUE"), ("lease=2", "1500ms"), ("times=fast", "slow"), ("=2s", "NAME=VALUE")]
    {
        let output = lockkeeper(home.path(), &format!("cluster set {change}")).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{change}: {}", error(&output));
        assert!(error(&output).contains(why), "{change}: {}", error(&output));
    }
}

#[test]
fn operator_commands_refuse_urls_of_other_engines_and_contact_no_daemon() {
    let home = tempfile::tempdir().unwrap();
    // A listener in place of a daemon that must not be contacted.
    let daemon = TcpListener::bind("127.0.0.1:0").unwrap();
    daemon.set_nonblocking(true).unwrap();
    let address = daemon.local_addr().unwrap();
    for scheme in ["redis", "postgres", "etcd", "zookeeper", "http", "lockkeepers"] {
        let url = format!("{scheme}://{address}");
        for line in OPERATOR_COMMANDS {
            let by_flag = lockkeeper(home.path(), &format!("{line} --on {url}")).output().unwrap();
            let by_variable = lockkeeper(home.path(), line).env("LOCKKEEPER_URL", &url).output().unwrap();
            for (output, source) in [(by_flag, "--on"), (by_variable, "LOCKKEEPER_URL")] {
                let error = error(&output);
                assert_eq!(output.status.code(), Some(64), "{line}, {source}: {error}");
                assert!(error.contains(&url) && error.contains(source), "{line}: {error}");
                assert!(error.contains("does not name a lockkeeper daemon"), "{line}: {error}");
            }
        }
    }
    assert_eq!(daemon.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "a command has connected to it");
}

#[test]
fn operator_commands_refuse_a_configured_engine_that_is_no_daemon() {
    let home = tempfile::tempdir().unwrap();
    for line in OPERATOR_COMMANDS {
        for url in ["file:", "localhost:7421"] {
            let output = lockkeeper(home.path(), line).env("LOCKKEEPER_URL", url).output().unwrap();
            assert_eq!(output.status.code(), Some(64), "{line}: {}", error(&output));
        }
    }
    let config = home.path().join(".config/lockkeeper/config.toml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, "url = \"redis://:secret@localhost\"\n").unwrap();
    let output = lockkeeper(home.path(), "status").output().unwrap();
    let printed = error(&output);
    assert_eq!(output.status.code(), Some(64), "{printed}");
    assert!(printed.contains("the configuration file") && !printed.contains("secret"), "{printed}");
    // The URL on the command line takes precedence over that of the file; there is no daemon at it.
    let output = lockkeeper(home.path(), "status --on lockkeeper:///nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(69), "{}", error(&output));
}

/// All files of a folder with their contents.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((path.display().to_string(), std::fs::read(&path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

fn refused(home: &Path, line: &str, expected: &str) {
    let before = contents(home);
    let output = lockkeeper(home, line).output().unwrap();
    let printed = error(&output);
    assert_eq!(output.status.code(), Some(64), "{line}: {printed}");
    assert!(printed.contains(expected), "{line}: {printed}");
    assert!(contents(home) == before, "{line} has written to the folder");
}

fn done(home: &Path, line: &str) {
    let output = lockkeeper(home, line).output().unwrap();
    assert!(output.status.success(), "{line}: {}", error(&output));
}

#[test]
fn cluster_init_refuses_members_whose_addresses_clash() {
    let home = tempfile::tempdir().unwrap();
    for (members, expected) in [
        ("a:7420,b:7420,a:7420", "members 1 and 3 have the same address a:7420"),
        ("a:7420,a:7421", "both use port 7421: member 1 for clients, member 2 for members"),
        ("a:7420,a:7422", "both use port 7422: member 1 for HTTP, member 2 for members"),
        ("127.0.0.1:7420,localhost:7420", "members 1 and 2 have the same address"),
        ("1=a:7420,1=b:7420", "`1=a:7420` is no host:port"),
    ] {
        refused(home.path(), &format!("cluster init --members {members} --out new"), expected);
        assert!(!home.path().join("new").exists(), "{members}");
    }
    done(home.path(), "cluster init --members 127.0.0.1:7420,127.0.0.1:7423,b:7420 --out new");
    refused(home.path(), "cluster init --members c:7420 --out new", "holds a cluster already");
}

#[test]
fn cluster_add_refuses_the_number_or_address_of_an_existing_member() {
    let home = tempfile::tempdir().unwrap();
    done(home.path(), "cluster init --members a:7420,b:7420 --out c");
    refused(home.path(), "cluster add 1=d:7420 --out c", "member 1 exists already, at a:7420");
    refused(home.path(), "cluster add 3=b:7420 --out c", "members 2 and 3 have the same address b:7420");
    refused(home.path(), "cluster add 3=b:7422 --out c", "both use port 7422");
    done(home.path(), "cluster add 3=d:7420 --out c");
    refused(home.path(), "cluster add 3=e:7420 --out c", "member 3 exists already, at d:7420");
    refused(home.path(), "cluster add 4=d:7421 --out c", "delete c/member-3 first");
    // Without its folder, a removed member does not keep its address; its number stays in use.
    std::fs::remove_dir_all(home.path().join("c/member-2")).unwrap();
    refused(home.path(), "cluster add 2=b:7420 --out c", "member 2 exists already");
    done(home.path(), "cluster add 4=b:7420 --out c");
    let config = std::fs::read_to_string(home.path().join("c/member-4/lockkeeper.toml")).unwrap();
    assert!(config.contains("join = [\"a:7420\"]"), "{config}");
}

/// A daemon that is the only member of its cluster and does not listen for members.
async fn lone_daemon(data: &Path) -> Daemon {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let config = Config { clients: Some(any), http: Some(any), ..Config::alone(data) };
    let daemon = Daemon::start(config).await.unwrap();
    daemon.member().ready().await.unwrap();
    daemon
}

/// Runs a command on a daemon and returns its exit code, standard output and standard error.
async fn on_daemon(home: &Path, daemon: &Daemon, line: &str) -> (Option<i32>, String, String) {
    let url = format!("lockkeeper://{}", daemon.addresses().clients.unwrap());
    let mut command = lockkeeper(home, &format!("{line} --on {url}"));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (output.status.code(), String::from_utf8(output.stdout.clone()).unwrap(), error(&output))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_set_exits_with_64_if_the_cluster_rejects_the_value() {
    let home = tempfile::tempdir().unwrap();
    let daemon = lone_daemon(&home.path().join("data")).await;
    let (_, before, _) = on_daemon(home.path(), &daemon, "cluster set").await;
    for (change, reason) in [("lease=100s", "longest_lease"), ("trees=7", "trees")] {
        let (code, _, error) = on_daemon(home.path(), &daemon, &format!("cluster set {change}")).await;
        assert_eq!(code, Some(64), "{change}: {error}");
        assert!(error.contains(&format!("the cluster rejects {change}: ")), "{error}");
        assert!(error.contains(reason), "{error}");
        assert!(
            error.contains("nothing was changed") && error.contains("`lockkeeper cluster set`"),
            "{error}"
        );
        assert!(!error.contains("cannot be used"), "{error}");
    }
    let (_, after, _) = on_daemon(home.path(), &daemon, "cluster set").await;
    assert_eq!(before, after);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_shows_no_address_for_a_daemon_that_does_not_listen_for_members() {
    let home = tempfile::tempdir().unwrap();
    let daemon = lone_daemon(&home.path().join("data")).await;
    let (code, table, error) = on_daemon(home.path(), &daemon, "members").await;
    assert_eq!(code, Some(0), "{error}");
    let row: Vec<&str> = table.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(row[..2], ["1", "none"], "{table}");
    let (_, json, _) = on_daemon(home.path(), &daemon, "members --json").await;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["address"], "none");
    daemon.stop().await;
}
