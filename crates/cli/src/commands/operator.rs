//! Commands for operators of a cluster: `members`, `status`, `release`, `leave`.

use super::engine::{OnDaemon, block_on};
use crate::exit;
use comfy_table::{Table, presets};
use lockkeeper::Error;
use lockkeeper::cluster::{ClusterLine, Operator};
use lockkeeper_cluster::ClusterSettings;
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

/// Revoke a lock from its holders
///
/// The holders are notified, and the next holder gets a higher fence, so that a resource that checks fences rejects
/// later writes of the old ones. The lock is free once the holder confirms that it has stopped, or when its lease has
/// expired.
#[derive(clap::Args)]
pub struct Release {
    /// The lock's name
    name: String,
    /// Confirm, although a client may be working under the lock
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

/// Sends a request to the daemon. An error is printed and becomes the exit code.
fn query<T>(on: OnDaemon, request: impl AsyncFnOnce(Operator) -> Result<T, Error>) -> Result<T, ExitCode> {
    try_query(on, request)?.map_err(|error| exit::lock_error(&error))
}

/// The same, but leaves errors of the daemon to the caller.
fn try_query<T>(
    on: OnDaemon,
    request: impl AsyncFnOnce(Operator) -> Result<T, Error>,
) -> Result<Result<T, Error>, ExitCode> {
    let reply = block_on(async {
        let operator = on.open().await?;
        request(operator).await
    });
    reply.map_err(|error| exit::fail(exit::CANNOT_RUN, &format!("cannot start: {error}")))
}

impl Members {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let line = match query(self.on, async |operator| operator.cluster().await) {
            Ok(line) => line,
            Err(code) => return code,
        };
        if self.json {
            crate::print_line!("{}", serde_json::to_string(&line.members).unwrap_or_default());
        } else {
            crate::print_line!("{}", table(&line));
        }
        ExitCode::SUCCESS
    }
}

fn table(line: &ClusterLine) -> String {
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
            Err(code) => return code,
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
        if !self.force {
            let error =
                "a client may be working under the lock: see `lockkeeper locks`, and confirm with --force";
            return exit::fail(exit::USAGE, &error);
        }
        let name = self.name.clone();
        match query(self.on, async |operator| operator.release_by_force(name).await) {
            Ok(0) => exit::fail(exit::CONFLICT, &format!("`{}` has no holder", self.name)),
            Ok(1) => {
                crate::print_line!("`{}` was taken away from its holder", self.name);
                ExitCode::SUCCESS
            }
            Ok(holders) => {
                crate::print_line!("`{}` was taken away from {holders} holders", self.name);
                ExitCode::SUCCESS
            }
            Err(code) => code,
        }
    }
}

/// `lockkeeper cluster set`: changes the cluster's settings, and prints them.
pub fn set(changes: &[String], on: OnDaemon) -> ExitCode {
    let pair = |change: &String| {
        let (name, value) = change
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| format!("`{change}` is not NAME=VALUE, such as lease=2s or algorithm=raymond"))?;
        Ok::<_, String>((name.to_owned(), value.to_owned()))
    };
    let changes = match changes.iter().map(pair).collect::<Result<Vec<_>, _>>() {
        Ok(changes) => changes,
        Err(error) => return exit::fail(exit::USAGE, &error),
    };
    // A value that no cluster can parse is a mistake in the command; the leader rejects a value that its cluster
    // cannot use.
    if let Err(error) = lockkeeper_cluster::settings::change(&ClusterSettings::default(), &changes) {
        return exit::fail(exit::USAGE, &error.to_string());
    }
    let requested: Vec<String> = changes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let result = try_query(on, async |operator| {
        if !changes.is_empty() {
            operator.set(changes).await?;
        }
        operator.cluster().await
    });
    match result {
        Ok(Ok(line)) => {
            line.settings.iter().for_each(|(name, value)| crate::print_line!("{name}={value}"));
            ExitCode::SUCCESS
        }
        Ok(Err(Error::BadOption(why))) if !requested.is_empty() => {
            let error = format!(
                "the cluster rejects {}: {why}; nothing was changed, and `lockkeeper cluster set` shows the settings",
                requested.join(" ")
            );
            exit::fail(exit::USAGE, &error)
        }
        Ok(Err(error)) => exit::lock_error(&error),
        Err(code) => code,
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
            Err(code) => code,
        }
    }
}
