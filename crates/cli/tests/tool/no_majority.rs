//! Errors of the commands while a cluster has no majority.

use lockkeeper_cluster::{Config as MemberConfig, JoinToken, MemberId};
use lockkeeper_daemon::{Config, Daemon};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Output};

fn lockkeeper(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.args(args).env_remove("LOCKKEEPER_URL").env_remove("LOCKKEEPER_TOKEN");
    command.output().expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// The first of three members; the others never start.
async fn one_of_three(directory: &std::path::Path) -> Daemon {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let sockets = [(); 3].map(|()| TcpListener::bind(any).expect("a free port"));
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().expect("bound"));
    drop(sockets);
    let mut member = MemberConfig::new(MemberId(1), addresses[0], directory.join("data"));
    member.first_members = (1..).map(MemberId).zip(addresses.map(|address| address.to_string())).collect();
    member.join_token = Some(JoinToken::random().expect("random"));
    let mut config = Config::of(member, any, any);
    config.http = None;
    Daemon::start(config).await.expect("it starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_report_why_no_lock_is_granted() {
    let directory = tempfile::tempdir().expect("a folder");
    let daemon = one_of_three(directory.path()).await;
    let address = daemon.addresses().clients.expect("it serves clients");
    // The address of a second daemon that does not run.
    let unused =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port").local_addr().expect("bound");
    let url = format!("lockkeeper://{address},{unused}");

    let run = tokio::task::spawn_blocking({
        let url = url.clone();
        move || lockkeeper(&["run", "-n", "a", "--on", &url, "--", "true"])
    });
    let run = run.await.expect("no panic");
    let printed = text(&run.stderr);
    assert_eq!(run.status.code(), Some(69), "{printed}");
    // All daemons were queried once, without waiting for a majority.
    assert!(printed.contains("no daemon grants locks now"), "{printed}");
    assert!(printed.contains("member 1 has had no lease for"), "{printed}");
    assert!(printed.contains(&unused.to_string()), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");

    let on = format!("lockkeeper://{address}");
    let status = tokio::task::spawn_blocking(move || lockkeeper(&["status", "--on", &on]));
    let status = status.await.expect("no panic");
    let printed = text(&status.stdout);
    assert_eq!(status.status.code(), Some(1), "{printed}");
    assert!(printed.contains("does not serve"), "{printed}");
    assert!(printed.contains("reason     member 1 has had no lease for"), "{printed}");
    daemon.stop().await;
}
