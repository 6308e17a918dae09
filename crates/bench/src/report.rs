//! The report of a bench: all runs as JSON, the medians as CSV, and an HTML page.

use crate::error::FileError;
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
    /// The machine of the measurements.
    pub machine: Machine,
    /// The measured engines.
    pub engines: Vec<About>,
    /// The figures of all runs.
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
    /// The failures that a hold survives.
    pub durability: &'static str,
}

/// The reason why a report cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The report has no JSON.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A file or a folder cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
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
    pub fn write_json(&self, file: &Path) -> Result<(), ReportError> {
        let json = serde_json::to_string_pretty(self)?;
        write(file, &(json + "\n"))
    }

    /// Writes the HTML page and the figures to a folder.
    pub fn write_page(&self, folder: &Path) -> Result<(), ReportError> {
        FileError::make_folder(folder)?;
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

fn write(file: &Path, text: &str) -> Result<(), ReportError> {
    Ok(std::fs::write(file, text).map_err(FileError::write(file))?)
}
