//! `lockkeeper locks`: shows holders, waiters, and the reasons for waiting.

use super::describe;
use super::engine::{On, block_on};
use crate::exit::CliError;
use comfy_table::{Table, presets};
use lockkeeper::{Error, LockInfo, Lockkeeper, Participant};
use lockkeeper_text::Printable;
use std::io::Write;
use std::process::ExitCode;

/// Show the holders of each lock with their fences and times, and the waiters in order
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON, one document per update
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    on: On,
    #[command(subcommand)]
    command: Option<LocksCommand>,
}

#[derive(clap::Subcommand)]
enum LocksCommand {
    /// Print the locks again whenever they change
    Watch,
    /// Explain why one lock is not free
    Why {
        /// The lock's name
        name: String,
    },
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    match block_on(run_async(args)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => CliError::Lock(error).report(),
        Err(error) => CliError::CannotStart(error).report(),
    }
}

async fn run_async(args: Args) -> Result<(), Error> {
    let locks = args.on.open().await?;
    match args.command {
        None => {
            print(&show(&locks.list().await?, args.json));
            Ok(())
        }
        Some(LocksCommand::Watch) => watch(&locks, args.json).await,
        Some(LocksCommand::Why { name }) => {
            let info = locks.inspect(name).await?;
            print(&if args.json { show(&[info], true) } else { why(&info) });
            Ok(())
        }
    }
}

async fn watch(locks: &Lockkeeper, json: bool) -> Result<(), Error> {
    let mut changes = locks.watch().await?;
    let mut last = None;
    loop {
        let now = locks.list().await?;
        if last.as_ref() != Some(&now) && !print(&show(&now, json)) {
            return Ok(());
        }
        last = Some(now);
        changes.changed().await?;
    }
}

/// Prints a line. Returns false if standard output is closed.
fn print(text: &str) -> bool {
    writeln!(std::io::stdout(), "{text}").is_ok()
}

fn show(locks: &[LockInfo], json: bool) -> String {
    if json {
        return serde_json::to_string(locks).unwrap_or_default();
    }
    if locks.is_empty() {
        return "no locks are held".into();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["LOCK", "", "FENCE", "FOR", "KIND", "PID", "HOST", "COMMAND"]);
    for lock in locks {
        for holder in &lock.holders {
            table.add_row(row(&lock.name, &held(holder), holder));
        }
        for (i, waiter) in lock.waiters.iter().enumerate() {
            table.add_row(row(&lock.name, &format!("waits {}", i + 1), waiter));
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim().to_owned()).collect();
    lines.join("\n")
}

/// The state of a holder: `held`, or `held, 9 min 58 s left` if the hold has a deadline of its own.
fn held(holder: &Participant) -> String {
    match &holder.detached {
        Some(detached) => format!("held, {} left", describe::age(detached.left())),
        None => "held".into(),
    }
}

fn row(name: &str, role: &str, participant: &Participant) -> [String; 8] {
    let tag = &participant.tag;
    let purpose = ["purpose", "command", "value"].iter().find_map(|key| tag.metadata.get(*key));
    let owner = participant.detached.as_ref().map(|detached| &detached.owner);
    // Clients of a daemon's HTTP or etcd API have no known process, and holds for an owner have none.
    let (pid, host) = match (tag.pid, owner.filter(|owner| **owner != tag.holder)) {
        (_, Some(owner)) => (String::new(), owner.clone()),
        (0, None) => (String::new(), tag.holder.clone()),
        (pid, None) => (pid.to_string(), tag.host.clone()),
    };
    // Names and tags may come from engines that other users can write to: a terminal must not interpret them.
    let shown = |text: &str| Printable(text).to_string();
    [
        shown(name),
        role.into(),
        participant.fence.map(|fence| fence.to_string()).unwrap_or_default(),
        describe::age(participant.age()),
        participant.mode.to_string(),
        pid,
        shown(&host),
        purpose.map(|purpose| shown(purpose)).unwrap_or_default(),
    ]
}

fn why(info: &LockInfo) -> String {
    let name = Printable(&info.name);
    if info.holders.is_empty() {
        return format!("`{name}` is free: it has no holder.");
    }
    let mut lines = vec![format!("`{name}` is held ({}):", info.holders[0].mode)];
    for holder in &info.holders {
        let fence = holder.fence.map(|fence| format!(", fence {fence}")).unwrap_or_default();
        lines.push(format!("  by {}{fence}", describe::participant(holder)));
    }
    match info.waiters.len() {
        0 => lines.push("It has no waiters: a new request would be next.".into()),
        n => lines.push(format!("{n} wait{} for it, in this order:", if n == 1 { "s" } else { "" })),
    }
    for (i, waiter) in info.waiters.iter().enumerate() {
        lines.push(format!("  {}. {} ({})", i + 1, describe::participant(waiter), waiter.mode));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A holder with control characters in its record, as in a store that other users can write to.
    fn hostile() -> LockInfo {
        let text = "a\u{1b}[2Jb\nc\u{202e}d";
        let participant = |pid| {
            let tag = serde_json::json!({
                "holder": text, "host": text, "pid": pid, "since_ms": 5, "metadata": { "command": text },
            });
            serde_json::json!({ "tag": tag, "kind": "exclusive", "since_ms": 5, "fence": null })
        };
        let holders = [participant(0), participant(9)];
        let info = serde_json::json!({ "name": text, "holders": holders, "waiters": [participant(9)] });
        serde_json::from_value(info).unwrap()
    }

    #[test]
    fn text_of_other_clients_is_escaped_for_the_terminal() {
        let info = hostile();
        let rows = 1 + info.holders.len() + info.waiters.len();
        for (shown, lines) in [(show(std::slice::from_ref(&info), false), rows), (why(&info), rows + 1)] {
            assert!(shown.contains(r"a\u{1b}[2Jb\nc\u{202e}d"), "{shown}");
            assert!(shown.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{shown:?}");
            assert_eq!(shown.lines().count(), lines, "{shown}");
        }
    }
}
