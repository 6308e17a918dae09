//! `lockkeeper engines` and `lockkeeper doctor`: what this build can use for locks, and what is risky about a server.

use super::engine::{On, block_on};
use crate::exit::{self, CliError};
use comfy_table::{Table, presets};
use lockkeeper::{Capabilities, Diagnosis, EngineInfo, Error, Severity};
use lockkeeper_text::Printable;
use std::process::ExitCode;

/// List the engines, with what each of them offers; engines that are not in this build with the feature they need
#[derive(clap::Args)]
pub struct Engines {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Report what is risky about using a server for locks, most severe first, and what to do about it
///
/// Connects, acquires and releases a lock of its own, and reads the server's settings as far as this user may: what a
/// crash loses, whether keys are evicted, how many servers there are and how they are, whose clock is wrong. Locks of
/// other clients are not changed.
#[derive(clap::Args)]
#[command(after_help = "\
Severities: critical (two clients can hold a lock at once in ordinary operation, or no client can use the locks); warning
(the failure of one machine ends the service or all holds, or exclusion then depends on fences); note (no risk).

Exit codes: 0 no risk was found; 4 risks were found; 64 wrong usage; 69 the server cannot be reached.")]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    on: On,
}

impl Engines {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let engines = lockkeeper::engines();
        match self.json {
            true => crate::print_line!("{}", serde_json::to_string(&engines).unwrap_or_default()),
            false => crate::print_line!("{}", table(&engines)),
        }
        ExitCode::SUCCESS
    }
}

fn table(engines: &[EngineInfo]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["ENGINE", "URLS", "OFFERS", "LACKS"]);
    for engine in engines {
        let urls: Vec<String> = engine.schemes.iter().map(|scheme| format!("{scheme}:")).collect();
        let (offers, lacks): (Vec<_>, Vec<_>) =
            features(engine.capabilities).into_iter().partition(|(_, offered)| *offered);
        let names = |features: Vec<(&'static str, bool)>| -> String {
            features.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
        };
        let lacks = match engine.built_in {
            true => names(lacks),
            false => format!("not in this build: it needs the cargo feature `{}`", engine.feature),
        };
        table.add_row([engine.name, &urls.join(" "), &names(offers), &lacks]);
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim().to_owned()).collect();
    lines.join("\n")
}

/// What an engine can offer, and whether it does. That holds expire is no offer.
fn features(can: Capabilities) -> [(&'static str, bool); 8] {
    [
        ("fences", can.fence),
        ("order of arrival", can.fifo),
        ("shared", can.shared),
        ("permits", can.semaphore),
        ("waiters", can.waiters),
        ("elections", can.election),
        ("--at-least", can.at_least),
        ("hold", can.detached),
    ]
}

impl Doctor {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        match block_on(self.diagnose()) {
            Ok(Ok(code)) => code,
            Ok(Err(error)) => CliError::Lock(error).report(),
            Err(error) => CliError::CannotStart(error).report(),
        }
    }

    async fn diagnose(self) -> Result<ExitCode, Error> {
        let url = self.on.resolve()?;
        let diagnosis = lockkeeper::diagnose(url.clone()).await?;
        match self.json {
            true => crate::print_line!("{}", serde_json::to_string(&diagnosis).unwrap_or_default()),
            false => crate::print_line!("{}", report(&url.to_string(), &diagnosis)),
        }
        Ok(match diagnosis.has_risks() {
            true => ExitCode::from(exit::RISKS),
            false => ExitCode::SUCCESS,
        })
    }
}

fn report(url: &str, diagnosis: &Diagnosis) -> String {
    let count = |severity| diagnosis.findings.iter().filter(|finding| finding.severity == severity).count();
    let (critical, warnings) = (count(Severity::Critical), count(Severity::Warning));
    let summary = match critical + warnings {
        0 => "no risk was found".into(),
        _ => format!("{critical} critical, {warnings} warning{}", if warnings == 1 { "" } else { "s" }),
    };
    let mut lines = vec![format!("{url} ({}): {summary}", diagnosis.engine)];
    for finding in &diagnosis.findings {
        // Findings quote settings and messages of the server.
        let found = Printable(&finding.found);
        lines.push(format!("\n{:<9}{}: {found}", finding.severity, finding.check));
        if !finding.advice.is_empty() {
            lines.push(format!("         → {}", Printable(&finding.advice)));
        }
    }
    lines.join("\n")
}
