//! A PostgreSQL server, with default settings.

use super::{Counts, Running, ServerEnvironment, net, until, version_of};
use crate::process::{Server, ServerError, find};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

/// The folders in which Debian installs the server's programs.
const FOLDERS: &[&str] = &[
    "/usr/lib/postgresql/18/bin",
    "/usr/lib/postgresql/17/bin",
    "/usr/lib/postgresql/16/bin",
    "/usr/lib/postgresql/15/bin",
    "/usr/lib/postgresql/14/bin",
];

/// The required programs: name, folders, package.
pub const NEEDS: [(&str, &[&str], &str); 2] =
    [("initdb", FOLDERS, "postgresql"), ("postgres", FOLDERS, "postgresql")];

pub async fn start(environment: &ServerEnvironment<'_>) -> Result<Running, ServerError> {
    let initdb = find("initdb", FOLDERS).ok_or(ServerError::Missing { program: "initdb" })?;
    let postgres = initdb.with_file_name("postgres");
    let folder = environment.folder("postgres")?;
    give_away(environment.folder, &folder)?;
    let mut made = as_postgres(&initdb, false);
    made.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
    let made = made.arg("-D").arg(folder.join("data")).output().map_err(ServerError::Prepare)?;
    if !made.status.success() {
        let stderr = String::from_utf8_lossy(&made.stderr).trim().to_owned();
        return Err(ServerError::InitDb { stderr });
    }
    let port = net::free_port()?;
    let mut command = as_postgres(&postgres, true);
    command.arg("-D").arg(folder.join("data")).args([
        "-p",
        &port.to_string(),
        "-c",
        "listen_addresses=127.0.0.1",
    ]);
    command.arg("-c").arg(format!("unix_socket_directories={}", folder.display()));
    // SIGINT shuts it down in order; after SIGKILL, it would leave a shared memory segment behind.
    let log = environment.folder.join("postgres.log");
    let mut processes = vec![Server::start(command, Signal::INT, log)?];
    let ready = initdb.with_file_name("pg_isready");
    let serves = || async {
        let port = port.to_string();
        let asked = Command::new(&ready).args(["-q", "-h", "127.0.0.1", "-p", &port]).status();
        asked.is_ok_and(|status| status.success())
    };
    until(&mut processes, serves).await?;
    let addresses = vec![format!("postgres://postgres@127.0.0.1:{port}/postgres")];
    let version = version_of(&postgres, "--version").replace("postgres (PostgreSQL)", "PostgreSQL");
    Ok(Running { processes, addresses, metrics: Vec::new(), counts: Counts::Nothing, version })
}

/// PostgreSQL refuses to run as root: then it runs as the user `postgres`, which its package creates. A
/// server ends with this process.
fn as_postgres(program: &Path, serves: bool) -> Command {
    let mut command = Command::new("setpriv");
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).current_dir("/");
    }
    if serves {
        command.args(["--pdeathsig", "INT"]);
    }
    command.arg("--").arg(program);
    command
}

/// Gives the user `postgres` access to its folder, and to the one around it.
fn give_away(around: &Path, folder: &Path) -> Result<(), ServerError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let run = |program: &'static str, arguments: &[&str], path: &Path| {
        let done = Command::new(program).args(arguments).arg(path).status();
        match done.map_err(ServerError::Prepare)?.success() {
            true => Ok(()),
            false => Err(ServerError::GiveAway { program, path: path.into() }),
        }
    };
    run("chmod", &["o+x"], around)?;
    run("chown", &["postgres:postgres"], folder)
}
