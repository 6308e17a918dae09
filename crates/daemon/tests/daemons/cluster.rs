//! The cluster under test: its certificates, tokens, configurations and processes.

use crate::clients::{Kind, PREFIX};
use crate::operator;
use lockkeeper_cluster::{Authority, JoinToken, MemberId, authority};
use lockkeeper_daemon::{CLIENTS_PORT, HTTP_PORT, MEMBERS_PORT};
use lockkeeper_testbed::hosts::{HUB, Hosts, address};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Timeout for holders when a daemon leaves, in seconds.
pub const LEAVE_TIMEOUT_S: u64 = 3;

/// A process that is started repeatedly.
pub struct Process {
    /// The name of the process.
    pub name: String,
    /// The host on which it runs.
    pub host: u32,
    running: Option<Child>,
    /// Number of times it was started.
    pub starts: u32,
}

impl Process {
    fn new(name: String, host: u32) -> Self {
        Self { name, host, running: None, starts: 0 }
    }

    fn start(&mut self, mut command: Command) {
        self.starts += 1;
        self.running = Some(command.stdin(Stdio::null()).spawn().expect("a process starts"));
    }

    /// Kills it, as a power failure would.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.running.take() {
            process.kill().expect("it is our own child");
            process.wait().expect("it is our own child");
        }
    }

    pub fn signal(&self, signal: Signal) {
        let process = self.running.as_ref().expect("it runs");
        let pid = Pid::from_raw(process.id() as i32).expect("a process has a number");
        kill_process(pid, signal).expect("it is our own child");
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.running.as_mut()?.try_wait().expect("it is our own child")
    }
}

/// The processes of a run and their hosts.
pub struct Cluster {
    pub hosts: Hosts,
    pub daemons: Vec<Process>,
    pub clients: Vec<(Kind, Process)>,
    directory: PathBuf,
    seed: u64,
}

impl Cluster {
    /// Creates hosts and configurations; no process runs yet.
    pub fn new(members: u32, seed: u64, directory: &Path) -> Self {
        let daemons: Vec<Process> = (1..=members).map(|id| Process::new(format!("M{id}"), id)).collect();
        let places = (1..=members).chain([HUB]);
        let client = |kind: Kind, host: u32| {
            let place = if host == HUB { String::from("hub") } else { host.to_string() };
            (kind, Process::new(format!("{}-{place}", kind.name()), host))
        };
        let clients: Vec<_> = places.flat_map(|host| Kind::ALL.map(|kind| client(kind, host))).collect();
        let cluster =
            Self { hosts: Hosts::new(members), daemons, clients, directory: directory.into(), seed };
        cluster.configure().expect("the directory can be written");
        cluster
    }

    fn configure(&self) -> Result<(), Box<dyn std::error::Error>> {
        let authority = Authority::create(1)?;
        let join_token = JoinToken::random()?;
        let mut tokens = String::new();
        for (_, client) in &self.clients {
            let hash = lockkeeper_daemon::hash(&secret(&client.name));
            let hex = hash.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
            let _ = writeln!(
                tokens,
                "[[token]]\nname = \"{}\"\nsha256 = \"{hex}\"\nacquire = [\"{PREFIX}\"]\n",
                client.name
            );
        }
        let hash = lockkeeper_daemon::hash(&secret(operator::NAME));
        let hex = hash.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        let _ = writeln!(
            tokens,
            "[[token]]\nname = \"{}\"\nsha256 = \"{hex}\"\nadmin = [\"\"]\n",
            operator::NAME
        );
        std::fs::write(self.authority(), authority.certificate())?;
        for daemon in &self.daemons {
            let folder = self.directory.join(&daemon.name);
            std::fs::create_dir(&folder)?;
            let id = MemberId(daemon.host);
            authority.issue(id, &[address(daemon.host)], 1)?.save(&folder, id)?;
            std::fs::write(folder.join("tokens.toml"), &tokens)?;
            join_token.save_new(&folder.join("join-token"))?;
            std::fs::write(folder.join("lockkeeper.toml"), self.configuration(daemon))?;
        }
        Ok(())
    }

