//! Three daemons of one cluster, each a process of `lockkeeper up`, on loopback; curl as a client of HTTP; and a connection that
//! can be cut.

use lockkeeper_testbed::{ports, servers};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A timeout that only a stuck test reaches.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until a condition holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "stuck: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether curl is installed. If not, the test fails for root, who can install it, and is skipped for other users.
pub fn has_curl() -> bool {
    servers::program("curl", &[], "curl").is_some()
}

/// The status and the JSON body of an answer. `None` if there is none.
pub fn curl(http: u16, path: &str) -> Option<(u16, Value)> {
    request(http, path, &[])
}

/// Sends a body, and waits for the answer for this many seconds.
pub fn curl_post(http: u16, path: &str, body: &Value, within_s: u32) -> Option<(u16, Value)> {
    let (body, within_s) = (body.to_string(), within_s.to_string());
    request(http, path, &["-H", "content-type: application/json", "-d", &body, "--max-time", &within_s])
}

fn request(http: u16, path: &str, options: &[&str]) -> Option<(u16, Value)> {
    let (status, text) = text(http, path, options)?;
    Some((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
}

fn text(http: u16, path: &str, options: &[&str]) -> Option<(u16, String)> {
    let url = format!("http://127.0.0.1:{http}{path}");
    let mut command = Command::new("curl");
    command.args(["-s", "--noproxy", "*", "-w", "\n%{http_code}", "--max-time", "60"]).args(options).arg(url);
    let answered = command.output().unwrap();
    let printed = String::from_utf8(answered.stdout).ok()?;
    let (body, status) = printed.rsplit_once('\n')?;
    answered.status.success().then(|| (status.parse().unwrap_or(0), body.to_owned()))
}

/// A daemon, and its ports.
struct Daemon {
    config: PathBuf,
    clients: u16,
    http: u16,
    process: Option<Child>,
}

impl Daemon {
    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Three daemons. They are killed when dropped.
pub struct ThreeDaemons {
    daemons: Vec<Daemon>,
    home: tempfile::TempDir,
}

impl ThreeDaemons {
    /// Starts the daemons of a new cluster, and waits until they serve.
    pub fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let token = home.path().join("join-token");
        std::fs::write(&token, format!("lkjoin_{}\n", "5a".repeat(32))).unwrap();
        std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
        let ports: Vec<[u16; 3]> = (0..3).map(|_| [(); 3].map(|()| ports::free().unwrap())).collect();
        let members: String =
            (1..).zip(&ports).map(|(id, [at, ..])| format!("{id} = \"127.0.0.1:{at}\"\n")).collect();
        // On a loaded machine a process may pause for long, and these tests are not about speed.
        let times = if std::env::var_os("LOCKKEEPER_TTL_S").is_some() { "default" } else { "slow" };
        let daemon = |(id, [members_at, clients, http]): (u32, &[u16; 3])| {
            let config = home.path().join(format!("{id}.toml"));
            let text = format!(
                "member = {id}\ntimes = \"{times}\"\ndata = \"data-{id}\"\njoin_token = \"join-token\"\n[members]\n{members}[listen]\n\
                 members = \"127.0.0.1:{members_at}\"\nclients = \"127.0.0.1:{clients}\"\nhttp = \"127.0.0.1:{http}\"\n"
            );
            std::fs::write(&config, text).unwrap();
            Daemon { config, clients: *clients, http: *http, process: None }
        };
        let daemons = (1..).zip(&ports).map(daemon).collect();
        let mut all = Self { daemons, home };
        all.restart_all();
        all
    }

    /// A file of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// `lockkeeper` in an almost empty environment, as a client of all daemons.
    pub fn lockkeeper(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(args).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.home.path());
        let url = format!("lockkeeper://{}", self.clients_addresses(&[0, 1, 2]));
        command.env("LOCKKEEPER_URL", url).stdin(Stdio::null());
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.lockkeeper(args).output().unwrap()
    }

    /// The exit code and the messages of a command.
    pub fn result(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.output(args);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// The exit code and the output of a command.
    pub fn printed(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.output(args);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    /// The port of a daemon for native clients.
    pub fn clients_port(&self, daemon: usize) -> u16 {
        self.daemons[daemon].clients
    }

    /// The addresses of daemons for native clients, as in a URL.
    pub fn clients_addresses(&self, daemons: &[usize]) -> String {
        let addresses = daemons.iter().map(|daemon| format!("127.0.0.1:{}", self.daemons[*daemon].clients));
        addresses.collect::<Vec<_>>().join(",")
    }

    /// The ports for HTTP.
    pub fn http_ports(&self) -> Vec<u16> {
        self.daemons.iter().map(|daemon| daemon.http).collect()
    }

    /// The addresses for HTTP and etcd's API.
    pub fn http_addresses(&self) -> Vec<String> {
        self.daemons.iter().map(|daemon| format!("127.0.0.1:{}", daemon.http)).collect()
    }

    /// The ports for HTTP of the daemons that run.
    pub fn running(&self) -> impl Iterator<Item = u16> + '_ {
        self.daemons.iter().filter(|daemon| daemon.process.is_some()).map(|daemon| daemon.http)
    }

    /// The number of recorded holds, as a daemon knows it.
    pub fn records(&self, daemon: usize) -> u64 {
        let metrics =
            text(self.daemons[daemon].http, "/metrics", &[]).map(|(_, text)| text).unwrap_or_default();
        let line = metrics.lines().find_map(|line| line.strip_prefix("lockkeeper_recorded_holds "));
        line.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    fn begin(&mut self, daemon: usize) {
        let config = self.daemons[daemon].config.display().to_string();
        let log = std::fs::File::options().append(true).create(true).open(self.path("daemons.log")).unwrap();
        let process = self.lockkeeper(&["up", "--config", &config]).stdout(Stdio::null()).stderr(log).spawn();
        self.daemons[daemon].process = Some(process.unwrap());
    }

    /// Waits until a daemon grants locks.
    fn serves(&self, daemon: usize) {
        let http = self.daemons[daemon].http;
        until(&format!("daemon {} serves", daemon + 1), || {
            text(http, "/readyz", &[]).is_some_and(|(status, _)| status == 200)
        });
    }

    /// Kills a daemon with SIGKILL.
    pub fn kill(&mut self, daemon: usize) {
        self.daemons[daemon].kill();
    }

    /// Starts a daemon again, and waits until it grants locks.
    pub fn restart(&mut self, daemon: usize) {
        self.begin(daemon);
        self.serves(daemon);
    }

    /// Kills all daemons that run at once, and starts all of them.
    pub fn restart_all(&mut self) {
        (0..3).for_each(|daemon| self.kill(daemon));
        (0..3).for_each(|daemon| self.begin(daemon));
        (0..3).for_each(|daemon| self.serves(daemon));
    }

    /// Sends SIGTERM to a daemon, and waits for its end. Returns its exit code.
    pub fn leave(&mut self, daemon: usize) -> Option<i32> {
        let mut process = self.daemons[daemon].process.take().expect("it runs");
        assert!(Command::new("kill").arg(process.id().to_string()).status().unwrap().success());
        let mut ended = None;
        until(&format!("daemon {} leaves", daemon + 1), || {
            ended = process.try_wait().unwrap();
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }
}

/// A way to a port that can be cut: connections stay open, and nothing passes.
pub struct Cut {
    port: u16,
    stalled: Arc<AtomicBool>,
}

impl Cut {
    /// Passes all connections to this port of loopback.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (own, stalled) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let state = stalled.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(daemon) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
                for (from, to) in [(&client, &daemon), (&daemon, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let state = state.clone();
                    std::thread::spawn(move || pass(from, to, &state));
                }
            }
        });
        Self { port: own, stalled }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets nothing pass.
    pub fn stall(&self) {
        self.stalled.store(true, Ordering::SeqCst);
    }

    /// Lets everything pass again.
    pub fn heal(&self) {
        self.stalled.store(false, Ordering::SeqCst);
    }
}

/// Passes bytes in one direction until one end closes its connection.
fn pass(mut from: TcpStream, mut to: TcpStream, stalled: &AtomicBool) {
    from.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut bytes = [0; 4096];
    loop {
        let read = match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        while stalled.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
