//! The supervision of a command under a lock: signals are forwarded to it, and it is stopped, with all processes that
//! it has started, when the lock is lost.

use super::engine;
use super::process_tree::ProcessTree;
use crate::exit;
use lockkeeper::Guard;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// The divisor for the part of the remaining hold that is reserved for SIGKILL to take effect.
const KILL_RESERVE: u32 = 4;

/// The limit on the time between SIGTERM and SIGKILL, however long the hold is still safe.
const GRACE_MAX: Duration = Duration::from_secs(60);

/// The first and the longest interval at which /proc is read while processes end; reading it costs milliseconds on a
/// busy machine.
const LOOK_FIRST: Duration = Duration::from_millis(2);
const LOOK_MAX: Duration = Duration::from_millis(200);

/// The command line to run. With a shell, the caller has checked that `command` is one argument.
pub fn command_line(command: &[OsString], shell: bool) -> Vec<OsString> {
    if !shell {
        return command.to_vec();
    }
    let start = ["/bin/sh", "-c"].map(OsString::from);
    // The argument after the script is `$0`, with which a shell prefixes its error messages.
    start.into_iter().chain(command.iter().cloned()).chain([OsString::from("lockkeeper")]).collect()
}

fn command(command_line: &[OsString]) -> Command {
    let mut command = Command::new(&command_line[0]);
    command.args(&command_line[1..]);
    command
}

/// A command that the kernel kills when this process dies.
///
/// Where holds expire, a `run` killed with `kill -9` stops renewing, and after the time to live the lock is granted
/// to the next client: the command must have ended by then. So it is started through [`die_with_parent`], whose
/// setting survives exec(2).
fn command_that_dies_with_us(command_line: &[OsString]) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(DIE_WITH_PARENT).arg(std::process::id().to_string()).arg("--").args(command_line);
    Ok(command)
}

/// The hidden subcommand that becomes the command by exec(2).
pub const DIE_WITH_PARENT: &str = "die-with-parent";

/// Arguments of the hidden subcommand.
#[derive(clap::Args)]
pub struct DieWithParent {
    /// The parent process; its death kills the command
    parent: i32,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Asks the kernel for SIGKILL on the parent's death, and executes the command.
pub fn die_with_parent(args: DieWithParent) -> ExitCode {
    use std::os::unix::process::CommandExt;
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return cannot_run(&format!("cannot tie the command to the lock: {error}"));
    }
    // The parent may have died before this request to the kernel.
    if rustix::process::getppid().map(|parent| parent.as_raw_pid()) != Some(args.parent) {
        return ExitCode::from(exit::LOST);
    }
    let error = std::process::Command::new(&args.command[0]).args(&args.command[1..]).exec();
    cannot_run(&format!("cannot run `{}`: {error}", args.command[0].to_string_lossy()))
}

/// The part of the command's environment that selects an engine.
#[derive(clap::Args, Clone, Copy)]
pub struct Credentials {
    /// Pass LOCKKEEPER_URL and LOCKKEEPER_TOKEN on to CMD, for commands that use lockkeeper themselves
    #[arg(long)]
    keep_credentials: bool,
}

impl Credentials {
    /// Removes the URL and the token from the command's environment, unless they are to be kept.
    fn apply(self, command: &mut Command) {
        if self.keep_credentials {
            return;
        }
        if std::env::var_os(engine::URL).is_some() {
            // A `lockkeeper run` inside the command must not fall back to the locks of another engine.
            command.env(engine::URL_REMOVED, "1");
        }
        command.env_remove(engine::URL).env_remove(engine::TOKEN);
    }
}

/// Runs a command under a guard, and releases the lock afterwards.
pub async fn run(guard: Guard, command_line: &[OsString], credentials: Credentials) -> ExitCode {
    let forwarded = match Forwarded::listen() {
        Ok(forwarded) => forwarded,
        Err(error) => return cannot_run(&format!("cannot listen for signals: {error}")),
    };
    let expires = guard.ttl().is_some();
    let prepared = if expires { command_that_dies_with_us(command_line) } else { Ok(command(command_line)) };
    let tree = ProcessTree::new();
    let spawned = match prepared {
        Ok(mut command) => {
            credentials.apply(&mut command);
            guard.spawn(&mut command).await
        }
        Err(error) => Err(error),
    };
    let child = match spawned {
        Ok(child) => child,
        Err(error) => {
            return cannot_run(&format!("cannot run `{}`: {error}", command_line[0].to_string_lossy()));
        }
    };
    let ended = supervise(child, &tree, forwarded, guard.lost(), || guard.valid_for()).await;
    match (ended, guard.release().await) {
        (Ended::Lost, _) => ExitCode::from(exit::LOST),
        (Ended::ByItself(status), released) => {
            if let Err(error) = released {
                eprintln!("lockkeeper: releasing: {error}");
            }
            code(status)
        }
        (Ended::Unknown(error), _) => cannot_run(&format!("cannot wait for the command: {error}")),
    }
}

