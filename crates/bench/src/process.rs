//! Processes that the bench starts, and ends in any case.

use crate::error::{BoxError, FileError};
use crate::servers::NetError;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The time that a server has for an orderly shutdown.
const GRACE: Duration = Duration::from_secs(5);
/// Processor time in /proc is counted in hundredths of a second, on every Linux.
const TICKS_PER_S: f64 = 100.0;

/// The command prefix that makes the kernel end a process with this one.
#[derive(Clone, Debug)]
pub struct PdeathsigPrefix(pub Vec<String>);

/// A server. When dropped, it gets a signal to shut down, and is killed if it does not.
#[derive(Debug)]
pub struct Server {
    child: Child,
    ends_by: Signal,
    log: PathBuf,
}

/// The reason why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The process cannot be started.
    #[error("cannot start {command}: {source}")]
    CannotStart {
        /// The command line.
        command: String,
        /// The underlying error.
        source: io::Error,
    },
    /// The process has ended.
    #[error("it ended ({status}): {log}")]
    Ended {
        /// The exit status.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// It is unknown whether the process runs.
    #[error("{0}")]
    Wait(#[source] io::Error),
    /// The server does not accept requests in time.
    #[error("it does not accept requests after {} s", within.as_secs())]
    NotServing {
        /// The time that it had.
        within: Duration,
    },
    /// A program of the server is not installed.
    #[error("{program} is missing")]
    Missing {
        /// The name of the program.
        program: &'static str,
    },
    /// A program that prepares the server cannot be run.
    #[error("{0}")]
    Prepare(#[source] io::Error),
    /// PostgreSQL's data cannot be created.
    #[error("initdb: {stderr}")]
    InitDb {
        /// The output of initdb.
        stderr: String,
    },
    /// PostgreSQL's user cannot be given access to its folder.
    #[error("{program} {path} fails; is there a user postgres?")]
    GiveAway {
        /// The program that fails.
        program: &'static str,
        /// The path of the folder.
        path: PathBuf,
    },
    /// ZooKeeper's configuration cannot be written.
    #[error("cannot write ZooKeeper's configuration: {0}")]
    ZooKeeperConfig(#[source] io::Error),
    /// The join token of the daemons cannot be created.
    #[error("{0}")]
    JoinToken(#[source] BoxError),
    /// A folder or a configuration cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// There are no free ports, or the server does not answer.
    #[error(transparent)]
    Net(#[from] NetError),
}

impl Server {
    /// Starts a command whose output goes to a log file.
    pub fn start(mut command: Command, ends_by: Signal, log: PathBuf) -> Result<Server, ServerError> {
        use std::os::unix::process::CommandExt;
        let line = format!("{command:?}");
        let cannot = |source| ServerError::CannotStart { command: line.clone(), source };
        let out = File::create(&log).map_err(cannot)?;
        let err = out.try_clone().map_err(cannot)?;
        // A process group of its own: Ctrl-C reaches only this process, which then shuts the server down.
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0).spawn();
        Ok(Server { child: child.map_err(cannot)?, ends_by, log })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Checks that the process runs. The error has the last lines of its log.
    pub fn check_running(&mut self) -> Result<(), ServerError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(ServerError::Ended { status, log: last_lines(&self.log) }),
            Err(error) => Err(ServerError::Wait(error)),
        }
    }
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).into_owned();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
}

impl Drop for Server {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // Not yet waited for, so the process id is still its own.
            let _ = kill_process(pid, self.ends_by);
        }
        let began = Instant::now();
        while began.elapsed() < GRACE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of a program: in one of these folders, on the PATH, or where Debian installs daemons.
pub fn find(program: &str, folders: &[&str]) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let everywhere = folders.iter().copied().chain(path.split(':').filter(|folder| !folder.is_empty()));
    everywhere.map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

/// The resources that processes and their descendants have used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Processor time, in seconds.
    pub cpu_s: f64,
    /// Bytes written to disks; `None` if the kernel does not report them.
    pub disk_bytes: Option<f64>,
}

/// The resources that these processes and their descendants have used.
pub fn used(pids: &[u32]) -> Used {
    let mut parents = HashMap::new();
    let mut times = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some((parent, ticks)) = parse_stat(&stat) {
            parents.insert(pid, parent);
            times.insert(pid, ticks);
        }
    }
    let belongs = |mut pid: u32| {
        while !pids.contains(&pid) {
            match parents.get(&pid) {
                Some(&parent) if parent > 1 => pid = parent,
                _ => return false,
            }
        }
        true
    };
    let ours: Vec<u32> = times.keys().copied().filter(|pid| belongs(*pid)).collect();
    let ticks: u64 = ours.iter().map(|pid| times[pid]).sum();
    let disk_bytes = ours.iter().map(|pid| disk_bytes(*pid)).sum();
    Used { cpu_s: ticks as f64 / TICKS_PER_S, disk_bytes }
}

/// The parent, and the processor time including that of ended children: fields 4 and 14 to 17, counted after
/// the name, which may contain any character.
fn parse_stat(stat: &str) -> Option<(u32, u64)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = [14, 15, 16, 17].into_iter().map(number).sum::<Option<u64>>()?;
    Some((number(4)? as u32, ticks))
}

fn disk_bytes(pid: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_parsed_for_any_process_name() {
        let stat = "42 (a) b) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 5 6 7";
        assert_eq!(parse_stat(stat), Some((7, 127)));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn missing_program_is_not_found() {
        assert!(find("sh", &[]).is_some());
        assert_eq!(find("no-such-program-anywhere", &["/usr/bin"]), None);
    }

    #[test]
    fn server_that_ends_reports_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo the disk is full >&2; exit 3"]);
        let mut server = Server::start(command, Signal::TERM, folder.path().join("log")).unwrap();
        let why = loop {
            match server.check_running() {
                Ok(()) => std::thread::sleep(Duration::from_millis(1)),
                Err(why) => break why,
            }
        };
        assert!(why.to_string().contains("the disk is full"), "{why}");
        assert!(matches!(why, ServerError::Ended { status, .. } if status.code() == Some(3)), "{why:?}");
    }
}
