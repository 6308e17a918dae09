//! Runs a [`Spec`], selecting the algorithm by its name.

use crate::algorithm::{self, Algorithm, Configured};
use crate::parallel;
use crate::property::Names;
use crate::simulator::delay::Delay;
use crate::simulator::report::{Report, Stated};
use crate::simulator::run::{Outcome, Sim};
use crate::simulator::spec::{Action, LoadSpec, MOST_SITES, Scripted, Spec};
use crate::simulator::time::Time;
use crate::trace::{Sink, Tracer};
use crate::usage::UsageError;
use lockkeeper_core::Mode;
use lockkeeper_core::settings::Settings;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The reason why there is no report.
#[derive(Debug)]
pub enum Error {
    /// The parameters are invalid.
    Usage(UsageError),
    /// The trace could not be written.
    Trace(std::io::Error),
    /// The caller stopped the run.
    Interrupted,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Usage(error) => error.fmt(f),
            Self::Trace(error) => write!(f, "cannot write the trace: {error}"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Usage(error) => Some(error),
            Self::Trace(error) => Some(error),
            Self::Interrupted => None,
        }
    }
}

/// The progress of runs, and a flag to stop them.
#[derive(Debug, Default)]
pub struct Progress {
    /// Entries so far, over all runs.
    pub entries: AtomicU64,
    /// Set this to stop all runs.
    pub stop: AtomicBool,
}

/// Runs a spec with successive seeds on all cores. The report does not depend on the number of cores.
pub fn simulate(spec: &Spec, seed: u64, seeds: u64, progress: &Progress) -> Result<Report, Error> {
    let algorithm = registered(spec)?;
    let outcomes = run(spec, &*algorithm, seed, seeds, progress);
    report(spec, &*algorithm, seed, &outcomes)
}

/// Runs a spec with successive seeds on all cores; returns the outcome of each run, in the order of the
/// seeds.
pub fn outcomes(spec: &Spec, seed: u64, seeds: u64, progress: &Progress) -> Result<Vec<Outcome>, Error> {
    let outcomes = run(spec, &*registered(spec)?, seed, seeds, progress);
    if outcomes.iter().any(|outcome| outcome.interrupted) { Err(Error::Interrupted) } else { Ok(outcomes) }
}

fn run(spec: &Spec, algorithm: &dyn Configured, seed: u64, seeds: u64, progress: &Progress) -> Vec<Outcome> {
    let run = |offset: usize| {
        Sim::new(spec, algorithm, seed.wrapping_add(offset as u64), None).run(watch(progress)).0
    };
    parallel::map(seeds as usize, &run)
}

/// Runs a spec of an algorithm or a mutant once and passes every event to `sink`.
pub fn trace(spec: &Spec, seed: u64, sink: &mut dyn Sink, progress: &Progress) -> Result<Report, Error> {
    let algorithm = registered_or_mutant(spec)?;
    let processes = spec.sites + algorithm.helpers();
    sink.command(&spec.command(seed)).map_err(Error::Trace)?;
    let tracer = Tracer::new(sink, Names { sites: spec.sites }, processes);
    let (outcome, written) = Sim::new(spec, &*algorithm, seed, Some(tracer)).run(watch(progress));
    written.map_err(Error::Trace)?;
    report(spec, &*algorithm, seed, &[outcome])
}

/// Number of processes of a spec: its sites, and a coordinator if that is separate.
pub fn processes(spec: &Spec) -> Result<usize, Error> {
    Ok(spec.sites + registered_or_mutant(spec)?.helpers())
}

/// The spec's algorithm, which must be in the registry, with the options from its settings.
pub(crate) fn registered(spec: &Spec) -> Result<Arc<dyn Configured>, Error> {
    some_sites(spec)?;
    configure(algorithm::find(&spec.algorithm).ok_or_else(|| unknown(spec))?, spec)
}

fn registered_or_mutant(spec: &Spec) -> Result<Arc<dyn Configured>, Error> {
    some_sites(spec)?;
    configure(algorithm::find_with_mutants(&spec.algorithm).ok_or_else(|| unknown(spec))?, spec)
}

fn unknown(spec: &Spec) -> Error {
    UsageError::UnknownAlgorithm { name: spec.algorithm.clone() }.into()
}

fn some_sites(spec: &Spec) -> Result<(), Error> {
    if spec.sites == 0 || spec.sites > MOST_SITES {
        return Err(UsageError::Sites { sites: spec.sites }.into());
    }
    Ok(())
}

/// Validates a spec; returns the algorithm with the options from the spec's settings.
pub(crate) fn configure(algorithm: &dyn Algorithm, spec: &Spec) -> Result<Arc<dyn Configured>, Error> {
    let mut settings = Settings::new(spec.settings.iter().cloned());
    let configured = algorithm.configure(&mut settings, spec.sites).map_err(UsageError::from)?;
    settings.nothing_left().map_err(UsageError::from)?;
    let processes = spec.sites + configured.helpers();
    spec.network.delay.fits(processes).map_err(UsageError::from)?;
    if matches!(spec.cs, Some(Delay::Matrix(_))) {
        return Err(UsageError::MatrixAsDuration.into());
    }
    if algorithm.about().perpetual && spec.network.delay.typical() == Time::ZERO && spec.sites > 1 {
        return Err(UsageError::TokenWithoutDelay.into());
    }
    if spec.entries == 0 && spec.load != LoadSpec::Script {
        return Err(UsageError::NoEntries.into());
    }
    for scripted in &spec.script {
        for (site, asks) in scripted.action.processes() {
            let known = if asks { spec.sites } else { processes };
            if site.index() >= known {
                return Err(UsageError::UnknownSiteAt { at: scripted.at, site, sites: known }.into());
            }
        }
    }
    if spec.holders.iter().any(|holder| holder.site.index() >= spec.sites) {
        return Err(UsageError::UnknownHolder.into());
    }
    if !spec.clocks.is_empty() && !algorithm.has_clocks() {
        return Err(UsageError::NoClocks { algorithm: spec.algorithm.clone() }.into());
    }
    let sharing = configured.sharing();
    sharing.check(&spec.holders).map_err(UsageError::from)?;
    if wants_to_share(spec) && !sharing.knows(Mode::Shared) {
        return Err(UsageError::NotShared { algorithm: spec.algorithm.clone(), sharing }.into());
    }
    Ok(configured)
}

/// Whether some request is shared.
fn wants_to_share(spec: &Spec) -> bool {
    let shares = |scripted: &Scripted| matches!(scripted.action, Action::Request(_, Mode::Shared));
    spec.readers > 0.0 || spec.script.iter().any(shares)
}

fn report(spec: &Spec, algorithm: &dyn Configured, seed: u64, outcomes: &[Outcome]) -> Result<Report, Error> {
    if outcomes.iter().any(|outcome| outcome.interrupted) {
        return Err(Error::Interrupted);
    }
    let load = spec.load.of_the_papers();
    let expected = load.map(|load| algorithm.expected(load, spec.sites)).unwrap_or_default();
    let stated = Stated { sharing: algorithm.sharing(), expected };
    Ok(Report::new(spec, seed, algorithm.algorithm().kinds(), stated, outcomes))
}

pub(crate) fn watch(progress: &Progress) -> impl FnMut(u64) -> bool + '_ {
    let mut reported = 0;
    move |entries| {
        progress.entries.fetch_add(entries - reported, Ordering::Relaxed);
        reported = entries;
        !progress.stop.load(Ordering::Relaxed)
    }
}
