//! Real servers, started by the tests on free loopback ports and killed with them.

use crate::ports;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A timeout that only a server that never starts reaches.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that a test stops and starts again. Both methods return when they have taken effect.
pub trait Server: Sync {
    /// Kills the server with SIGKILL.
    fn stop(&self);
    /// Starts the server again, on the same port and the same data.
    fn start(&self);
}

/// A server process. Killed with SIGKILL and waited for when dropped, also when the test panics.
pub struct LocalServer {
    port: u16,
    command: Box<dyn Fn(u16) -> Command + Send + Sync>,
    child: Mutex<Option<Child>>,
}

impl LocalServer {
    /// Starts `command(port)` on a free port, and returns when it accepts connections.
    pub fn start(command: impl Fn(u16) -> Command + Send + Sync + 'static) -> LocalServer {
        let command = Box::new(command);
        let start = Instant::now();
        loop {
            let port = ports::free().unwrap();
            // Another process may take the port first; then the server ends, and the next port is tried.
            if let Some(child) = running(command(port), port) {
                return LocalServer { port, command, child: Mutex::new(Some(child)) };
            }
            assert!(start.elapsed() < START_TIMEOUT, "the server does not start");
        }
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a signal by name, with kill(1).
    pub fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// Whether it has been started, and not stopped since.
    pub fn is_running(&self) -> bool {
        self.child.lock().unwrap().is_some()
    }

    /// The id of the process. Panics while the server is stopped.
    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().as_ref().expect("it runs").id()
    }
}

impl Server for LocalServer {
    fn stop(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn start(&self) {
        let start = Instant::now();
        let child = loop {
            match running((self.command)(self.port), self.port) {
                Some(child) => break child,
                None => assert!(start.elapsed() < START_TIMEOUT, "the server does not start again"),
            }
        };
        *self.child.lock().unwrap() = Some(child);
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        Server::stop(self);
    }
}

/// The process once it accepts connections; `None` if it ended instead.
fn running(mut command: Command, port: u16) -> Option<Child> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    loop {
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() && child.try_wait().unwrap().is_none() {
            return Some(child);
        }
        assert!(start.elapsed() < START_TIMEOUT, "{command:?} does not accept connections");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The path of a server's program. If it is missing, the test fails for root, who can install the package; for other
/// users it is skipped with a message.
pub fn program(name: &str, directories: &[&str], package: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let everywhere = directories.iter().copied().chain(path.split(':')).chain(["/usr/sbin"]);
    let found = everywhere.map(|directory| Path::new(directory).join(name)).find(|path| path.exists());
    if found.is_none() {
        assert!(!is_root(), "{name} is missing: apt-get install {package} (or scripts/servers {package})");
        eprintln!("SKIPPED: {name} is missing; install the package {package} to run this test");
    }
    found
}

/// The children of a process, according to the kernel.
pub fn children_of(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
