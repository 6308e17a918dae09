//! Runs a [`Spec`], selecting the algorithm by its name.

use crate::dispatch;
use crate::property::Names;
use crate::simulator::delay::Delay;
use crate::simulator::report::{Report, Stated};
use crate::simulator::run::{Outcome, Sim};
use crate::simulator::spec::{Action, LoadSpec, MOST_SITES, Scripted, Spec};
use crate::simulator::time::Time;
use crate::trace::{Sink, Tracer};
use crate::usage::UsageError;
use lockkeeper_core::registry::{self, Visitor};
use lockkeeper_core::settings::Settings;
use lockkeeper_core::{Expected, Mode, MutualExclusion, Protocol, Vocabulary};
use rayon::prelude::*;
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
    visit(spec, Simulate { spec, seed, seeds, progress })?
}

/// Runs a spec with successive seeds on all cores; returns the outcome of each run, in the order of the
/// seeds.
pub fn outcomes(spec: &Spec, seed: u64, seeds: u64, progress: &Progress) -> Result<Vec<Outcome>, Error> {
    let outcomes = visit(spec, Outcomes { spec, seed, seeds, progress })??;
    if outcomes.iter().any(|outcome| outcome.interrupted) { Err(Error::Interrupted) } else { Ok(outcomes) }
}

/// Runs a spec once and passes every event to `sink`.
pub fn trace(spec: &Spec, seed: u64, sink: &mut dyn Sink, progress: &Progress) -> Result<Report, Error> {
    some_sites(spec)?;
    visit_named(&spec.algorithm, Trace { spec, seed, sink, progress }).ok_or_else(|| unknown(spec))?
}

/// Number of processes of a spec: its sites, and a coordinator if that is separate.
pub fn processes(spec: &Spec) -> Result<usize, Error> {
    some_sites(spec)?;
    visit_named(&spec.algorithm, Processes { spec }).ok_or_else(|| unknown(spec))?
}

pub(crate) fn visit<V: Visitor>(spec: &Spec, visitor: V) -> Result<V::Output, Error> {
    some_sites(spec)?;
    dispatch::visit(&spec.algorithm, visitor).ok_or_else(|| unknown(spec))
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

/// Calls a visitor with an algorithm or a mutant; their names are distinct. The visitor is compiled for each
/// of them, so use this sparingly.
pub(crate) fn visit_named<V: Visitor>(name: &str, visitor: V) -> Option<V::Output> {
    struct Wrong<V>(V);
    impl<V: Visitor> crate::mutants::Visitor for Wrong<V> {
        type Output = V::Output;

        fn visit<Wrong: MutualExclusion, Twin: MutualExclusion>(self) -> V::Output {
            self.0.visit::<Wrong>()
        }
    }
    match registry::find(name) {
        Some(_) => dispatch::visit(name, visitor),
        None => dispatch::visit_variant(name, Wrong(visitor)),
    }
}

/// Validates a spec; returns the algorithm's options.
pub(crate) fn check<P: MutualExclusion>(spec: &Spec) -> Result<P::Options, Error> {
    let mut settings = Settings::new(spec.settings.iter().cloned());
    let options = P::options(&mut settings, spec.sites).map_err(UsageError::from)?;
    settings.nothing_left().map_err(UsageError::from)?;
    let processes = spec.sites + P::helpers(&options);
    spec.network.delay.fits(processes).map_err(UsageError::from)?;
    if matches!(spec.cs, Some(Delay::Matrix(_))) {
        return Err(UsageError::MatrixAsDuration.into());
    }
    if P::ABOUT.perpetual && spec.network.delay.typical() == Time::ZERO && spec.sites > 1 {
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
    let sharing = P::sharing(&options);
    sharing.check(&spec.holders).map_err(UsageError::from)?;
    if wants_to_share(spec) && !sharing.knows(Mode::Shared) {
        return Err(UsageError::NotShared { algorithm: spec.algorithm.clone(), sharing }.into());
    }
    Ok(options)
}

/// Whether some request is shared.
fn wants_to_share(spec: &Spec) -> bool {
    let shares = |scripted: &Scripted| matches!(scripted.action, Action::Request(_, Mode::Shared));
    spec.readers > 0.0 || spec.script.iter().any(shares)
}

pub(crate) fn expected<P: MutualExclusion>(spec: &Spec, options: &P::Options) -> Expected {
    let load = spec.load.of_the_papers();
    load.map(|load| P::expected(load, spec.sites, options)).unwrap_or_default()
}

struct Processes<'a> {
    spec: &'a Spec,
}

impl Visitor for Processes<'_> {
    type Output = Result<usize, Error>;

    fn visit<P: MutualExclusion>(self) -> Self::Output {
        Ok(self.spec.sites + P::helpers(&check::<P>(self.spec)?))
    }
}

struct Simulate<'a> {
    spec: &'a Spec,
    seed: u64,
    seeds: u64,
    progress: &'a Progress,
}

impl Visitor for Simulate<'_> {
    type Output = Result<Report, Error>;

    fn visit<P: MutualExclusion>(self) -> Self::Output {
        let options = check::<P>(self.spec)?;
        let Self { spec, seed, seeds, progress } = self;
        let outcomes = Outcomes { spec, seed, seeds, progress }.visit::<P>()?;
        report::<P>(self.spec, self.seed, &options, &outcomes)
    }
}

struct Outcomes<'a> {
    spec: &'a Spec,
    seed: u64,
    seeds: u64,
    progress: &'a Progress,
}

impl Visitor for Outcomes<'_> {
    type Output = Result<Vec<Outcome>, Error>;

    fn visit<P: MutualExclusion>(self) -> Self::Output {
        let options = check::<P>(self.spec)?;
        let run = |offset| {
            let sim = Sim::<P>::new(self.spec, options.clone(), self.seed.wrapping_add(offset), None);
            sim.run(watch(self.progress)).0
        };
        Ok((0..self.seeds).into_par_iter().map(run).collect())
    }
}

struct Trace<'a> {
    spec: &'a Spec,
    seed: u64,
    sink: &'a mut dyn Sink,
    progress: &'a Progress,
}

impl Visitor for Trace<'_> {
    type Output = Result<Report, Error>;

    fn visit<P: MutualExclusion>(self) -> Self::Output {
        let options = check::<P>(self.spec)?;
        let processes = self.spec.sites + P::helpers(&options);
        self.sink.command(&self.spec.command(self.seed)).map_err(Error::Trace)?;
        let tracer = Tracer::new(self.sink, Names { sites: self.spec.sites }, processes);
        let sim = Sim::<P>::new(self.spec, options.clone(), self.seed, Some(tracer));
        let (outcome, written) = sim.run(watch(self.progress));
        written.map_err(Error::Trace)?;
        report::<P>(self.spec, self.seed, &options, &[outcome])
    }
}

fn report<P: MutualExclusion>(
    spec: &Spec,
    seed: u64,
    options: &P::Options,
    outcomes: &[Outcome],
) -> Result<Report, Error> {
    if outcomes.iter().any(|outcome| outcome.interrupted) {
        return Err(Error::Interrupted);
    }
    let words = <P as Protocol>::Message::WORDS;
    let stated = Stated { sharing: P::sharing(options), expected: expected::<P>(spec, options) };
    Ok(Report::new(spec, seed, words, stated, outcomes))
}

pub(crate) fn watch(progress: &Progress) -> impl FnMut(u64) -> bool + '_ {
    let mut reported = 0;
    move |entries| {
        progress.entries.fetch_add(entries - reported, Ordering::Relaxed);
        reported = entries;
        !progress.stop.load(Ordering::Relaxed)
    }
}
