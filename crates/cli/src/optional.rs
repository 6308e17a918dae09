//! The commands of optional features. A build without the feature knows their names, so that it can print how to get
//! them.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The commands that a build has only with a cargo feature of this package.
struct Optional {
    /// The cargo feature that contains the commands.
    feature: &'static str,
    built_in: bool,
    commands: &'static [&'static str],
}

const OPTIONAL: [Optional; 5] = [
    Optional {
        feature: "daemon",
        built_in: cfg!(feature = "daemon"),
        commands: &["up", "join", "cluster", "token", "demo"],
    },
    Optional {
        feature: "daemon",
        built_in: cfg!(any(feature = "daemon", feature = "lab")),
        commands: &["algorithms"],
    },
    Optional { feature: "tool", built_in: cfg!(feature = "tool"), commands: &["completions", "man"] },
    Optional { feature: "bench", built_in: cfg!(feature = "bench"), commands: &["bench"] },
    Optional {
        feature: "lab",
        built_in: cfg!(feature = "lab"),
        commands: &[
            "sim",
            "scenarios",
            "check",
            "replay",
            "compare",
            "properties",
            "explain",
            "choose",
            "quiz",
            "quorums",
            "stabilise",
            "threads",
            "lab",
            "step",
            "flp",
            "causality",
            "proof",
        ],
    },
];

/// A command that this build does not have.
#[derive(Debug, thiserror::Error)]
#[error(
    "`lockkeeper {command}` is not in this build: it needs the cargo feature `{feature}`, which is one of the default \
     features. In a copy of the source, run `cargo install --path crates/cli`"
)]
pub struct NotBuiltIn {
    command: String,
    feature: &'static str,
}

impl NotBuiltIn {
    /// The error for a command line that clap rejects because this build does not have its command.
    pub fn of(error: &clap::Error) -> Option<Self> {
        let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(command))) =
            (error.kind(), error.get(ContextKind::InvalidSubcommand))
        else {
            return None;
        };
        let absent =
            OPTIONAL.iter().find(|group| !group.built_in && group.commands.contains(&command.as_str()))?;
        Some(Self { command: command.clone(), feature: absent.feature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::{CommandFactory, Parser};

    #[test]
    fn every_command_of_an_optional_feature_is_built_in_or_named_with_its_feature() {
        for group in &OPTIONAL {
            for command in group.commands {
                let rejected = Cli::try_parse_from(["lockkeeper", command, "--no-such-flag"]).err();
                let absent = NotBuiltIn::of(&rejected.expect("rejected")).map(|absent| absent.feature);
                assert_eq!(absent, (!group.built_in).then_some(group.feature), "{command}");
                let listed = Cli::command().find_subcommand(command).is_some();
                assert_eq!(listed, group.built_in, "{command}");
            }
        }
    }

    /// A command that this list lacks would be an unknown command in a build without its feature.
    #[test]
    fn the_list_has_every_command_that_not_every_build_has() {
        const ALWAYS: [&str; 11] = [
            "run",
            "die-with-parent",
            "elect",
            "hold",
            "locks",
            "engines",
            "doctor",
            "members",
            "status",
            "release",
            "leave",
        ];
        let cli = Cli::command();
        let mut built_in: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
        let optional = OPTIONAL.iter().filter(|group| group.built_in).flat_map(|group| group.commands);
        let mut known: Vec<&str> = optional.copied().chain(ALWAYS).collect();
        built_in.sort_unstable();
        known.sort_unstable();
        assert_eq!(built_in, known);
    }

    #[test]
    fn an_unknown_command_belongs_to_no_feature() {
        let rejected = Cli::try_parse_from(["lockkeeper", "simulate"]).err();
        assert!(NotBuiltIn::of(&rejected.expect("rejected")).is_none());
    }
}
