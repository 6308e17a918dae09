//! Nodes of one ZooKeeper ensemble, with default settings.

use super::{Counts, Running, ServerEnvironment, net, until};
use crate::process::{Server, ServerError, find};
use rustix::process::Signal;
use std::fmt::Write;

/// Debian's location; the jar's manifest names its dependencies.
const JAR: &str = "zookeeper.jar";
const JARS: &[&str] = &["/usr/share/java"];

/// The required programs: name, folders, package.
pub const NEEDS: [(&str, &[&str], &str); 2] =
    [("java", &[], "default-jre-headless"), (JAR, JARS, "zookeeper")];

pub async fn start(count: usize, environment: &ServerEnvironment<'_>) -> Result<Running, ServerError> {
    let java = find("java", &[]).ok_or(ServerError::Missing { program: "java" })?;
    let jar = find(JAR, JARS).ok_or(ServerError::Missing { program: "zookeeper.jar" })?;
    let [peers, elections, clients] =
        [net::free_ports(count)?, net::free_ports(count)?, net::free_ports(count)?];
    let mut ensemble = String::new();
    for n in 0..count {
        let _ = writeln!(ensemble, "server.{}=127.0.0.1:{}:{}", n + 1, peers[n], elections[n]);
    }
    let mut processes = Vec::new();
    for (n, client_port) in clients.iter().enumerate() {
        let folder = environment.folder(&format!("zookeeper-{}", n + 1))?;
        let data = environment.folder(&format!("zookeeper-{}/data", n + 1))?;
        // The times of the sample configuration. All clients of one machine have one address, so there is no
        // limit per address.
        let mut config = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPortAddress=127.0.0.1\nclientPort={}\n\
             admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr\n",
            data.display(),
            client_port
        );
        if count > 1 {
            config.push_str(&ensemble);
        }
        let written = std::fs::write(folder.join("zoo.cfg"), config)
            .and_then(|()| std::fs::write(data.join("myid"), (n + 1).to_string()));
        written.map_err(ServerError::ZooKeeperConfig)?;
        let mut command = environment.command(&java);
        command.args(["-Xmx512m", "-cp"]).arg(&jar);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(folder.join("zoo.cfg"));
        processes.push(Server::start(command, Signal::KILL, folder.join("log"))?);
    }
    let mut addresses: Vec<String> = clients.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let mut version = String::from("ZooKeeper");
    let mut leader = 0;
    for (n, address) in addresses.iter().enumerate() {
        until(&mut processes, || async { state(address).await.contains("Mode: ") }).await?;
        let state = state(address).await;
        if state.contains("Mode: leader") {
            leader = n;
        }
        let line = state.lines().find_map(|line| line.strip_prefix("Zookeeper version: "));
        version = format!("ZooKeeper {}", line.and_then(|line| line.split(['-', ',']).next()).unwrap_or("?"));
    }
    // A single client connects to the leader, which replies fastest.
    addresses.rotate_left(leader);
    processes.rotate_left(leader);
    Ok(Running { processes, addresses, metrics: Vec::new(), counts: Counts::Nothing, version })
}

/// The state that a node reports.
async fn state(address: &str) -> String {
    net::ask(address, "srvr", "").await.unwrap_or_default()
}
