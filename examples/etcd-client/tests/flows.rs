//! The same program against etcd, against one daemon, and against every member of a cluster of three.

#[path = "../../../crates/daemon/tests/support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::process::Stdio;
use support::{Daemons, soon, until};
use tokio::net::TcpStream;
use tokio::process::Command;

async fn flows(addresses: &[SocketAddr]) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_etcd-flows"));
    program.args(addresses.iter().map(ToString::to_string)).kill_on_drop(true);
    let done = soon("the flows", program.output()).await.expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{addresses:?}:\n{}{}", text(&done.stdout), text(&done.stderr));
}

fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], lockkeeper_testbed::ports::free().expect("a port")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn against_etcd_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let (client, peer) = (free(), free());
    let url = |address: SocketAddr| format!("http://{address}");
    let mut etcd = Command::new("etcd");
    etcd.arg("--data-dir").arg(directory.path()).args(["--listen-client-urls", &url(client)]);
    etcd.args(["--advertise-client-urls", &url(client), "--listen-peer-urls", &url(peer)]);
    etcd.args([
        "--initial-advertise-peer-urls",
        &url(peer),
        "--initial-cluster",
        &format!("default={}", url(peer)),
    ]);
    let started = etcd.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn();
    let Ok(_etcd) = started else {
        eprintln!("SKIPPED: etcd is not installed (Debian: etcd-server)");
        return;
    };
    until("etcd listens", || async { TcpStream::connect(client).await.is_ok() }).await;
    flows(&[client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn against_one_daemon() {
    let daemons = Daemons::start(1).await;
    flows(&[daemons.address(0)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn against_every_member_of_a_cluster() {
    let daemons = Daemons::start(3).await;
    for place in 0..3 {
        flows(&[daemons.address(place)]).await;
    }
    // What is begun at one goes on at another.
    flows(&[daemons.address(0), daemons.address(1)]).await;
    flows(&[daemons.address(2), daemons.address(0)]).await;
}
