//! `lockkeeper properties`: the properties of each algorithm, with a witness for each violation.

use super::compare::algorithms;
use super::progress;
use crate::exit::CliError;
use crate::print_line;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use lockkeeper_lab::comparison::properties::{self, Answer, ComparedProperty, Finding};
use std::process::ExitCode;

/// Show which properties each algorithm has, as found in runs, with a command that reproduces each violation
///
/// Every algorithm runs under random delays, on the channels that it requires, with 3 and 5 sites that request all at
/// once, all the time, and now and then. Runs can only refute: "held" means that no violation was found in them.
#[derive(Args)]
#[command(after_help = "\
The columns:
  mutual exclusion     at most one site is inside; k of a semaphore; one writer, or readers
  no deadlock          some waiting site always enters
  no starvation        every waiting site enters; this implies no deadlock, and does not follow from it
  by timestamp         entries in the order of the requests' timestamps: the paper's, else a Lamport clock's
  by happened-before   no entry before a request that happened before its own
  by arrival           entries in the order in which requests reach the coordinator
  safe without FIFO    mutual exclusion when messages overtake each other, for algorithms that require FIFO

Examples:
  lockkeeper properties
  lockkeeper properties --algorithms maekawa-basic,ricart-agrawala

Exit codes: 0 done, with or without violations; 64 wrong usage.")]
pub struct Properties {
    /// The algorithms, separated by commas, or all.
    #[arg(long, short, value_delimiter = ',', default_value = "all")]
    algorithms: Vec<String>,
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

impl Properties {
    pub fn run(self) -> ExitCode {
        let slugs = match algorithms(&self.algorithms) {
            Ok(slugs) => slugs,
            Err(error) => return CliError::usage(error).report(),
        };
        match progress::bar(properties::entries(&slugs), |progress| properties::properties(&slugs, progress))
        {
            Ok(findings) if self.json => {
                print_line!("{}", serde_json::to_string(&findings).expect("findings are plain data"));
                ExitCode::SUCCESS
            }
            Ok(findings) => {
                print(&findings);
                ExitCode::SUCCESS
            }
            Err(error) => CliError::from(error).report(),
        }
    }
}

fn print(findings: &[Finding]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(std::iter::once("").chain(ComparedProperty::ALL.map(ComparedProperty::title)));
    for finding in findings {
        let cells = finding.answers.iter().map(|(_, answer)| match answer {
            Answer::Held { .. } => "held".to_string(),
            Answer::Broken { runs, of, .. } => format!("✗ in {runs} of {of}"),
            Answer::NotAsked => "–".into(),
        });
        table.add_row(std::iter::once(finding.algorithm.clone()).chain(cells));
    }
    print_line!("{}\n", table.trim_fmt());
    let runs = findings.iter().flat_map(|finding| &finding.answers).find_map(|(_, answer)| match answer {
        Answer::Held { runs } => Some(*runs),
        Answer::Broken { of, .. } => Some(*of),
        Answer::NotAsked => None,
    });
    print_line!("held: nothing found in {} runs under random delays, which is no proof\n", runs.unwrap_or(0));
    for finding in findings {
        for (compared, answer) in &finding.answers {
            if let Answer::Broken { witness, what, .. } = answer {
                print_line!("{}, {}: {what}\n  {witness}", finding.algorithm, compared.title());
            }
        }
    }
}
