//! Processes by id and start time, so that a reused process id is not mistaken for the old process.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// A process of this machine, in one pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub pid: u32,
    /// The start time in clock ticks since boot, as in `/proc/PID/stat`.
    pub started: u64,
}

impl Process {
    pub fn me() -> Process {
        let pid = std::process::id();
        Process { pid, started: started(pid).unwrap_or(0) }
    }

    /// A process that exists now: a child of this process, not yet waited for.
    pub fn child(pid: u32) -> Process {
        Process { pid, started: started(pid).unwrap_or(0) }
    }

    /// A descriptor that becomes readable when the process ends; `None` if it has already ended.
    ///
    /// The descriptor is opened BEFORE the start time is compared, so that it cannot refer to a later process with
    /// the same id.
    pub fn watch(&self) -> std::io::Result<Option<OwnedFd>> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let reused = match started(self.pid) {
            // Without a readable /proc, reuse cannot be detected: to be safe, the existing process counts as the old
            // one.
            None => false,
            Some(started) => self.started != 0 && started != self.started,
        };
        Ok(if reused || has_ended(&pidfd)? { None } else { Some(pidfd) })
    }
}

/// Whether the process has ended, also as a zombie. `/proc` alone would also report a process as dead whose first
/// thread has ended.
fn has_ended(pidfd: &OwnedFd) -> std::io::Result<bool> {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    Ok(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
}

/// The start time: field 22 of `/proc/PID/stat`, counted after the command's name, which may contain any character.
fn started(pid: u32) -> Option<u64> {
    let stat = read_proc(&format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The pid namespace of this process. Process ids of another namespace have no meaning here.
pub(super) fn pid_namespace() -> String {
    std::fs::read_link("/proc/self/ns/pid").map_or_else(|_| String::new(), |l| l.to_string_lossy().into())
}

/// The id of the current boot of the machine.
pub(super) fn boot_id() -> std::io::Result<String> {
    Ok(read_proc("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Reads a file of /proc. The kernel does not report its size, and the standard library would read it in small parts.
fn read_proc(path: &str) -> std::io::Result<String> {
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = vec![0; 4096];
    // Linux returns these files whole if the buffer is large enough.
    let length = rustix::io::read(&fd, &mut bytes)?;
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_until_it_ends_and_a_reused_pid_is_another_process() {
        assert!(Process::me().watch().unwrap().is_some());
        let other = Process { started: Process::me().started + 1, ..Process::me() };
        assert!(other.watch().unwrap().is_none(), "same id, other start");

        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = Process::child(child.id());
        let pidfd = process.watch().unwrap().expect("cat waits for its input");
        drop(child.stdin.take());
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        assert!(process.watch().unwrap().is_none(), "a zombie has ended");
        child.wait().unwrap();
        assert!(process.watch().unwrap().is_none());
    }
}
