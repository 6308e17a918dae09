//! Commands for operators, as a person at a terminal meets them: the daemon they ask.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

/// `lockkeeper` in an almost empty environment, in a home directory of its own.
fn lockkeeper(home: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(line.split_whitespace()).env_clear().env("HOME", home).current_dir(home);
    command
}

fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("errors are UTF-8")
}

/// All commands that only a daemon can answer.
const OPERATOR_COMMANDS: [&str; 5] =
    ["members", "status", "release --force nightly", "leave", "leave --dead 3"];

#[test]
fn operator_commands_refuse_urls_of_other_engines_and_ask_no_daemon() {
    let home = tempfile::tempdir().unwrap();
    // In place of a daemon that must not be asked.
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
    let told = error(&output);
    assert_eq!(output.status.code(), Some(64), "{told}");
    assert!(told.contains("the configuration file") && !told.contains("secret"), "{told}");
    // A URL of a daemon goes before the file's; no daemon is there.
    let output = lockkeeper(home.path(), "status --on lockkeeper:///nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(69), "{}", error(&output));
}
