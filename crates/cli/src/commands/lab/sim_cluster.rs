//! `lockkeeper sim --cluster`: simulates whole clusters with all kinds of faults.

use super::lab_error::LabError;
use super::progress;
use super::sim::known;
use crate::file_error::FileError;
use crate::{exit, print_line};
use clap::Args;
use lockkeeper_cluster_lab::BugSwitch;
use lockkeeper_cluster_lab::{self as cluster, ClusterReport, ClusterSpec, Fault};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

/// The flags that apply only to clusters.
#[derive(Args)]
pub struct Flags {
    /// Simulate a whole cluster, with views, leases and sessions, in place of a bare algorithm.
    #[arg(long, help_heading = "Clusters")]
    pub cluster: bool,
    /// The number of members, from 1 to 9.
    #[arg(long, value_name = "N", default_value_t = 5, requires = "cluster", help_heading = "Clusters")]
    members: usize,
    /// The faults: all, none, or some of crash, wipe, restart-all, pause, hiccup, cut, loss, duplicate, delay, drift,
    /// leader, client, home-cut, restart-in-turn, leave, revoke, settings, lose-all, isolate and theft, separated by
    /// commas.
    #[arg(
        long,
        value_name = "FAULT,…",
        default_value = "all",
        requires = "cluster",
        help_heading = "Clusters"
    )]
    faults: String,
    /// Disable one guard of the protocol, such as no-freeze, to show that the simulation finds the bug; a wrong name
    /// lists the bug switches.
    #[arg(long, value_name = "NAME", requires = "cluster", help_heading = "Clusters")]
    bug: Option<String>,
}

/// The flags that a run of a cluster shares with other runs.
pub struct Common<'a> {
    pub algorithm: &'a str,
    pub seed: u64,
    pub seeds: u64,
    pub json: bool,
    pub trace: Option<&'a Path>,
}

impl Flags {
    pub fn report(&self, common: &Common<'_>) -> Result<ExitCode, LabError> {
        let spec = self.spec(common.algorithm)?;
        let report = match common.trace {
            Some(_) if common.seeds > 1 => {
                return Err(LabError::TraceOfSeveralRuns);
            }
            Some(path) => traced(&spec, common.seed, path)?,
            None => progress::counting("runs", common.seeds, |progress| {
                cluster::run(&spec, common.seed, common.seeds, progress)
            })?,
        };
        if common.json {
            print_line!("{}", serde_json::to_string(&report).expect("a report is plain data"));
        } else {
            print(&report);
        }
        Ok(verdict(&report))
    }

    fn spec(&self, algorithm: &str) -> Result<ClusterSpec, LabError> {
        known(algorithm)?;
        let mut spec = ClusterSpec::new(algorithm, self.members);
        spec.faults = Fault::parse(&self.faults).map_err(LabError::parameter)?.into_iter().collect();
        spec.bug = self.bug.as_deref().map(BugSwitch::parse).transpose().map_err(LabError::parameter)?;
        Ok(spec)
    }
}

/// Writes one JSON object for each event: time (in milliseconds), process, event.
fn traced(spec: &ClusterSpec, seed: u64, path: &Path) -> Result<ClusterReport, LabError> {
    let cannot_write = |error| LabError::Trace(FileError::trace(path)(error));
    let mut file = BufWriter::new(File::create(path).map_err(cannot_write)?);
    let mut written = Ok(());
    let report = cluster::run_traced(spec, seed, &mut |(at, who, what)| {
        let line = serde_json::json!({ "at_ms": at as f64 / 1e6, "who": who, "what": format!("{what:?}") });
        if written.is_ok() {
            written = writeln!(file, "{line}");
        }
    })?;
    written.and_then(|()| file.flush()).map_err(cannot_write)?;
    Ok(report)
}

fn print(report: &ClusterReport) {
    let faults = if report.faults.is_empty() { "none".into() } else { report.faults.join(", ") };
    print_line!(
        "{} members, {}, seed {}, {} runs",
        report.members,
        report.algorithm,
        report.seed,
        report.runs
    );
    print_line!("faults       {faults}");
    print_line!("entries      {}", report.entries);
    print_line!("views        {} started", report.views);
    print_line!(
        "lost         {} sessions that held something, by their own or their member's fault",
        report.lost
    );
    print_line!(
        "recorded     {} holds; {} of them were adopted by another member, {} with the lease of a client of HTTP or etcd",
        report.recorded,
        report.adopted,
        report.adopted_leases
    );
    print_line!("leaves       {} in order", report.leaves);
    print_line!("frames       {} between members", report.frames);
    print_line!(
        "promises     {}",
        if report.found.is_empty() { "all kept".into() } else { format!("{} broken", report.found.len()) }
    );
}

/// Prints the violations and the commands that reproduce them.
fn verdict(report: &ClusterReport) -> ExitCode {
    const MOST: usize = 5;
    for found in report.found.iter().take(MOST) {
        eprintln!("seed {}; see it again with: {}", found.seed, found.reproduce);
        eprintln!("  after {} ms, {}: {}", found.at_ms, found.property, found.how);
    }
    if report.found.len() > MOST {
        eprintln!("… and {} more seeds", report.found.len() - MOST);
    }
    if report.found.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::VIOLATED) }
}
