//! Hosts on one machine: network namespaces on one bridge. Packet filters cut links; a proxy adds delay.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The port of every member on its own host.
pub const PORT: u16 = 7420;
/// The number of the host in the centre, which runs the proxy.
pub const HUB: u32 = 250;

/// The directory of the namespaces that `ip netns` knows by name.
const NAMESPACES: &str = "/run/netns";

/// The reason why this process cannot create hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostsError {
    /// The process is not root's.
    NotRoot,
    /// A program is not installed.
    Missing {
        /// The name of the program.
        tool: &'static str,
        /// The package of Debian that contains it.
        package: &'static str,
    },
}

impl fmt::Display for HostsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRoot => f.write_str("only root can create network namespaces"),
            Self::Missing { tool, package } => write!(f, "`{tool}` is missing (Debian: {package})"),
        }
    }
}

impl std::error::Error for HostsError {}

/// Checks that this process can create hosts.
pub fn can_make_hosts() -> Result<(), HostsError> {
    if !rustix::process::geteuid().is_root() {
        return Err(HostsError::NotRoot);
    }
    for (tool, package) in [("ip", "iproute2"), ("nft", "nftables"), ("nsenter", "util-linux")] {
        let found = Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.map_err(|_| HostsError::Missing { tool, package })?;
    }
    Ok(())
}

fn run(command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    let done = Command::new(words[0]).args(&words[1..]).output().expect("the tool starts");
    assert!(done.status.success(), "`{command}`: {}", String::from_utf8_lossy(&done.stderr));
}

/// The hosts of one test run. Dropping it removes them.
pub struct Hosts {
    prefix: String,
    names: Vec<u32>,
    proxy: Option<(Child, u32)>,
    mounted: Vec<PathBuf>,
}

impl Hosts {
    /// Creates this many hosts on one bridge, and one more for the proxy.
    pub fn new(count: u32) -> Self {
        let prefix = format!("lk{}", std::process::id());
        let mut hosts = Self { prefix, names: Vec::new(), proxy: None, mounted: Vec::new() };
        hosts.add(HUB);
        hosts.on(HUB, "ip link add br0 type bridge");
        hosts.on(HUB, "ip link set br0 up");
        hosts.on(HUB, &format!("ip address add {}/24 dev br0", address(HUB)));
        for host in 1..=count {
            hosts.add(host);
            let name = hosts.name(host);
            hosts.on(HUB, &format!("ip link add to{host} type veth peer name eth0 netns {name}"));
            hosts.on(HUB, &format!("ip link set to{host} master br0"));
            hosts.on(HUB, &format!("ip link set to{host} up"));
            hosts.on(host, &format!("ip address add {}/24 dev eth0", address(host)));
            hosts.on(host, "ip link set eth0 up");
        }
        hosts
    }

    fn add(&mut self, host: u32) {
        run(&format!("ip netns add {}", self.name(host)));
        self.names.push(host);
        self.on(host, "ip link set lo up");
        self.on(host, "nft add table inet cuts");
        self.on(host, "nft add chain inet cuts input { type filter hook input priority 0 ; }");
    }

    fn name(&self, host: u32) -> String {
        format!("{}-{host}", self.prefix)
    }

    /// The path of the file that `ip netns add` creates for the namespace of a host.
    fn place(&self, host: u32) -> String {
        format!("{NAMESPACES}/{}", self.name(host))
    }

    fn on(&self, host: u32, command: &str) {
        // Neither `ip netns exec` nor `ip -n`: they remount file systems, which fails where the root is no mount point.
        run(&format!("nsenter --net={} {command}", self.place(host)));
    }

