//! Lockkeeper's own daemons: processes of the same executable, as `lockkeeper up` starts them.

use super::{Counts, Running, ServerEnvironment, net, until};
use crate::error::FileError;
use crate::process::{Server, ServerError};
use lockkeeper_cluster::JoinToken;
use rustix::process::Signal;
use std::fmt::Write;

/// Starts the members of one cluster, for clients of the native protocol or of etcd's. `settings` are further lines of
/// the members' configuration.
pub async fn start(
    count: usize,
    settings: &str,
    for_etcd: bool,
    environment: &ServerEnvironment<'_>,
) -> Result<Running, ServerError> {
    let at = |port: &u16| format!("127.0.0.1:{port}");
    let [members, clients, http] =
        [net::free_ports(count)?, net::free_ports(count)?, net::free_ports(count)?];
    let mut all = String::new();
    for (place, port) in members.iter().enumerate() {
        let _ = writeln!(all, "{} = \"{}\"", place + 1, at(port));
    }
    let token = environment.folder("members")?.join("join-token");
    JoinToken::read_or_create(&token).map_err(|error| ServerError::JoinToken(error.into()))?;
    let mut processes = Vec::new();
    for place in 0..count {
        let folder = environment.folder(&format!("member-{}", place + 1))?;
        let file = folder.join("lockkeeper.toml");
        let config = format!(
            "member = {}\ndata = \"data\"\njoin_token = \"../members/join-token\"\n{settings}\n[members]\n{all}\n[listen]\nmembers = \"{}\"\nclients = \"{}\"\nhttp = \"{}\"\n",
            place + 1,
            at(&members[place]),
            at(&clients[place]),
            at(&http[place])
        );
        std::fs::write(&file, config).map_err(FileError::write(&file))?;
        let mut command = environment.command(environment.program);
        command.arg("up").arg("--config").arg(&file);
        // SIGTERM would start a planned leave, which hands the holds over.
        processes.push(Server::start(command, Signal::KILL, folder.join("log"))?);
    }
    let http: Vec<String> = http.iter().map(at).collect();
    for address in &http {
        until(&mut processes, || async { net::get(address, "/readyz").await.is_ok() }).await?;
    }
    let addresses = if for_etcd { http.clone() } else { clients.iter().map(at).collect() };
    let version = format!("lockkeeper {}", env!("CARGO_PKG_VERSION"));
    Ok(Running { processes, addresses, metrics: http, counts: Counts::Daemons, version })
}
