//! What is written about a bench: every run as JSON, the medians as CSV, a page for people.

use crate::locks::{Measured, Plan};
use crate::machine::Machine;
use crate::run::{Run, medians};
use serde::Serialize;
use std::path::Path;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A whole bench.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The words of the command.
    pub command: Vec<String>,
    /// When it ended.
    pub date: String,
    /// Where.
    pub machine: Machine,
    /// What was measured.
    pub engines: Vec<About>,
    /// Every run.
    pub runs: Vec<Run>,
    /// For each engine and workload, the medians of its runs.
    pub medians: Vec<Run>,
    /// What could not be measured, and why.
    pub failures: Vec<String>,
}

/// What is to be said of an engine.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// What its servers say.
    pub version: String,
    /// How its clients work.
    pub how: &'static str,
    /// What survives what.
    pub durability: &'static str,
}

impl Report {
    /// Puts everything together.
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

    /// Writes every run into a file.
    pub fn write_json(&self, file: &Path) -> Result<(), String> {
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        write(file, &(json + "\n"))
    }

    /// Writes a page and the figures into a folder.
    pub fn write_page(&self, folder: &Path) -> Result<(), String> {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        self.write_json(&folder.join("figures.json"))?;
        write(&folder.join("figures.csv"), &crate::page::csv(&self.medians))?;
        write(&folder.join("index.html"), &crate::page::page(self))
    }
}

/// Where the program lies on this machine is nobody's business.
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
