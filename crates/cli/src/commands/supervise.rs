//! A child process under a lock: signals forwarded, stopped when the lock is lost.

use crate::exit;
use lockkeeper::Guard;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// Of what is left of the hold, the part that is kept for SIGKILL to take effect.
const KILL_RESERVE: u32 = 4;

/// Without a shell unless asked: no quoting traps.
pub fn command(words: &[OsString], shell: bool) -> Command {
    if shell {
        let mut command = Command::new("/bin/sh");
        // The word after the script is `$0`.
        command.arg("-c").arg(&words[0]).arg("lockkeeper").args(&words[1..]);
        command
    } else {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }
}

/// Runs a command under a guard, and gives the lock up afterwards.
pub async fn run(guard: Guard, mut command: Command) -> ExitCode {
    let forwarded = match Forwarded::listen() {
        Ok(forwarded) => forwarded,
        Err(error) => return cannot_run(&format!("cannot listen for signals: {error}")),
    };
    let child = match guard.spawn(&mut command).await {
        Ok(child) => child,
        Err(error) => {
            let program = command.as_std().get_program().to_string_lossy().into_owned();
            return cannot_run(&format!("cannot run `{program}`: {error}"));
        }
    };
    let (code, lost) = supervise(&guard, child, forwarded).await;
    match guard.release().await {
        Err(error) if !lost => eprintln!("lockkeeper: releasing: {error}"),
        _ => {}
    }
    code
}

fn cannot_run(why: &str) -> ExitCode {
    eprintln!("lockkeeper: {why}");
    ExitCode::from(exit::CANNOT_RUN)
}

/// Waits for the child; true if the lock was lost meanwhile.
async fn supervise(guard: &Guard, mut child: Child, mut forwarded: Forwarded) -> (ExitCode, bool) {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    loop {
        tokio::select! {
            // A child that ended just before the loss ended well.
            biased;
            status = child.wait() => return (status.map_or(ExitCode::from(exit::CANNOT_RUN), code), false),
            reason = guard.lost() => {
                eprintln!("lockkeeper: stopping the command, the lock `{}` is lost: {reason}", guard.name());
                stop(guard, &mut child, pid).await;
                return (ExitCode::from(exit::LOST), true);
            }
            signal = forwarded.next() => send(pid, signal),
        }
    }
}

/// SIGTERM, then SIGKILL while nobody else can have entered yet.
async fn stop(guard: &Guard, child: &mut Child, pid: Option<Pid>) {
    send(pid, Signal::TERM);
    let left = guard.valid_for();
    let grace = left.saturating_sub(left / KILL_RESERVE).min(Duration::from_secs(60));
    if tokio::time::timeout(grace, child.wait()).await.is_err() {
        send(pid, Signal::KILL);
        let _ = child.wait().await;
    }
}

fn send(pid: Option<Pid>, signal: Signal) {
    if let Some(pid) = pid {
        // The child is not waited for yet, so the id is still its own.
        let _ = kill_process(pid, signal);
    }
}

fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Signals meant for the command.
struct Forwarded {
    listening: Vec<(Signal, tokio::signal::unix::Signal)>,
}

impl Forwarded {
    fn listen() -> std::io::Result<Forwarded> {
        let signals =
            [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::CONT];
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

/// Ctrl-C and Ctrl-\ go to every process in the terminal's foreground, the child included; a second
/// copy would look like a second, impatient Ctrl-C.
fn terminal_sent_it_to_the_child_too(signal: Signal) -> bool {
    let from_keyboard = signal == Signal::INT || signal == Signal::QUIT;
    from_keyboard
        && rustix::termios::tcgetpgrp(rustix::stdio::stdin())
            .is_ok_and(|group| group == rustix::process::getpgrp())
}
