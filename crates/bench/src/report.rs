//! The report of a bench: all runs as JSON, the medians as CSV, and an HTML page.

use crate::locks::{Measured, Plan};
use crate::machine::Machine;
use crate::run::{Run, medians};
use serde::Serialize;
use std::path::Path;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The report of a bench.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The command line.
    pub command: Vec<String>,
    /// The time of its end.
    pub date: String,
    /// The machine.
    pub machine: Machine,
    /// The measured engines.
    pub engines: Vec<About>,
    /// All runs.
    pub runs: Vec<Run>,
    /// For each engine and workload, the medians of its runs.
    pub medians: Vec<Run>,
    /// The failed measurements, each with the reason.
    pub failures: Vec<String>,
}

/// The description of an engine.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// The engine's name.
    pub name: &'static str,
    /// The version that its servers report.
    pub version: String,
    /// A description of its clients.
    pub how: &'static str,
    /// What survives which failure.
    pub durability: &'static str,
}

impl Report {
    /// Builds the report.
    pub fn new(plan: &Plan, measured: Measured, command: Vec<String>) -> Report {
        let Measured { runs, versions, failures } = measured;
        let about = |engine: &&'static crate::engine::Engine| {
            let version = versions.iter().find(|(name, _)| *name == engine.name);
            About {
                name: engine.name,
                version: version.map_or(String::new(), |(_, version)| version.clone()),
                how: engine.how,
                durability: engine.durability,
            }
        };
        let now = OffsetDateTime::now_utc();
        let now = now.replace_nanosecond(0).unwrap_or(now);
        Report {
            command: without_folder(command),
            date: now.format(&Rfc3339).unwrap_or_default(),
            machine: Machine::this(),
            engines: plan.engines.iter().map(about).collect(),
            medians: medians(&runs),
            runs,
            failures,
        }
    }

    /// Writes all runs to a file.
    pub fn write_json(&self, file: &Path) -> Result<(), String> {
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        write(file, &(json + "\n"))
    }

    /// Writes the HTML page and the figures to a folder.
    pub fn write_page(&self, folder: &Path) -> Result<(), String> {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        self.write_json(&folder.join("figures.json"))?;
        write(&folder.join("figures.csv"), &crate::page::csv(&self.medians))?;
        write(&folder.join("index.html"), &crate::page::page(self))
    }
}

/// Removes the folder of the executable, which is of no interest to the reader.
fn without_folder(mut command: Vec<String>) -> Vec<String> {
    if let Some(first) = command.first_mut()
        && let Some(name) = Path::new(first.as_str()).file_name()
    {
        *first = name.to_string_lossy().into_owned();
    }
    command
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}
