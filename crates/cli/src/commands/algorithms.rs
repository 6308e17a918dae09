//! `lockkeeper algorithms`: lists the registry of algorithms.

use crate::print_line;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use lockkeeper_core::mutex::About;
use lockkeeper_core::settings::Setting;
use lockkeeper_core::{any, registry};
use std::process::ExitCode;

/// List the algorithms with their papers, assumptions and costs.
#[derive(Args)]
pub struct Algorithms {
    /// Print one JSON array instead of a table.
    #[arg(long)]
    json: bool,
}

impl Algorithms {
    pub fn run(self) -> ExitCode {
        if self.json {
            print_line!("{}", serde_json::Value::from(as_json()));
            return ExitCode::SUCCESS;
        }
        for about in listed() {
            let mut table = card(about.slug, about.title, about.idea);
            let mut row = |name: &str, value: &str| add_row(&mut table, name, value);
            row("lock", &registry::sharing(about.slug).unwrap_or_default().to_string());
            row("family", &about.family.to_string());
            row("paper", about.paper);
            row("channels", &about.channels.to_string());
            row("messages, low load", about.cost.low);
            row("messages, high load", about.cost.high);
            row("synchronization delay", about.cost.sync_delay);
            row("client delay", about.cost.client_delay);
            row("a crash", about.crash);
            add_settings(&mut table, about.settings);
            print_line!("{}\n", table.trim_fmt());
        }
        #[cfg(feature = "lab")]
        of_the_lab::print();
        #[cfg(not(feature = "lab"))]
        print_line!(
            "N members, T the delay of one message. Try: lockkeeper up --dev 3 --algorithm ricart-agrawala\n\
             Builds with the lab list more: algorithms without a cluster, elections, locks for threads."
        );
        ExitCode::SUCCESS
    }
}

/// The algorithms of the registry. A build without the lab has only those that a cluster can run.
fn listed() -> impl Iterator<Item = &'static About> {
    let usable =
        |about: &&About| cfg!(feature = "lab") || any::ALL.iter().any(|other| other.slug == about.slug);
    registry::ALL.iter().map(|entry| entry.about).filter(usable)
}

/// An algorithm that is not in the registry.
#[cfg(feature = "daemon")]
#[derive(Debug, thiserror::Error)]
#[error("there is no algorithm `{algorithm}`; `lockkeeper algorithms` lists them")]
pub struct UnknownAlgorithm {
    algorithm: String,
}

/// Rejects a mutual exclusion algorithm that is not in the registry.
#[cfg(feature = "daemon")]
pub fn refuse_unknown(algorithm: &str) -> Result<(), UnknownAlgorithm> {
    match registry::find(algorithm) {
        Some(_) => Ok(()),
        None => Err(UnknownAlgorithm { algorithm: algorithm.into() }),
    }
}

fn card(slug: &str, title: &str, idea: &str) -> Table {
    print_line!("{slug}  ({title})\n  {idea}");
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table
}

fn add_row(table: &mut Table, name: &str, value: &str) {
    table.add_row([format!("  {name}"), value.to_string()]);
}

fn add_settings(table: &mut Table, settings: &[Setting]) {
    for setting in settings {
        let text = format!("{} ({}; default {})", setting.help, setting.values, setting.default);
        add_row(table, &format!("--set {}=", setting.name), &text);
    }
}

fn as_json() -> Vec<serde_json::Value> {
    let algorithms = listed().map(|about| {
        let mut object = serde_json::to_value(about).expect(PLAIN);
        let sharing = registry::sharing(about.slug).unwrap_or_default();
        object["sharing"] = serde_json::to_value(sharing).expect(PLAIN);
        object
    });
    #[cfg(feature = "lab")]
    let algorithms = algorithms.chain(of_the_lab::as_json());
    algorithms.collect()
}

/// Why serialization cannot fail.
const PLAIN: &str = "the registry is plain data";

/// The elections and the locks for threads, which only the lab runs.
#[cfg(feature = "lab")]
mod of_the_lab {
    use super::{PLAIN, add_row, add_settings, card};
    use crate::print_line;
    use lockkeeper_core::registry;
    use lockkeeper_shared_memory as shared_memory;

    /// The family of all elections.
    const ELECTION: &str = "election";

    pub fn print() {
        for about in registry::ELECTIONS.iter().map(|entry| entry.about) {
            let mut table = card(about.slug, about.title, about.idea);
            let mut row = |name: &str, value: &str| add_row(&mut table, name, value);
            row("family", ELECTION);
            row("paper", about.paper);
            row("assumes", about.assumes);
            row("messages, best case", about.best);
            row("messages, worst case", about.worst);
            row("a crash", about.crash);
            add_settings(&mut table, about.settings);
            print_line!("{}\n", table.trim_fmt());
        }
        for about in shared_memory::ALL {
            let mut table = card(about.slug, about.title, about.idea);
            add_row(&mut table, "family", about.family);
            add_row(&mut table, "paper", about.paper);
            add_row(&mut table, "needs", about.needs);
            add_row(&mut table, "fairness", about.fairness);
            print_line!("{}\n", table.trim_fmt());
        }
        print_line!(
            "N sites, T the delay of one message. Try: lockkeeper sim --algorithm lamport --sites 9\n\
             for elections: lockkeeper sim --election bully --sites 7 --crash 7@10 --initiator 1\n\
             for shared memory: lockkeeper threads --algorithm bakery --threads 4"
        );
    }

    pub fn as_json() -> impl Iterator<Item = serde_json::Value> {
        let elections = registry::ELECTIONS.iter().map(|entry| {
            let mut about = serde_json::to_value(entry.about).expect(PLAIN);
            about["family"] = ELECTION.into();
            about
        });
        elections.chain(shared_memory::ALL.iter().map(|about| serde_json::to_value(about).expect(PLAIN)))
    }
}
