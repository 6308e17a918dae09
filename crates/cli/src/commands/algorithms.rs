//! `lockkeeper algorithms`: lists the registry of algorithms.

use crate::exit::CliError;
use crate::print_line;
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use lockkeeper_core::mutex::About;
use lockkeeper_core::settings::Setting;
use lockkeeper_core::{any, registry};
use std::process::ExitCode;

/// List the algorithms, or describe one: its paper, assumptions, costs and settings
#[derive(Args)]
#[command(after_help = "\
Examples:
  lockkeeper algorithms            one line for each
  lockkeeper algorithms maekawa    the paper, assumptions, costs, settings, and the effect of a crash

Exit codes: 0 done; 64 there is no algorithm of this name.")]
pub struct Algorithms {
    /// The algorithm, election or lock for threads to describe.
    name: Option<String>,
    /// Print JSON: an array of all, or one object.
    #[arg(long)]
    json: bool,
}

impl Algorithms {
    pub fn run(self) -> ExitCode {
        match &self.name {
            None if self.json => print_line!("{}", serde_json::Value::from(as_json())),
            None => print_list(),
            Some(name) => {
                let Some(found) = as_json().into_iter().find(|about| about["slug"] == name.as_str()) else {
                    let names = as_json();
                    let names = names.iter().filter_map(|about| about["slug"].as_str());
                    return CliError::usage(UnknownAlgorithm::among(name, names)).report();
                };
                if self.json {
                    print_line!("{found}");
                } else {
                    describe(name);
                }
            }
        }
        ExitCode::SUCCESS
    }
}

/// Prints one line for each algorithm, by family.
fn print_list() {
    let all = as_json();
    let text = |about: &serde_json::Value, key: &str| about[key].as_str().unwrap_or_default().to_string();
    let mut families: Vec<String> = Vec::new();
    for about in &all {
        let family = text(about, "family");
        if !families.contains(&family) {
            families.push(family);
        }
    }
    for family in families {
        print_line!("{family}");
        for about in all.iter().filter(|about| text(about, "family") == family) {
            print_line!("  {:<24}{}", text(about, "slug"), text(about, "title"));
        }
        print_line!("");
    }
    print_line!("lockkeeper algorithms NAME describes one: paper, assumptions, costs, settings.");
    #[cfg(feature = "lab")]
    print_line!(
        "Try: lockkeeper sim --algorithm lamport --sites 9\n\
         elections: lockkeeper sim --election bully --sites 7 --crash 7@10\n\
         threads: lockkeeper threads --algorithm bakery --threads 4"
    );
    #[cfg(not(feature = "lab"))]
    print_line!(
        "Try: lockkeeper up --dev 3 --algorithm ricart-agrawala\n\
         Builds with the lab list more: algorithms without a cluster, elections, locks for threads."
    );
}

/// Prints the description of the algorithm of this name.
fn describe(name: &str) {
    for about in listed().filter(|about| about.slug == name) {
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
        print_line!("{}", table.trim_fmt());
    }
    #[cfg(feature = "lab")]
    of_the_lab::describe(name);
}

/// The algorithms of the registry. A build without the lab has only those that a cluster can run.
fn listed() -> impl Iterator<Item = &'static About> {
    let usable =
        |about: &&About| cfg!(feature = "lab") || any::ALL.iter().any(|other| other.slug == about.slug);
    registry::ALL.iter().map(|entry| entry.about).filter(usable)
}

/// An algorithm that is not in the registry.
#[derive(Debug, thiserror::Error)]
#[error(
    "there is no algorithm `{algorithm}`{}{}; `lockkeeper algorithms` lists them",
    registry::PresentName(algorithm),
    near.as_deref().map(|near| format!(": did you mean `{near}`?")).unwrap_or_default()
)]
pub struct UnknownAlgorithm {
    algorithm: String,
    /// A known name that begins with the given one, or that the given one begins with.
    near: Option<String>,
}

impl UnknownAlgorithm {
    fn among<'a>(algorithm: &str, mut known: impl Iterator<Item = &'a str>) -> Self {
        let start: String = algorithm.chars().take(4).collect();
        let is_former = registry::is_former_name(algorithm) || start.is_empty();
        let near = known.find(|known| !is_former && known.starts_with(&start));
        Self { algorithm: algorithm.into(), near: near.map(Into::into) }
    }
}

/// Rejects a mutual exclusion algorithm that is not in the registry.
#[cfg(feature = "daemon")]
pub fn refuse_unknown(algorithm: &str) -> Result<(), UnknownAlgorithm> {
    match registry::find(algorithm) {
        Some(_) => Ok(()),
        None => Err(UnknownAlgorithm::among(algorithm, registry::ALL.iter().map(|entry| entry.about.slug))),
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

/// The message of `expect` where the registry is serialized, which cannot fail.
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

    pub fn describe(name: &str) {
        for about in registry::ELECTIONS.iter().map(|entry| entry.about).filter(|about| about.slug == name) {
            let mut table = card(about.slug, about.title, about.idea);
            let mut row = |name: &str, value: &str| add_row(&mut table, name, value);
            row("family", ELECTION);
            row("paper", about.paper);
            row("assumes", about.assumes);
            row("messages, best case", about.best);
            row("messages, worst case", about.worst);
            row("a crash", about.crash);
            add_settings(&mut table, about.settings);
            print_line!("{}", table.trim_fmt());
        }
        for about in shared_memory::ALL.iter().filter(|about| about.slug == name) {
            let mut table = card(about.slug, about.title, about.idea);
            add_row(&mut table, "family", about.family);
            add_row(&mut table, "paper", about.paper);
            add_row(&mut table, "needs", about.needs);
            add_row(&mut table, "fairness", about.fairness);
            print_line!("{}", table.trim_fmt());
        }
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
