//! Nodes of one etcd cluster, with default settings.

use super::{Counts, Running, ServerEnvironment, net, until, version_of};
use crate::process::{Server, ServerError, find};
use rustix::process::Signal;

/// The required programs: name, folders, package.
pub const NEEDS: [(&str, &[&str], &str); 1] = [("etcd", &[], "etcd-server")];

pub async fn start(count: usize, environment: &ServerEnvironment<'_>) -> Result<Running, ServerError> {
    let program = find(NEEDS[0].0, NEEDS[0].1).ok_or(ServerError::Missing { program: "etcd" })?;
    let (peers, clients) = (net::free_ports(count)?, net::free_ports(count)?);
    let url = |port: &u16| format!("http://127.0.0.1:{port}");
    let cluster: Vec<String> =
        peers.iter().enumerate().map(|(n, port)| format!("n{n}={}", url(port))).collect();
    let mut processes = Vec::new();
    for n in 0..count {
        let folder = environment.folder(&format!("etcd-{n}"))?;
        let (peer, client) = (url(&peers[n]), url(&clients[n]));
        let mut command = environment.command(&program);
        command.args(["--name", &format!("n{n}"), "--log-level", "error", "--logger", "zap"]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &cluster.join(","), "--initial-cluster-state", "new"]);
        command.arg("--data-dir").arg(folder.join("data"));
        processes.push(Server::start(command, Signal::KILL, folder.join("log"))?);
    }
    let mut addresses: Vec<String> = clients.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    for address in &addresses {
        let healthy = || async { net::get(address, "/health").await.is_ok_and(|page| page.contains("true")) };
        until(&mut processes, healthy).await?;
    }
    // A single client connects to the leader, which replies fastest.
    for n in 0..count {
        let page = net::get(&addresses[n], "/metrics").await?;
        if crate::metrics::sum(&page, "etcd_server_is_leader") == 1.0 {
            addresses.rotate_left(n);
            processes.rotate_left(n);
            break;
        }
    }
    let version = version_of(&program, "--version").replace("etcd Version:", "etcd");
    Ok(Running { processes, metrics: addresses.clone(), addresses, counts: Counts::Etcd, version })
}
