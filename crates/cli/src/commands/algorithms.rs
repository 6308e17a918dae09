//! `lockkeeper algorithms`: the registry.

use crate::say;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use lockkeeper_core::{About, Sharing, registry};
use serde::Serialize;
use std::process::ExitCode;

/// List the algorithms, with their papers, needs and costs.
#[derive(Args)]
pub struct Algorithms {
    /// Prints one JSON array instead of a table.
    #[arg(long)]
    json: bool,
}

/// An algorithm, and who may be inside together with its default settings.
#[derive(Serialize)]
struct Told {
    #[serde(flatten)]
    about: &'static About,
    sharing: Sharing,
}

impl Algorithms {
    pub fn run(self) -> ExitCode {
        let told = |entry: &registry::Entry| Told {
            about: entry.about,
            sharing: registry::sharing(entry.about.slug).unwrap_or_default(),
        };
        let all: Vec<Told> = registry::ALL.iter().map(told).collect();
        if self.json {
            say!("{}", serde_json::to_string(&all).expect("the registry is plain data"));
            return ExitCode::SUCCESS;
        }
        for Told { about, sharing } in all {
            say!("{}  ({})\n  {}", about.slug, about.title, about.idea);
            let mut table = Table::new();
            table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
            let mut row = |name: &str, value: &str| {
                table.add_row([format!("  {name}"), value.to_string()]);
            };
            row("lock", &sharing.to_string());
            row("family", &about.family.to_string());
            row("paper", about.paper);
            row("channels", &about.channels.to_string());
            row("messages, low load", about.cost.low);
            row("messages, high load", about.cost.high);
            row("synchronization delay", about.cost.sync_delay);
            row("client delay", about.cost.client_delay);
            row("a crash", about.crash);
            for setting in about.settings {
                let text = format!("{} ({}; default {})", setting.help, setting.values, setting.default);
                row(&format!("--set {}=", setting.name), &text);
            }
            say!("{}\n", table.trim_fmt());
        }
        say!("N sites, T the delay of one message. Try: lockkeeper sim --algorithm {} --sites 9", "lamport");
        ExitCode::SUCCESS
    }
}
