//! The suite on a cluster of lockkeeper's own daemons, and what only that engine promises.

use crate::backend::{Backend, Server};
use crate::local_server::Daemon;
use lockkeeper_daemon::Config;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Daemons of one cluster, each a process of its own.
pub struct Cluster {
    daemons: Vec<Daemon>,
    _data: Arc<tempfile::TempDir>,
}

/// This test binary, started again as a daemon. It ends with us, even if we are killed.
fn daemon(port: u16, data: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "cluster::daemon_process", "--ignored", "--nocapture"]);
    command.env("LOCKKEEPER_TEST_DAEMON", data).env("LOCKKEEPER_TEST_PORT", port.to_string());
    command
}

/// The body of a daemon's process; does nothing useful unless a [`Cluster`] started it.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn daemon_process() {
    let data = std::env::var("LOCKKEEPER_TEST_DAEMON").expect("only daemons run this");
    let port: u16 = std::env::var("LOCKKEEPER_TEST_PORT").unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut config = Config { http: None, ..Config::alone(data) };
        (config.member.listen, config.clients) = (at(0), Some(at(port)));
        let daemon = lockkeeper_daemon::Daemon::start(config).await.unwrap();
        daemon.ends().await;
    });
}

impl Cluster {
    /// One daemon alone.
    pub fn alone() -> Cluster {
        let data = Arc::new(tempfile::tempdir().unwrap());
        let folder = data.path().to_owned();
        Cluster { daemons: vec![Daemon::start(move |port| daemon(port, &folder))], _data: data }
    }
}

impl Backend for Cluster {
    fn url(&self) -> String {
        let hosts: Vec<String> =
            self.daemons.iter().map(|daemon| format!("127.0.0.1:{}", daemon.port())).collect();
        format!("lockkeeper://{}", hosts.join(","))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
}

impl Server for Cluster {
    fn stop(&self) {
        self.daemons.iter().for_each(|daemon| daemon.stop());
    }

    fn start(&self) {
        self.daemons.iter().for_each(|daemon| Server::start(daemon));
    }
}

mod alone {
    use super::Cluster;
    crate::conformance! { Cluster::alone() }
}
