//! `lockkeeper choose`: recommends an algorithm for a system, with measured reasons.

use super::explain::hanging;
use super::progress;
use crate::exit::CliError;
use crate::print_line;
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use lockkeeper_lab::comparison::choose::{self, Advice, Fairness, Requirements, Topology, choose};
use lockkeeper_lab::comparison::table::number;
use lockkeeper_lab::simulator::spec::LoadSpec;
use std::process::ExitCode;

/// Choose an algorithm for a system: run the candidates on a model of it, and rank them
///
/// Only algorithms for mutual exclusion are candidates; locks with several holders are left out.
///
/// The candidates that are fair enough are ranked by whether they survive all crashes, most, or few, then by waiting
/// time times messages, each relative to the best.
#[derive(Args)]
#[command(after_help = "\
The models:
  --topology lan      all delays within a tenth of T
  --topology wan      three regions: T/10 within, T to the next, 2T across
  --topology tree     a binary tree, T for each hop
  --fairness strict   no entry out of timestamp order
  --fairness fifo     no other site enters more than twice during one wait
  --failures F        for each site, it and the next F−1 sites crash; a perfect detector notifies the others

Examples:
  lockkeeper choose --sites 9 --failures 1 --topology lan --load low --fairness strict
  lockkeeper choose --sites 31 --topology tree --load high --fairness none

Exit codes: 0 done; 64 wrong usage.")]
pub struct Choose {
    /// The number of sites.
    #[arg(long, short = 'n', value_name = "N")]
    sites: usize,
    /// The number of sites that may crash.
    #[arg(long, value_name = "F", default_value_t = 0)]
    failures: usize,
    /// The topology of the network.
    #[arg(long, default_value = "lan")]
    topology: Joined,
    /// The load.
    #[arg(long, default_value = "low")]
    load: LoadChoice,
    /// The required fairness.
    #[arg(long, default_value = "none")]
    fairness: Fair,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Joined {
    Lan,
    Wan,
    Tree,
}

#[derive(Clone, Copy, ValueEnum)]
enum LoadChoice {
    Low,
    High,
}

#[derive(Clone, Copy, ValueEnum)]
enum Fair {
    Strict,
    Fifo,
    None,
}

impl Choose {
    pub fn run(self) -> ExitCode {
        let requirements = Requirements {
            sites: self.sites,
            failures: self.failures,
            topology: match self.topology {
                Joined::Lan => Topology::Lan,
                Joined::Wan => Topology::Wan,
                Joined::Tree => Topology::Tree,
            },
            load: match self.load {
                LoadChoice::Low => LoadSpec::Low,
                LoadChoice::High => LoadSpec::High,
            },
            fairness: match self.fairness {
                Fair::Strict => Fairness::Strict,
                Fair::Fifo => Fairness::Fifo,
                Fair::None => Fairness::None,
            },
        };
        match progress::bar(choose::entries(&requirements), |progress| choose(&requirements, progress)) {
            Ok(advice) if self.json => {
                print_line!("{}", serde_json::to_string(&advice).expect("advice is plain data"));
                ExitCode::SUCCESS
            }
            Ok(advice) => {
                print(&requirements, &advice);
                ExitCode::SUCCESS
            }
            Err(error) => CliError::from(error).report(),
        }
    }
}

fn print(requirements: &Requirements, advice: &Advice) {
    print_table(advice);
    for (slug, why) in &advice.left_out {
        hanging("", &format!("left out: {slug}: {why}"));
    }
    if !advice.left_out.is_empty() {
        print_line!("");
    }
    match advice.ranked.first() {
        None => hanging("", "No algorithm fits. Require less fairness, or see 'lockkeeper properties'."),
        Some(best) => {
            let at = if requirements.load == LoadSpec::High { "high" } else { "low" };
            let text = format!(
                "Take {}: {} T from a request to its entry and {} messages per entry at {at} load, measured on the model. \
                 'lockkeeper explain {}' explains it.",
                best.algorithm,
                number(Some(best.waiting), 2),
                number(Some(best.messages_per_entry), 2),
                best.algorithm
            );
            hanging("", &text);
        }
    }
    print_line!("");
    hanging("", &about_crashes(requirements, advice));
}

fn print_table(advice: &Advice) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let header = [
        "",
        "",
        "waiting",
        "messages",
        "idle per T",
        "per T",
        "busiest",
        "bypass",
        "out of order",
        "cost",
        "survives",
    ];
    table.set_header(header);
    for index in 2..header.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for (place, candidate) in advice.ranked.iter().enumerate() {
        let settings: String =
            candidate.settings.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        table.add_row([
            format!("{}.", place + 1),
            format!("{}{settings}", candidate.algorithm),
            number(Some(candidate.waiting), 2),
            number(Some(candidate.messages_per_entry), 2),
            number(Some(candidate.idle_messages), 2),
            number(candidate.throughput, 3),
            number(candidate.busiest_site, 2),
            candidate.max_bypass.to_string(),
            candidate.timestamp_inversions.to_string(),
            number(Some(candidate.cost), 2),
            candidate.survived.map_or("–".into(), |share| format!("{:.0} %", 100.0 * share)),
        ]);
    }
    print_line!("{}\n", table.trim_fmt());
}

/// The advice about failures, which is always printed.
fn about_crashes(requirements: &Requirements, advice: &Advice) -> String {
    let all = |survived: Option<f64>| survived.is_some_and(|share| share >= 1.0);
    let through_all: Vec<&str> =
        advice.ranked.iter().filter(|c| all(c.survived)).map(|c| c.algorithm.as_str()).collect();
    let advice_for_crashes = "If sites do crash, let a replicated service hold the lock and let the resource check fences: \
         'lockkeeper run' and docs/engines.md.";
    match (requirements.failures, through_all.as_slice()) {
        (0, _) => format!(
            "No crash was tried; --failures 1 does. In the plain algorithms of the field the crash of a holder, a token or a \
             coordinator stops the others forever. {advice_for_crashes}"
        ),
        (_, []) => format!(
            "None of these survives every crash of this size, even with a perfect detector; the last column counts those \
             that hit no site that was needed. A holder that crashes inside blocks all of them. {advice_for_crashes}"
        ),
        (_, some) => format!(
            "{} came through every crash tried here, with a perfect detector, which no real network has: under a wrong one \
             they can let two in. {advice_for_crashes}",
            some.join(", ")
        ),
    }
}
