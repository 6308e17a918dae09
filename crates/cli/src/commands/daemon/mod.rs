//! The commands that run daemons and prepare their clusters, in builds with the feature `daemon`.

mod cluster;
mod cluster_address;
mod cluster_settings;
mod demo;
mod log;
mod token;
mod up;

use std::process::ExitCode;

/// A command that runs daemons or prepares them.
#[derive(clap::Subcommand)]
pub enum DaemonCommand {
    Up(Box<up::Up>),
    Join(Box<up::Join>),
    Cluster(cluster::Cluster),
    Token(token::Token),
    Demo(demo::Demo),
}

impl DaemonCommand {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        match self {
            Self::Up(command) => command.run(),
            Self::Join(command) => command.run(),
            Self::Cluster(command) => command.run(),
            Self::Token(command) => command.run(),
            Self::Demo(command) => command.run(),
        }
    }
}
