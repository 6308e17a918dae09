//! `lockkeeper engines` and `lockkeeper doctor`: what this build can use for locks, and what is risky about a server.

use super::engine::{On, block_on};
use crate::exit::{self, CliError};
use comfy_table::{ContentArrangement, Table, presets};
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

/// The width of the tables. A terminal can be wider, and a log, a mail or a page of documentation often is not.
const WIDTH: u16 = 80;

/// Two tables: what each engine offers, and the URLs that select it.
fn table(engines: &[EngineInfo]) -> String {
    let mut offers = new_table();
    offers.set_header(["ENGINE"].into_iter().chain(FEATURES.iter().map(|(name, _)| *name)));
    let mut urls = new_table();
    urls.set_header(["ENGINE", "URLS"]);
    for engine in engines {
        let offered =
            FEATURES.iter().map(|(_, offers)| if offers(&engine.capabilities) { "yes" } else { "–" });
        offers.add_row([engine.name].into_iter().chain(offered));
        let schemes: Vec<String> = engine.schemes.iter().map(|scheme| format!("{scheme}:")).collect();
        let mut cell = schemes.join(" ");
        if !engine.built_in {
            cell += &format!("\nnot in this build: it needs the cargo feature `{}`", engine.feature);
        }
        urls.add_row([engine.name, &cell]);
    }
    format!("{}\n\n{LEGEND}\n\n{}", lines(offers), lines(urls))
}

/// The lines of a table without the margins that it has on both sides.
fn lines(table: Table) -> String {
    let lines: Vec<String> =
        table.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect();
    lines.join("\n")
}

/// The meaning of the columns whose names are not enough.
const LEGEND: &str = "\
order     first come, first served
permits   semaphores: at most k holders
waiters   `lockkeeper locks` lists them
at-least  `lockkeeper run --at-least`
hold      `lockkeeper hold`: without a process, for an owner";

fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table
}

/// Whether an engine offers a feature.
type Offers = fn(&Capabilities) -> bool;

/// The features that an engine can offer, by column. That holds expire is not one.
const FEATURES: [(&str, Offers); 8] = [
    ("fences", |can| can.fence),
    ("order", |can| can.fifo),
    ("shared", |can| can.shared),
    ("permits", |can| can.semaphore),
    ("waiters", |can| can.waiters),
    ("elect", |can| can.election),
    ("at-least", |can| can.at_least),
    ("hold", |can| can.detached),
];

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
