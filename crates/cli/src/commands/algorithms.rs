//! `lockkeeper algorithms`: the registry.

use crate::say;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use lockkeeper_core::{About, Sharing, registry};
use lockkeeper_shared_memory as shared_memory;
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
            let plain = "the lists are plain data";
            let mut both: Vec<serde_json::Value> =
                all.iter().map(|about| serde_json::to_value(about).expect(plain)).collect();
            both.extend(shared_memory::ALL.iter().map(|about| serde_json::to_value(about).expect(plain)));
            say!("{}", serde_json::to_string(&both).expect(plain));
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
        print_shared_memory();
        say!("N sites, T the delay of one message. Try: lockkeeper sim --algorithm {} --sites 9", "lamport");
        ExitCode::SUCCESS
    }
}

/// The algorithms for threads, which have no messages to count.
fn print_shared_memory() {
    say!("shared memory: for threads, not for sites\n");
    for about in shared_memory::ALL {
        say!("{}  ({})\n  {}", about.slug, about.title, about.idea);
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        for (name, value) in [
            ("family", about.family),
            ("paper", about.paper),
            ("needs", about.needs),
            ("fairness", about.fairness),
        ] {
            table.add_row([format!("  {name}"), value.to_string()]);
        }
        say!("{}\n", table.trim_fmt());
    }
    say!("Try: lockkeeper threads --algorithm bakery --threads 4");
}