    fn configuration(&self, daemon: &Process) -> String {
        let (id, at, authority) = (daemon.host, address(daemon.host), authority::CERTIFICATE_FILE);
        let members = self.daemons.iter().fold(String::new(), |members, daemon| {
            format!("{members}{} = \"{}:{MEMBERS_PORT}\"\n", daemon.host, address(daemon.host))
        });
        format!(
            "member = {id}\ndata = \"data\"\ntokens = \"tokens.toml\"\naudit = \"audit.jsonl\"\njoin_token = \"join-token\"\n\
             leave_timeout_s = {LEAVE_TIMEOUT_S}\n[members]\n{members}\
             [listen]\nmembers = \"{at}:{MEMBERS_PORT}\"\nclients = \"{at}:{CLIENTS_PORT}\"\nhttp = \"{at}:{HTTP_PORT}\"\n\
             [tls]\nauthority = \"../{authority}\"\ncertificate = \"member-{id}.pem\"\nkey = \"member-{id}.key\"\n\
             [client_tls]\ncertificate = \"member-{id}.pem\"\nkey = \"member-{id}.key\"\n"
        )
    }

    fn authority(&self) -> PathBuf {
        self.directory.join(authority::CERTIFICATE_FILE)
    }

    /// The audit log of a daemon.
    pub fn audit(&self, place: usize) -> PathBuf {
        self.directory.join(&self.daemons[place].name).join("audit.jsonl")
    }

    /// The file in which clients record their actions.
    pub fn history(&self) -> PathBuf {
        self.directory.join("history")
    }

    fn command(&self, host: u32) -> Command {
        self.hosts.command(host, &std::env::current_exe().expect("this program has a path"))
    }

    pub fn start_daemon(&mut self, place: usize) {
        let daemon = &self.daemons[place];
        let mut command = self.command(daemon.host);
        command.arg("daemon").arg(self.directory.join(&daemon.name).join("lockkeeper.toml"));
        self.daemons[place].start(command);
    }

    /// Changes settings through one daemon, as an operator, and waits until that is done.
    pub fn operate(&self, place: usize, changes: &[String]) -> ExitStatus {
        let at = address(self.daemons[place].host);
        let mut command = self.command(HUB);
        let token = secret(operator::NAME);
        let url = format!("lockkeeper://token:{token}@{at}:{CLIENTS_PORT}?ca={}", self.authority().display());
        command.arg("operator").arg(url).args(changes).stdin(Stdio::null());
        command.status().expect("a process starts")
    }

    /// The group of a client, whose members share the locks that they hold for long: clients of all kinds, each on
    /// another host.
    fn group(&self, place: usize) -> String {
        let (host, kind) = (place / Kind::ALL.len(), place % Kind::ALL.len());
        ((host + kind) % (self.daemons.len() + 1)).to_string()
    }

    pub fn start_client(&mut self, place: usize) {
        let (kind, client) = &self.clients[place];
        let mut command = self.command(client.host);
        let history = self.history().join(format!("{}-{}.jsonl", client.name, client.starts));
        let seed = self.seed ^ ((place as u64) << 32) ^ u64::from(client.starts);
        command.args(["client", kind.name(), &client.name, &secret(&client.name)]);
        command.arg(self.authority()).arg(history).arg(seed.to_string()).arg(self.group(place));
        // Each client begins with another daemon.
        let daemons = (0..self.daemons.len()).map(|n| (place + n) % self.daemons.len());
        command.args(daemons.map(|n| address(self.daemons[n].host)));
        self.clients[place].1.start(command);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.clients.iter_mut().for_each(|(_, client)| client.kill());
        self.daemons.iter_mut().for_each(Process::kill);
    }
}

/// A client's token. The network is not reachable from outside.
fn secret(name: &str) -> String {
    format!("lk_the-secret-of-{name}")
}