    /// A command that runs on a host. Its process is the program itself.
    pub fn command(&self, host: u32, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.place(host))).arg(program);
        command
    }

    /// Drops all packets from one host to another. The opposite direction stays open.
    pub fn cut(&self, from: u32, to: u32) {
        self.drop_from(from, to);
        // The host behind the proxy also receives and answers through the proxy.
        let behind = self.proxy.as_ref().map(|&(_, host)| host);
        if behind == Some(to) {
            self.drop_from(from, HUB);
        }
        if behind == Some(from) {
            self.drop_from(HUB, to);
        }
    }

    /// Drops all packets between these ports of one host and another host, which may be the same.
    pub fn cut_service(&self, host: u32, ports: &[u16], other: u32) {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let ports = ports.join(", ");
        for (at, from, side) in [(host, other, "dport"), (other, host, "sport")] {
            let rule = format!("ip saddr {} tcp {side} {{ {ports} }} drop", address(from));
            self.on(at, &format!("nft add rule inet cuts input {rule}"));
        }
    }

    fn drop_from(&self, from: u32, at: u32) {
        self.on(at, &format!("nft add rule inet cuts input ip saddr {} drop", address(from)));
    }

    /// Removes all cuts.
    pub fn heal(&self) {
        for &host in &self.names {
            self.on(host, "nft flush chain inet cuts input");
        }
    }

    /// Starts the proxy in front of a host. Returns the address on which the proxy listens.
    pub fn start_proxy(&mut self, host: u32) -> String {
        let program = std::env::current_exe().expect("the path of this program");
        let (listen, to) = (format!("{}:{PORT}", address(HUB)), format!("{}:{PORT}", address(host)));
        let mut command = self.command(HUB, &program);
        command.args(["proxy", &listen, &to]).stdin(Stdio::piped());
        self.proxy = Some((command.spawn().expect("the proxy starts"), host));
        listen
    }

    /// Sets the delay that the proxy adds.
    pub fn delay(&mut self, by: Duration) {
        let (proxy, _) = self.proxy.as_mut().expect("the proxy was started");
        let input = proxy.stdin.as_mut().expect("standard input of the proxy is a pipe");
        writeln!(input, "{}", by.as_millis()).expect("the proxy is running");
    }

    /// Mounts a file system on a directory that is small enough to be filled.
    pub fn mount_small(&mut self, directory: &Path) {
        run(&format!("mount -t tmpfs -o size=4m lockkeeper {}", directory.display()));
        self.mounted.push(directory.to_owned());
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if let Some((mut proxy, _)) = self.proxy.take() {
            let _ = proxy.kill();
            let _ = proxy.wait();
        }
        for directory in &self.mounted {
            let _ = Command::new("umount").arg("-l").arg(directory).status();
        }
        for &host in &self.names {
            let _ = Command::new("ip").args(["netns", "delete", &self.name(host)]).status();
        }
        // `ip netns add` has mounted this directory. Without namespaces in it, nothing needs the mount any more.
        if std::fs::read_dir(NAMESPACES).is_ok_and(|mut names| names.next().is_none()) {
            let _ = Command::new("umount").arg(NAMESPACES).stderr(Stdio::null()).status();
        }
    }
}

/// The address of a host.
pub fn address(host: u32) -> String {
    format!("10.77.0.{host}")
}

/// `proxy LISTEN TO`: forwards bytes both ways, delayed by the milliseconds that the last line of standard input
/// contains.
pub fn proxy(arguments: &[String]) -> ExitCode {
    let [listen, to] = arguments else { return ExitCode::FAILURE };
    let listener = TcpListener::bind(listen).expect("the address is free");
    let delay = Arc::new(AtomicU64::new(0));
    let (delay_from_input, to) = (delay.clone(), to.clone());
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let Ok(onward) = TcpStream::connect_timeout(
                &to.parse().expect("the address to forward to is valid"),
                Duration::from_secs(1),
            ) else {
                continue;
            };
            carry(&connection, &onward, &delay);
            carry(&onward, &connection, &delay);
        }
    });
    // Standard input is closed when the parent ends, and then the proxy ends as well.
    for line in BufReader::new(std::io::stdin()).lines().map_while(Result::ok) {
        delay_from_input.store(line.trim().parse().unwrap_or(0), Ordering::Relaxed);
    }
    ExitCode::SUCCESS
}

fn carry(from: &TcpStream, to: &TcpStream, delay: &Arc<AtomicU64>) {
    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
    let delay = delay.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            std::thread::sleep(Duration::from_millis(delay.load(Ordering::Relaxed)));
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}
