//! The supervision of a command under a lock: signals are forwarded to it, and it is stopped, with all processes that
//! it has started, when the lock is lost, unless `--on-lost` lets it run.

use super::process_tree::ProcessTree;
use super::{duration, engine};
use crate::exit::{self, CliError};
use lockkeeper::{Guard, HoldState, Loss};
use lockkeeper_text::Printable;
use rustix::process::{Pid, Signal, kill_process};
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// The divisor for the part of the remaining hold that is reserved for SIGKILL to take effect.
const KILL_RESERVE: u32 = 4;

/// The default time between SIGTERM and SIGKILL, if the hold is safe for that long.
const GRACE: Duration = Duration::from_secs(60);

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
    find_program(&command_line[0])?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(DIE_WITH_PARENT).arg(std::process::id().to_string()).arg("--").args(command_line);
    Ok(command)
}

/// Fails if there is no such program. With [`DIE_WITH_PARENT`] it would be missed only after the start of a process, and
/// the lock would count as used.
fn find_program(program: &OsStr) -> std::io::Result<()> {
    let candidates: Vec<PathBuf> = match (program.as_bytes().contains(&b'/'), std::env::var_os("PATH")) {
        (true, _) => vec![program.into()],
        (false, Some(path)) => std::env::split_paths(&path).map(|folder| folder.join(program)).collect(),
        // The system searches its own folders.
        (false, None) => return Ok(()),
    };
    let mut error = ErrorKind::NotFound;
    for candidate in candidates {
        match std::fs::metadata(candidate) {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => return Ok(()),
            Ok(_) => error = ErrorKind::PermissionDenied,
            Err(_) => {}
        }
    }
    Err(error.into())
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
    cannot_run(&format!("cannot run `{}`: {error}", shown(&args.command[0])))
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

/// The reaction to the loss of the lock.
#[derive(clap::Args, Clone, Copy)]
pub struct OnLost {
    /// What happens to CMD when the lock is lost while it runs
    #[arg(long, value_enum, value_name = "ACTION", default_value_t = LossAction::Term)]
    on_lost: LossAction,
    /// Time between SIGTERM and SIGKILL when the lock is lost; shortened to three quarters of the time for which no
    /// other client can be granted the lock [default: 1m]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    grace: Option<Duration>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum LossAction {
    /// Stop it, with SIGTERM and then SIGKILL; the exit code is 79
    Term,
    /// Print a warning and let it run; the exit code is its own
    Warn,
    /// Let it run; the exit code is its own
    Ignore,
}

/// `--grace` for a command that is not stopped.
#[derive(Debug, thiserror::Error)]
#[error(
    "--grace applies to --on-lost term: a command that is not stopped needs no time to stop; leave one of them out"
)]
struct GraceWithoutStop;

impl OnLost {
    /// Rejects flags that contradict each other.
    pub fn check(self) -> Result<(), CliError> {
        match self.on_lost != LossAction::Term && self.grace.is_some() {
            true => Err(CliError::usage(GraceWithoutStop)),
            false => Ok(()),
        }
    }

    /// The time between SIGTERM and SIGKILL if no other client can be granted the lock for `left`.
    fn grace(self, left: Duration) -> Duration {
        self.grace.unwrap_or(GRACE).min(left - left / KILL_RESERVE)
    }
}

/// Runs a command under a guard, and releases the lock afterwards.
pub async fn run(
    guard: Guard,
    command_line: &[OsString],
    credentials: Credentials,
    on_lost: OnLost,
    verbose: bool,
) -> ExitCode {
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
            // No command has run, so another client may run its own, also within `--at-least`.
            let _ = guard.release_early().await;
            return cannot_run(&format!("cannot run `{}`: {error}", shown(&command_line[0])));
        }
    };
    let supervised = supervise(child, &tree, forwarded, on_lost, guard.lost(), || guard.valid_for());
    let ended = tokio::select! {
        ended = supervised => ended,
        never = report_jeopardy(&guard), if verbose => match never {},
    };
    match (ended, guard.release().await) {
        (Ended::Lost, _) => ExitCode::from(exit::LOST),
        (Ended::ByItself(status), released) => {
            match released {
                // Reported when it happened, if at all.
                Err(lockkeeper::Error::Lost { .. }) if on_lost.on_lost != LossAction::Term => {}
                Err(error) => eprintln!("lockkeeper: releasing: {}", Printable(&error.to_string())),
                Ok(()) => {}
            }
            code(status)
        }
        (Ended::Unknown(error), _) => cannot_run(&format!("cannot wait for the command: {error}")),
    }
}

/// Prints when the hold is in jeopardy, and when it is not any more.
async fn report_jeopardy(guard: &Guard) -> Infallible {
    let mut known = HoldState::Held;
    loop {
        known = guard.state_changed(&known).await;
        match &known {
            HoldState::Jeopardy(why) => {
                let left = guard.valid_for().as_secs_f64();
                let (name, why) = (guard.name(), Printable(why));
                eprintln!("lockkeeper: `{name}` is in jeopardy: {why}; it is valid for another {left:.1} s");
            }
            HoldState::Held => eprintln!("lockkeeper: `{}` is renewed again", guard.name()),
            // The loss is reported by `--on-lost`.
            _ => {}
        }
    }
}

