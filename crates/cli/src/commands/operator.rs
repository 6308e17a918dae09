//! Commands for operators of a cluster: `members`, `status`, `release`, `leave`.

use super::engine::{OnDaemon, block_on};
use crate::exit::{self, CliError};
use comfy_table::{Table, presets};
use lockkeeper::Error;
use lockkeeper::cluster::{ClusterStatus, Operator};
use lockkeeper_text::Printable;
use std::process::ExitCode;

/// Show the members of a cluster, as one of them sees them
#[derive(clap::Args)]
pub struct Members {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    on: OnDaemon,
}

/// Show whether a daemon serves, its view, and the reason if it does not serve (exit code 1)
#[derive(clap::Args)]
pub struct Status {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    on: OnDaemon,
}

/// Release the hold of an owner (--as), or revoke a lock from its holders (--force)
///
/// With --as, the hold that `lockkeeper hold` has acquired for this owner ends, on any engine. A lock that is kept by
/// `lockkeeper run --at-least` after its command has ended is such a hold, too; its owner is the holder's id, which
/// `lockkeeper locks --json` shows.
///
/// With --force, on a daemon, the holders are notified, and the next holder gets a higher fence, so that a resource
/// that checks fences rejects later writes of the old ones. The lock is free once the holder confirms that it has
/// stopped, or when its lease has expired.
#[derive(clap::Args)]
pub struct Release {
    /// The lock's name
    name: String,
    /// Release the hold of this owner, which has no process
    #[arg(long = "as", value_name = "OWNER", conflicts_with = "force")]
    owner: Option<String>,
    /// Revoke the lock, although a client may be working under it
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    on: OnDaemon,
}

/// Make a daemon leave its cluster and exit; or remove a dead member
#[derive(clap::Args)]
pub struct Leave {
    /// Remove this member, which is dead and will not come back, instead of the daemon itself
    #[arg(long, value_name = "NUMBER")]
    dead: Option<u32>,
    #[command(flatten)]
    on: OnDaemon,
}

/// The reason why a command of an operator was rejected.
#[derive(Debug, thiserror::Error)]
enum OperatorError {
    /// A lock is to be revoked without a confirmation.
    #[error(
        "a client may be working under the lock: see `lockkeeper locks`, and confirm with --force; \
         to release a hold without a process, name its owner with --as"
    )]
    NotConfirmed,
    /// The lock that is to be revoked is free.
    #[error("`{name}` has no holder")]
    NoHolder {
        /// The lock's name.
        name: String,
    },
}

/// Sends a request to the daemon.
pub fn query<T>(
    on: OnDaemon,
    request: impl AsyncFnOnce(Operator) -> Result<T, Error>,
) -> Result<T, CliError> {
    let reply = block_on(async {
        let operator = on.open().await?;
        request(operator).await
    });
    Ok(reply.map_err(CliError::CannotStart)??)
}

impl Members {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let line = match query(self.on, async |operator| operator.cluster().await) {
            Ok(line) => line,
            Err(error) => return error.report(),
        };
        if self.json {
            crate::print_line!("{}", serde_json::to_string(&line.members).unwrap_or_default());
        } else {
            crate::print_line!("{}", table(&line));
        }
        ExitCode::SUCCESS
    }
}

fn table(line: &ClusterStatus) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["MEMBER", "ADDRESS", "VOTES", "IN VIEW", "REACHED", ""]);
    for member in &line.members {
        let yes = |is: bool| if is { "yes" } else { "no" };
        let mut notes = Vec::new();
        if line.leader == Some(member.id) {
            notes.push("leader");
        }
        if line.member == member.id {
            notes.push("this daemon");
        }
        table.add_row([
            &member.id.to_string(),
            &Printable(&member.address).to_string(),
            yes(member.votes),
            yes(member.in_view),
            yes(member.connected),
            &notes.join(", "),
        ]);
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim().to_owned()).collect();
    lines.join("\n")
}

impl Status {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let line = match query(self.on, async |operator| operator.cluster().await) {
            Ok(line) => line,
            Err(error) => return error.report(),
        };
        if self.json {
            crate::print_line!("{}", serde_json::to_string(&line).unwrap_or_default());
        } else {
            let in_view = line.members.iter().filter(|member| member.in_view).count();
            let serves = if line.serves { "serves" } else { "does not serve" };
            crate::print_line!("member {} of `{}` {serves}", line.member, Printable(&line.cluster));
            crate::print_line!(
                "  view       epoch {}, {in_view} of {} members",
                line.epoch,
                line.members.len()
            );
            crate::print_line!("  lease      {} ms left", line.lease_ms);
            match line.leader {
                Some(leader) => crate::print_line!("  leader     member {leader}"),
                None => {
                    crate::print_line!(
                        "  leader     none known: a majority of the voters must reach each other"
                    )
                }
            }
            crate::print_line!("  algorithm  {}", Printable(&line.algorithm));
            if let Some(trouble) = &line.trouble {
                crate::print_line!("  reason     {}", Printable(trouble));
            }
        }
        if line.serves { ExitCode::SUCCESS } else { ExitCode::from(exit::CONFLICT) }
    }
}

impl Release {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        exit::code(self.revoke())
    }

    fn revoke(self) -> Result<ExitCode, CliError> {
        if let Some(owner) = self.owner {
            return super::hold::release(self.name, owner, self.on.any_engine());
        }
        if !self.force {
            return Err(CliError::usage(OperatorError::NotConfirmed));
        }
        let name = self.name.clone();
        match query(self.on, async |operator| operator.release_by_force(name).await)? {
            0 => return Err(CliError::Conflict(OperatorError::NoHolder { name: self.name }.into())),
            1 => crate::print_line!("`{}` was taken away from its holder", self.name),
            holders => crate::print_line!("`{}` was taken away from {holders} holders", self.name),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Leave {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let dead = self.dead;
        let result = query(self.on, async |operator| match dead {
            Some(member) => operator.remove(member).await,
            None => operator.leave().await,
        });
        match result {
            Ok(()) => {
                match dead {
                    Some(member) => crate::print_line!("member {member} is given up"),
                    None => crate::print_line!("the daemon leaves"),
                }
                ExitCode::SUCCESS
            }
            Err(error) => error.report(),
        }
    }
}
