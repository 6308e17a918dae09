//! The list of commands in `lockkeeper --help`, in groups.

use clap::Command;
use std::fmt::Write as _;

/// The groups of commands, in the order of the help. A build lists those of its commands.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Run under a lock", &["run", "elect", "hold", "locks"]),
    ("Choose a server", &["engines", "doctor"]),
    ("Serve locks", &["up", "join", "cluster", "token", "demo"]),
    ("Operate a cluster", &["status", "members", "release", "leave"]),
    (
        "Learn: watch and explain algorithms",
        &[
            "lab",
            "step",
            "quiz",
            "explain",
            "scenarios",
            "algorithms",
            "quorums",
            "threads",
            "flp",
            "causality",
            "proof",
        ],
    ),
    (
        "Study: simulate, check and compare algorithms",
        &["sim", "check", "replay", "compare", "properties", "choose", "stabilise", "bench"],
    ),
    ("Set up", &["completions", "man", "help"]),
];

/// The same command line, whose help lists the commands in groups.
pub fn grouped(cli: Command) -> Command {
    let list = list(&cli);
    cli.help_template("{about}\n\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}")
        .after_help(list)
}

fn list(cli: &Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        let commands: Vec<(&str, String)> =
            names.iter().filter_map(|name| Some((*name, about(cli, name)?))).collect();
        if commands.is_empty() {
            continue;
        }
        let _ = write!(text, "\n{title}:");
        for (name, about) in commands {
            let _ = write!(text, "\n  {name:<12}{about}");
        }
        text.push('\n');
    }
    text.trim_start().to_string() + "\n`lockkeeper COMMAND --help` describes a command."
}

fn about(cli: &Command, name: &str) -> Option<String> {
    if name == "help" {
        return Some("Print this message or the help of the given command".into());
    }
    Some(cli.find_subcommand(name)?.get_about()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, list};
    use crate::Cli;
    use clap::CommandFactory;

    #[test]
    fn every_command_is_in_one_group_and_listed() {
        let cli = Cli::command();
        let text = list(&cli);
        for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&name)).count();
            assert_eq!(groups, 1, "{name}");
            assert!(text.contains(&format!("\n  {name} ")), "{name} in\n{text}");
        }
    }
}
