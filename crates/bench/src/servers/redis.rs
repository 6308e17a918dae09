//! Redis servers, with default settings.

use super::{Counts, Running, ServerEnvironment, net, until, version_of};
use crate::process::{Server, ServerError, find};
use rustix::process::Signal;

/// The required programs: name, folders, package.
pub const NEEDS: [(&str, &[&str], &str); 1] = [("redis-server", &[], "redis-server")];

pub async fn start(count: usize, environment: &ServerEnvironment<'_>) -> Result<Running, ServerError> {
    let program = find(NEEDS[0].0, NEEDS[0].1).ok_or(ServerError::Missing { program: "redis-server" })?;
    let (mut processes, mut addresses) = (Vec::new(), Vec::new());
    for port in net::free_ports(count)? {
        let folder = environment.folder(&format!("redis-{port}"))?;
        let mut command = environment.command(&program);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]).arg("--dir").arg(&folder);
        // No snapshot at shutdown, since its data is deleted anyway.
        processes.push(Server::start(command, Signal::KILL, folder.join("log"))?);
        addresses.push(format!("127.0.0.1:{port}"));
    }
    for address in &addresses {
        until(&mut processes, || async {
            net::ask(address, "PING\r\n", "\n").await.is_ok_and(|answer| answer.starts_with("+PONG"))
        })
        .await?;
    }
    let version = version_of(&program, "--version");
    let number = version.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or(&version);
    let version = format!("Redis {number}");
    Ok(Running { processes, addresses, metrics: Vec::new(), counts: Counts::None, version })
}
