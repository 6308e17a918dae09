//! Runs clusters with an algorithm given by name, for many seeds, on all cores.

use super::observer::{Outcome, Property};
use super::sim::{Sim, Trace};
use super::spec::ClusterSpec;
use lockkeeper_core::any::{self, AnySite};
use lockkeeper_lab::Progress;
use lockkeeper_member::SettingsError;
use rayon::prelude::*;
use serde::Serialize;
use std::sync::atomic::Ordering;

/// A violated property, with the command that reproduces it.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The seed of the run.
    pub seed: u64,
    /// The violated property.
    #[serde(rename = "promise")]
    pub property: Property,
    /// The time of the violation, in milliseconds.
    pub at_ms: u64,
    /// A description of the violation.
    pub how: String,
    /// The command that reproduces the run.
    pub reproduce: String,
}

/// The combined results of several runs.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterReport {
    /// The algorithm of the locks.
    pub algorithm: String,
    /// The number of members.
    pub members: usize,
    /// The names of the faults that could happen.
    pub faults: Vec<&'static str>,
    /// The first seed.
    pub seed: u64,
    /// The number of runs.
    pub runs: u64,
    /// The number of entries.
    pub entries: u64,
    /// The number of re-entrant acquisitions.
    pub nested: u64,
    /// The number of entries of clients without a session of their own.
    pub leased: u64,
    /// The number of views that started.
    pub views: u64,
    /// The number of sessions that were lost while they held a lock.
    pub lost: u64,
    /// The number of recorded holds that were lost.
    pub lost_recorded: u64,
    /// The number of holds that members have recorded.
    pub recorded: u64,
    /// The number of recorded holds that members have adopted.
    pub adopted: u64,
    /// The number of leases of clients without a session of their own that daemons have adopted.
    pub adopted_leases: u64,
    /// The number of planned leaves.
    pub leaves: u64,
    /// The number of frames between members.
    pub frames: u64,
    /// The violations that the runs have shown.
    pub found: Vec<Found>,
}

/// The reason why there is no report of a simulated cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// The cluster has no member, or too many.
    #[error(
        "a simulated cluster has between 1 and {} members, and {members} were asked for",
        ClusterSpec::MOST_MEMBERS
    )]
    Members {
        /// The number of members.
        members: usize,
    },
    /// The members reject their settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The caller stopped the runs.
    #[error("interrupted")]
    Interrupted,
}

/// Runs a cluster with successive seeds on all cores. The report does not depend on the number of cores.
pub fn run(
    spec: &ClusterSpec,
    seed: u64,
    seeds: u64,
    progress: &Progress,
) -> Result<ClusterReport, SimulationError> {
    check(spec)?;
    let outcomes = (0..seeds).into_par_iter().map(|offset| {
        if progress.stop.load(Ordering::Relaxed) {
            return Ok(Outcome::default());
        }
        let seed = seed.wrapping_add(offset);
        let spec = spec.drawn(seed);
        let sim = Sim::<AnySite>::new(&spec, seed, None)?;
        let outcome = sim.run();
        progress.entries.fetch_add(1, Ordering::Relaxed);
        Ok(outcome)
    });
    let outcomes = outcomes.collect::<Result<Vec<Outcome>, SimulationError>>()?;
    if progress.stop.load(Ordering::Relaxed) {
        Err(SimulationError::Interrupted)
    } else {
        Ok(report(spec, seed, &outcomes))
    }
}

/// Runs a cluster once and passes every event to `trace`.
pub fn run_traced(spec: &ClusterSpec, seed: u64, trace: Trace<'_>) -> Result<ClusterReport, SimulationError> {
    check(spec)?;
    let drawn = spec.drawn(seed);
    let outcome = Sim::<AnySite>::new(&drawn, seed, Some(trace))?.run();
    Ok(report(spec, seed, &[outcome]))
}

fn check(spec: &ClusterSpec) -> Result<(), SimulationError> {
    match spec.members {
        1..=ClusterSpec::MOST_MEMBERS => Ok(()),
        members => Err(SimulationError::Members { members }),
    }
}

/// The algorithms that a cluster can run.
pub fn algorithms() -> impl Iterator<Item = &'static str> {
    any::ALL.iter().map(|about| about.slug)
}

fn report(spec: &ClusterSpec, seed: u64, outcomes: &[Outcome]) -> ClusterReport {
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum();
    let found = outcomes.iter().filter_map(|outcome| {
        let (at, property, how) = outcome.broken.clone()?;
        let reproduce = reproduce(spec, outcome.seed);
        Some(Found { seed: outcome.seed, property, at_ms: at / 1_000_000, how, reproduce })
    });
    ClusterReport {
        algorithm: spec.algorithm.clone(),
        members: spec.members,
        faults: spec.faults.iter().map(|fault| fault.name()).collect(),
        seed,
        runs: outcomes.len() as u64,
        entries: sum(|outcome| outcome.entries),
        nested: sum(|outcome| outcome.nested),
        leased: sum(|outcome| outcome.leased),
        views: sum(|outcome| outcome.views),
        lost: sum(|outcome| outcome.lost),
        lost_recorded: sum(|outcome| outcome.lost_recorded),
        recorded: sum(|outcome| outcome.recorded),
        adopted: sum(|outcome| outcome.adopted),
        adopted_leases: sum(|outcome| outcome.adopted_leases),
        leaves: sum(|outcome| outcome.leaves),
        frames: sum(|outcome| outcome.frames),
        found: found.collect(),
    }
}

fn reproduce(spec: &ClusterSpec, seed: u64) -> String {
    let faults: Vec<&str> = spec.faults.iter().map(|fault| fault.name()).collect();
    let faults = match faults.len() {
        0 => "none".into(),
        all if all == super::Fault::ALL.len() => "all".into(),
        _ => faults.join(","),
    };
    let bug = spec.bug.map(|bug| format!(" --bug {}", bug.name())).unwrap_or_default();
    format!(
        "lockkeeper sim --cluster --members {} --algorithm {} --faults {faults}{bug} --seed {seed}",
        spec.members, spec.algorithm
    )
}