fn cannot_run(why: &str) -> ExitCode {
    eprintln!("lockkeeper: {why}");
    ExitCode::from(exit::CANNOT_RUN)
}

/// The end of a command.
#[derive(Debug)]
enum Ended {
    ByItself(ExitStatus),
    /// Stopped by this process, because the lock was being lost.
    Lost,
    Unknown(std::io::Error),
}

/// Waits for the child, or stops it and its descendants when `lost` resolves; `left` is the time for which no other
/// client can be granted the lock.
async fn supervise(
    mut child: Child,
    tree: &ProcessTree,
    mut forwarded: Forwarded,
    lost: impl Future<Output = String>,
    left: impl Fn() -> Duration,
) -> Ended {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    tokio::pin!(lost);
    loop {
        tokio::select! {
            // A child that ended just before the loss counts as ended by itself.
            biased;
            status = child.wait() => return status.map_or_else(Ended::Unknown, Ended::ByItself),
            reason = &mut lost => {
                eprintln!("lockkeeper: the lock is lost, stopping the command: {reason}");
                stop(&mut child, pid, tree, left()).await;
                return Ended::Lost;
            }
            signal = forwarded.next() => match signal {
                Signal::CHILD => tree.reap_orphans(pid),
                signal => send(pid, signal),
            },
        }
    }
}

/// Sends SIGTERM to the command and its descendants, then SIGKILL, while no other client can have been granted the
/// lock.
async fn stop(child: &mut Child, pid: Option<Pid>, tree: &ProcessTree, left: Duration) {
    // The command itself first and separately: without /proc, it is the only known process.
    send(pid, Signal::TERM);
    tree.signal(Signal::TERM);
    // A stopped process acts on SIGTERM when it is continued.
    tree.signal(Signal::CONT);
    let grace = (left - left / KILL_RESERVE).min(GRACE_MAX);
    let ended = async {
        let _ = child.wait().await;
        gone(pid, tree, |tree| tree.living().is_empty()).await;
    };
    if tokio::time::timeout(grace, ended).await.is_err() {
        send(pid, Signal::KILL);
        gone(pid, tree, kill_all).await;
        let _ = child.wait().await;
    }
}

/// Kills all descendants, including those started since the last call. Returns whether none is left that can be
/// killed.
fn kill_all(tree: &ProcessTree) -> bool {
    let refused = tree.signal(Signal::KILL);
    let living = tree.living();
    let done = living.iter().all(|process| refused.contains(process));
    for process in living.iter().filter(|_| done) {
        eprintln!("lockkeeper: process {} of the command still runs: this user may not stop it", process.pid);
    }
    done
}

/// Waits until the condition holds.
async fn gone(command: Option<Pid>, tree: &ProcessTree, condition: impl Fn(&ProcessTree) -> bool) {
    let mut pause = LOOK_FIRST;
    while !condition(tree) {
        tokio::time::sleep(pause).await;
        tree.reap_orphans(command);
        pause = (pause * 2).min(LOOK_MAX);
    }
}

fn send(pid: Option<Pid>, signal: Signal) {
    if let Some(pid) = pid {
        // The child has not been waited for, so its process id is still valid.
        let _ = kill_process(pid, signal);
    }
}

fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

/// The signals that are forwarded to the command.
struct Forwarded {
    listening: Vec<(Signal, tokio::signal::unix::Signal)>,
}

impl Forwarded {
    fn listen() -> std::io::Result<Forwarded> {
        let signals = [
            Signal::TERM,
            Signal::HUP,
            Signal::INT,
            Signal::QUIT,
            Signal::USR1,
            Signal::USR2,
            Signal::CONT,
            // Not forwarded: a descendant of the command has ended.
            Signal::CHILD,
        ];
        let mut listening = Vec::new();
        for kind in signals {
            listening.push((kind, signal(SignalKind::from_raw(kind.as_raw()))?));
        }
        Ok(Forwarded { listening })
    }

    async fn next(&mut self) -> Signal {
        loop {
            let received = std::future::poll_fn(|cx| {
                for (kind, stream) in &mut self.listening {
                    if stream.poll_recv(cx).is_ready() {
                        return std::task::Poll::Ready(*kind);
                    }
                }
                std::task::Poll::Pending
            })
            .await;
            if !terminal_sent_it_to_the_child_too(received) {
                return received;
            }
        }
    }
}

/// Whether the terminal has sent the signal to the child, too. Ctrl-C and Ctrl-\ go to every process in the
/// terminal's foreground, including the child; a second copy would look like a second Ctrl-C.
fn terminal_sent_it_to_the_child_too(signal: Signal) -> bool {
    let from_keyboard = signal == Signal::INT || signal == Signal::QUIT;
    from_keyboard
        && rustix::termios::tcgetpgrp(rustix::stdio::stdin())
            .is_ok_and(|group| group == rustix::process::getpgrp())
}
