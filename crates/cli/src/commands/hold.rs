//! `lockkeeper hold` and `lockkeeper release --as`: holds of a named owner, without a process.

use super::engine::{On, block_on};
use super::{describe, duration};
use crate::exit::{self, CliError};
use lockkeeper::{DetachedHold, Error, Lockkeeper};
use lockkeeper_text::Printable;
use std::process::ExitCode;
use std::time::Duration;

/// Hold a lock for a named owner, without a process, until it is released or a deadline passes
///
/// The hold survives the end of this command, the reboot of the machine and the restart of the engine's servers. The
/// same owner succeeds again at once; with --for, that moves the deadline.
#[derive(clap::Args)]
#[command(after_help = "\
A machine that reboots under a lock, so that at most two are down at a time:

  lockkeeper hold reboot --as $HOSTNAME --for 2h --permits 2 && reboot
  lockkeeper release reboot --as $HOSTNAME        # when it is up again

Exit codes: 0 the owner holds the lock; 1 another owner holds it and the time to wait is over (or -E), or without --for:
the owner does not hold it; 64 wrong usage; 69 the engine cannot be used.")]
pub struct Hold {
    /// The owner's name; it has at most one hold of a lock
    #[arg(long = "as", value_name = "OWNER")]
    owner: String,
    /// How long the hold lasts unless it is released; without it, the owner must hold the lock already
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    lasts: Option<Duration>,
    /// Fail at once if another owner holds the lock
    #[arg(short, long, alias = "nb", conflicts_with = "timeout")]
    nonblock: bool,
    /// Give up after this time; a bare number is in seconds
    #[arg(short = 'w', long, alias = "wait", value_name = "SECS", value_parser = duration::parse, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// Request a shared hold, which other shared holders may have at the same time
    #[arg(short, long, conflicts_with = "permits")]
    shared: bool,
    /// Request one of K permits
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    permits: Option<u32>,
    /// Exit code when the lock is not granted in time
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::CONFLICT)]
    conflict_exit_code: u8,
    /// A purpose, which observers of the lock see
    #[arg(long, value_name = "TEXT")]
    purpose: Option<String>,
    /// Print nothing; the exit code is the only result
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    on: On,
    /// The lock's name
    name: String,
}

/// The reason why an owner does not hold a lock.
#[derive(Debug, thiserror::Error)]
enum NotHeld {
    /// The deadline of a new hold is missing.
    #[error("`{owner}` does not hold `{name}`; to acquire it, give --for DURATION")]
    NoDeadline {
        /// The name of the owner.
        owner: String,
        /// The lock's name.
        name: String,
    },
    /// There is no hold to release.
    #[error("`{owner}` has no hold of `{name}` without a process")]
    NothingToRelease {
        /// The name of the owner.
        owner: String,
        /// The lock's name.
        name: String,
    },
}

impl Hold {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        match block_on(self.acquire()) {
            Ok(result) => exit::code(result),
            Err(error) => CliError::CannotStart(error).report(),
        }
    }

    async fn acquire(mut self) -> Result<ExitCode, CliError> {
        let locks = std::mem::take(&mut self.on).open().await?;
        let Some(lasts) = self.lasts else {
            return match locks.detached(self.name.as_str(), &self.owner).await? {
                Some(hold) => Ok(self.report(&hold)),
                None => {
                    let (owner, name) = (self.owner, self.name);
                    Err(CliError::Conflict(NotHeld::NoDeadline { owner, name }.into()))
                }
            };
        };
        match self.request(&locks, lasts).await? {
            Some(hold) => Ok(self.report(&hold)),
            None => {
                if !self.quiet {
                    let holder = describe::holders(&locks.inspect(self.name.as_str()).await?);
                    eprintln!("lockkeeper: `{}` is held by {holder}", Printable(&self.name));
                }
                Ok(ExitCode::from(self.conflict_exit_code))
            }
        }
    }

    async fn request(&self, locks: &Lockkeeper, lasts: Duration) -> Result<Option<DetachedHold>, Error> {
        let name = self.name.as_str();
        let request = match (self.shared, self.permits) {
            (true, _) => locks.shared(name),
            (false, Some(permits)) => locks.semaphore(name, permits),
            (false, None) => locks.mutex(name),
        };
        let request = match &self.purpose {
            Some(purpose) => request.metadata("purpose", describe::one_line(purpose)),
            None => request,
        };
        let request = request.hold_as(self.owner.as_str(), lasts);
        match (self.nonblock, self.timeout) {
            (true, _) => request.try_acquire().await,
            (false, Some(timeout)) => request.acquire_within(timeout).await,
            (false, None) => request.acquire().await.map(Some),
        }
    }

    fn report(&self, hold: &DetachedHold) -> ExitCode {
        if !self.quiet {
            let fence = hold.fence.map(|fence| format!(" with fence {fence}")).unwrap_or_default();
            let (owner, name) = (Printable(&self.owner), Printable(&self.name));
            crate::print_line!("`{owner}` holds `{name}`{fence} for {}", describe::age(hold.left));
        }
        ExitCode::SUCCESS
    }
}

/// Releases the hold of an owner.
pub fn release(name: String, owner: String, on: On) -> Result<ExitCode, CliError> {
    let released = block_on(async { on.open().await?.release_as(name.as_str(), &owner).await });
    match released.map_err(CliError::CannotStart)?? {
        true => {
            crate::print_line!("`{}` was released by `{}`", Printable(&name), Printable(&owner));
            Ok(ExitCode::SUCCESS)
        }
        false => Err(CliError::Conflict(NotHeld::NothingToRelease { owner, name }.into())),
    }
}
