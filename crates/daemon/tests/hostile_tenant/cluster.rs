//! Three daemons as processes on loopback, and the processes of the attacker.

use crate::attacks::Attack;
use lockkeeper_cluster::{JoinToken, Times};
use lockkeeper_daemon::{Config, Daemon};
use lockkeeper_testbed::ports;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::Duration;

/// Number of tenants, including the hostile one, which is number 0.
pub const TENANTS: usize = 10;
/// Number of members of the cluster.
const MEMBERS: u32 = 3;

/// The token of a tenant. These daemons are not reachable from outside.
pub fn secret(tenant: usize) -> String {
    format!("lk_tenant-{tenant}")
}

/// The token of the operator, with which the parent process lists all locks.
pub const OPERATOR: &str = "lk_operator";

/// The ports of one daemon.
#[derive(Clone, Debug)]
pub struct Ports {
    pub members: u16,
    pub clients: u16,
    pub http: u16,
}

/// The daemons of the cluster, as processes.
pub struct Cluster {
    daemons: Vec<Child>,
    pub ports: Vec<Ports>,
}

impl Cluster {
    /// Starts all daemons.
    pub fn start(directory: &Path) -> Self {
        let port = || ports::free().expect("a free port");
        let ports: Vec<Ports> =
            (0..MEMBERS).map(|_| Ports { members: port(), clients: port(), http: port() }).collect();
        let mut daemons = Vec::new();
        let join_token = JoinToken::random().expect("the system has randomness");
        for id in 1..=MEMBERS {
            let file = configure(directory, id, &ports, &join_token).expect("the directory can be written");
            let program = std::env::current_exe().expect("this program has a path");
            let started = Command::new(program).arg("daemon").arg(file).stdin(Stdio::null()).spawn();
            daemons.push(started.expect("a process starts"));
        }
        Self { daemons, ports }
    }

    /// The largest resident memory of the daemons, in MiB.
    pub fn resident(&self) -> u64 {
        let of = |daemon: &Child| {
            let pages = std::fs::read_to_string(format!("/proc/{}/statm", daemon.id())).unwrap_or_default();
            let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
            (pages * 4096) >> 20
        };
        self.daemons.iter().map(of).max().unwrap_or(0)
    }

    /// Daemons that have ended, which none should.
    pub fn ended(&mut self) -> Vec<String> {
        let ended = self.daemons.iter_mut().enumerate().filter_map(|(place, daemon)| {
            let status = daemon.try_wait().expect("it is our own child")?;
            Some(format!("the daemon of member {} ended: {status}", place + 1))
        });
        ended.collect()
    }

    /// Starts an attack, which ends by itself. The attacker gets the acquisitions of other tenants, as if it had
    /// guessed them.
    pub fn attack(&self, attack: Attack, lasts: Duration, acquisitions: &[String]) -> Child {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command.arg("attack").arg(attack.name()).arg(lasts.as_millis().to_string());
        let ports =
            self.ports.iter().map(|ports| format!("{},{},{}", ports.members, ports.clients, ports.http));
        command.arg(ports.collect::<Vec<_>>().join(";")).arg(acquisitions.join(";"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a process starts")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Waits for the attacker's end. An error describes what it achieved.
pub async fn contained(attacker: Child) -> Result<(), String> {
    let ended = tokio::task::spawn_blocking(|| attacker.wait_with_output()).await.expect("no panic");
    let Output { status, stdout, .. } = ended.map_err(|error| error.to_string())?;
    let report = String::from_utf8_lossy(&stdout);
    print!("{report}");
    if status.success() { Ok(()) } else { Err(format!("{status}: {report}")) }
}

fn configure(directory: &Path, id: u32, ports: &[Ports], join_token: &JoinToken) -> std::io::Result<PathBuf> {
    let folder = directory.join(id.to_string());
    std::fs::create_dir(&folder)?;
    join_token.save_new(&folder.join("join-token"))?;
    let mut tokens = String::new();
    for tenant in 0..TENANTS {
        // The hostile tenant has every right to its own prefix.
        let admin = if tenant == 0 { "admin = [\"t0/\"]\n" } else { "" };
        let _ = writeln!(
            tokens,
            "[[token]]\nname = \"t{tenant}\"\nsha256 = \"{}\"\nacquire = [\"t{tenant}/\"]\n{admin}",
            hex(&secret(tenant))
        );
    }
    let operator = hex(OPERATOR);
    let _ = writeln!(tokens, "[[token]]\nname = \"operator\"\nsha256 = \"{operator}\"\nobserve = [\"\"]\n");
    write_private(&folder.join("tokens.toml"), &tokens)?;
    let members = ports.iter().zip(1..).fold(String::new(), |members, (ports, id)| {
        format!("{members}{id} = \"127.0.0.1:{}\"\n", ports.members)
    });
    let Ports { members: own, clients, http } = &ports[id as usize - 1];
    let text = format!(
        "member = {id}\ndata = \"data\"\ntokens = \"tokens.toml\"\naudit = \"audit.jsonl\"\njoin_token = \"join-token\"\n[members]\n{members}\
         [listen]\nmembers = \"127.0.0.1:{own}\"\nclients = \"127.0.0.1:{clients}\"\nhttp = \"127.0.0.1:{http}\"\n"
    );
    let file = folder.join("lockkeeper.toml");
    std::fs::write(&file, text)?;
    Ok(file)
}

/// Writes a file with secrets, which only its owner may read.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

fn hex(token: &str) -> String {
    lockkeeper_daemon::hash(token).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

/// `daemon CONFIGURATION`: runs until it is killed.
pub fn daemon(arguments: &[String]) -> ExitCode {
    let [file] = arguments else { return ExitCode::FAILURE };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let served: Result<(), String> = runtime.expect("a runtime").block_on(async {
        let mut config = Config::read(Path::new(file)).map_err(|error| error.to_string())?;
        // Many processes share few cores here.
        config.member.times = Times::default().times(4);
        let daemon = Daemon::start(config).await.map_err(|error| error.to_string())?;
        Err(format!("{:?}", daemon.ends().await))
    });
    eprintln!("the daemon of {file} ends: {served:?}");
    ExitCode::FAILURE
}