/// A program's name for a message. If it is a URL that was given in the wrong place, its secrets are left out.
fn shown(program: &OsStr) -> String {
    lockkeeper::redact(&program.to_string_lossy())
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

/// Waits for the child. When `lost` resolves, stops it and its descendants, or lets it run, according to `on_lost`;
/// `left` is the time for which no other client can be granted the lock.
async fn supervise(
    mut child: Child,
    tree: &ProcessTree,
    mut forwarded: Forwarded,
    on_lost: OnLost,
    lost: impl Future<Output = Loss>,
    left: impl Fn() -> Duration,
) -> Ended {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let mut held = true;
    tokio::pin!(lost);
    loop {
        tokio::select! {
            // A child that ended just before the loss counts as ended by itself.
            biased;
            status = child.wait() => return status.map_or_else(Ended::Unknown, Ended::ByItself),
            loss = &mut lost, if held => {
                held = false;
                let grace = on_lost.grace(left());
                if let Some(message) = message(on_lost.on_lost, &loss, grace) {
                    eprintln!("lockkeeper: {message}");
                }
                if on_lost.on_lost == LossAction::Term {
                    stop(&mut child, pid, tree, grace).await;
                    return Ended::Lost;
                }
            }
            signal = forwarded.next() => match signal {
                Signal::CHILD => tree.reap_orphans(pid),
                signal => send(pid, signal),
            },
        }
    }
}

/// The message about a loss, on one line, as the cause may quote a server.
fn message(action: LossAction, loss: &Loss, grace: Duration) -> Option<String> {
    let loss = loss.to_string();
    let cause = Printable(&loss);
    match action {
        LossAction::Term if grace.is_zero() => {
            Some(format!("the lock is lost, stopping the command at once: {cause}"))
        }
        LossAction::Term => {
            let seconds = grace.as_secs_f64();
            Some(format!("the lock is lost, stopping the command (SIGKILL in {seconds:.1} s): {cause}"))
        }
        LossAction::Warn => Some(format!("the lock is lost, and the command goes on without it: {cause}")),
        LossAction::Ignore => None,
    }
}

/// Sends SIGTERM to the command and its descendants, and SIGKILL after the grace period, while no other client can have
/// been granted the lock.
async fn stop(child: &mut Child, pid: Option<Pid>, tree: &ProcessTree, grace: Duration) {
    // The command itself first and separately: without /proc, it is the only known process.
    send(pid, Signal::TERM);
    tree.signal(Signal::TERM);
    // A stopped process acts on SIGTERM when it is continued.
    tree.signal(Signal::CONT);
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

#[cfg(test)]
mod tests {
    use super::*;

    const fn on_lost(on_lost: LossAction, grace: Option<Duration>) -> OnLost {
        OnLost { on_lost, grace }
    }

    #[test]
    fn the_grace_period_is_limited_by_what_the_lease_allows() {
        let second = Duration::from_secs(1);
        for (asked, left, grace) in [
            (None, second * 4, second * 3),
            (None, second * 4000, second * 60),
            (Some(second), second * 4, second),
            (Some(second * 10), second * 4, second * 3),
            (Some(second * 100), second * 4000, second * 100),
            (Some(second * 10), Duration::ZERO, Duration::ZERO),
            (Some(Duration::ZERO), second * 4, Duration::ZERO),
            (Some(second), Duration::MAX, second),
        ] {
            assert_eq!(on_lost(LossAction::Term, asked).grace(left), grace, "{asked:?} of {left:?}");
        }
    }

    #[test]
    fn a_message_names_the_cause_and_the_consequence_on_one_line() {
        let revoked = Loss::Revoked { by: Some("ada\n\u{1b}[2J".into()) };
        let of = |action, grace| message(action, &revoked, grace).unwrap_or_default();
        let by = r"it was released by force by `ada\n\u{1b}[2J`";
        assert_eq!(
            of(LossAction::Term, Duration::from_millis(7500)),
            format!("the lock is lost, stopping the command (SIGKILL in 7.5 s): {by}")
        );
        assert_eq!(
            of(LossAction::Term, Duration::ZERO),
            format!("the lock is lost, stopping the command at once: {by}")
        );
        assert_eq!(
            of(LossAction::Warn, Duration::ZERO),
            format!("the lock is lost, and the command goes on without it: {by}")
        );
        assert_eq!(of(LossAction::Ignore, Duration::ZERO), "");
    }

    #[test]
    fn a_program_that_cannot_be_started_is_noticed_before_its_process_starts() {
        for program in ["sh", "/bin/sh"] {
            assert!(find_program(program.as_ref()).is_ok(), "{program}");
        }
        for (program, error) in [
            ("/no/such/command", ErrorKind::NotFound),
            ("no-such-command", ErrorKind::NotFound),
            ("/etc/passwd", ErrorKind::PermissionDenied),
            ("/etc", ErrorKind::PermissionDenied),
        ] {
            assert_eq!(find_program(program.as_ref()).unwrap_err().kind(), error, "{program}");
        }
    }

    #[test]
    fn a_grace_period_is_rejected_for_a_command_that_is_not_stopped() {
        let grace = Some(Duration::from_secs(1));
        assert!(on_lost(LossAction::Term, grace).check().is_ok());
        assert!(on_lost(LossAction::Warn, None).check().is_ok());
        assert!(on_lost(LossAction::Warn, grace).check().is_err());
        assert!(on_lost(LossAction::Ignore, grace).check().is_err());
    }
}
