//! The processes that a command has started, including those that left its process group or its session.
//!
//! `lockkeeper run` asks the kernel to become the parent of its orphaned descendants (`PR_SET_CHILD_SUBREAPER`). All
//! processes of the command are then descendants of this process for their whole lifetime, and /proc lists them. A
//! process group would miss processes that called setsid(2), and would take the command out of the terminal's
//! foreground.
//!
//! A process that a service starts on request, such as a container's daemon or systemd-run, is not a descendant and
//! is not found.

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, pidfd_open, pidfd_send_signal,
};
use std::collections::{HashMap, HashSet};

/// The descendants of this process, except those of children that it had before.
pub struct ProcessTree {
    /// The earlier children: those of a shell that has become `lockkeeper run` by exec(2).
    earlier: HashSet<Process>,
}

/// A process, by id and start time: the id alone may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    pub pid: i32,
    started: u64,
}

/// One process as /proc/PID/stat describes it.
struct Stat {
    process: Process,
    parent: i32,
    ended: bool,
}

impl ProcessTree {
    /// Makes this process the parent of orphans among its descendants. Call it BEFORE the command starts.
    pub fn new() -> ProcessTree {
        // If the kernel does not allow it, only descendants that still have their parents are found.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let earlier = own_children().into_iter().filter_map(|pid| Some(stat(pid.as_raw_pid())?.process));
        ProcessTree { earlier: earlier.collect() }
    }

    /// All processes that have not ended.
    pub fn living(&self) -> Vec<Process> {
        let all = snapshot();
        let mut found: Vec<Process> =
            children(&all, own_pid()).into_iter().filter(|child| !self.earlier.contains(child)).collect();
        let mut next = 0;
        while next < found.len() {
            let children = children(&all, found[next].pid);
            found.extend(children);
            next += 1;
        }
        found
    }

    /// Sends a signal to all processes; returns those that this user may not signal.
    pub fn signal(&self, signal: Signal) -> Vec<Process> {
        self.living().into_iter().filter(|process| process.signal(signal) == Err(Errno::PERM)).collect()
    }

    /// Collects the exit codes of orphans, which would otherwise remain as zombies. The command's own is left to its
    /// owner.
    pub fn reap_orphans(&self, command: Option<Pid>) {
        for pid in own_children().into_iter().filter(|pid| Some(*pid) != command) {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

impl Process {
    /// Sends a signal. The pidfd is opened BEFORE the start time is compared, so that it cannot refer to a later
    /// process.
    fn signal(self, signal: Signal) -> Result<(), Errno> {
        let pid = Pid::from_raw(self.pid).ok_or(Errno::SRCH)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        match stat(self.pid) {
            Some(now) if now.process == self => pidfd_send_signal(pidfd, signal),
            _ => Err(Errno::SRCH),
        }
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

/// The children of this process, ended or not. The kernel lists them by the thread that started or adopted them: this
/// costs microseconds, where [`snapshot`] costs milliseconds. Empty on a kernel without these lists.
fn own_children() -> Vec<Pid> {
    // The usual case, answered by one call: there are none.
    let exited = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if matches!(rustix::process::waitid(WaitId::All, exited), Err(Errno::CHILD)) {
        return Vec::new();
    }
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_ascii_whitespace().filter_map(parse_pid).collect::<Vec<_>>()).collect()
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

/// All processes, by the id of their parent.
fn snapshot() -> HashMap<i32, Vec<Stat>> {
    let mut all: HashMap<i32, Vec<Stat>> = HashMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if let Some(stat) = stat(pid) {
            all.entry(stat.parent).or_default().push(stat);
        }
    }
    all
}

/// The children of a process that have not ended.
fn children(all: &HashMap<i32, Vec<Stat>>, parent: i32) -> Vec<Process> {
    let children = all.get(&parent).map(Vec::as_slice).unwrap_or_default();
    children.iter().filter(|child| !child.ended).map(|child| child.process).collect()
}

/// Parses /proc/PID/stat. The fields follow the name of the program, which may contain any character, in parentheses:
/// `7 (sh) S 1 …`.
fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some(Stat {
        ended: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        process: Process { pid, started: fields.get(19)?.parse().ok()? },
    })
}
