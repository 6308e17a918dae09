//! The simulator and the checker of elections.
//!
//! | module | contents |
//! |---|---|
//! | [`algorithm`] | an election as a value: the other modules are compiled once, not once per election |
//! | [`electorate`] | the sites and their steps, without time; the properties |
//! | [`sim`] | one run in virtual time; messages and timers may be left to its script |
//! | [`report`] | the report of runs |
//! | [`model`] | elections as models for the explorer: every order of events in a small system |
//! | [`cost`] | the cost in the papers' cases, measured |
//! | [`mod@explain`] | the explanation of an election |

pub mod algorithm;
pub mod cost;
pub mod electorate;
pub mod explain;
pub mod model;
pub mod report;
pub mod sim;
mod state;

pub use crate::property::Property;
pub(crate) use model::check;
pub use report::Report;

use crate::parallel;
use crate::property::Names;
use crate::simulator::runner::Error;
use crate::simulator::spec::{Action, MOST_SITES, Spec};
use crate::simulator::time::Time;
use crate::trace::{Sink, Tracer};
use crate::usage::UsageError;
use algorithm::{ConfiguredElection, ElectionAlgorithm};
use lockkeeper_core::settings::Settings;
use lockkeeper_core::{SiteId, registry};
use report::Run;
use sim::Sim;
use std::sync::Arc;

/// An election to run. At its start, every site knows the highest site as the leader.
#[derive(Clone, Debug)]
pub struct ElectionSpec {
    /// The system: the election's slug as its algorithm, its settings, sites, network, detector and faults.
    /// Load and entries are ignored.
    pub system: Spec,
    /// The sites that start an election, each with the time.
    pub initiators: Vec<(SiteId, Time)>,
}

impl ElectionSpec {
    /// An election with this number of sites, without initiators or faults.
    pub fn new(election: &str, sites: usize) -> Self {
        Self { system: Spec::new(election, sites), initiators: Vec::new() }
    }

    /// The time of the first crash. Initiators without a time start then.
    pub fn first_crash(&self) -> Time {
        let crashes =
            self.system.script.iter().filter(|scripted| matches!(scripted.action, Action::Crash(_)));
        crashes.map(|scripted| scripted.at).min().unwrap_or(Time::ZERO)
    }

    /// The command that runs this with the given seed.
    pub fn command(&self, seed: u64) -> String {
        self.system.election_command(&self.initiators, seed)
    }
}

/// Runs an election with successive seeds on all cores. The report does not depend on the number of cores.
pub fn elect(spec: &ElectionSpec, seed: u64, seeds: u64) -> Result<Report, Error> {
    let election = configure(spec, algorithm::find)?;
    let one = |offset: usize| Sim::new(spec, &*election, seed + offset as u64, None).run().0;
    let runs = parallel::map(seeds.min(u64::MAX - seed) as usize, &one);
    Ok(report(spec, &*election, seed, runs))
}

/// Runs an election, or a mutant of one, once and passes every event to `sink`.
pub fn trace(spec: &ElectionSpec, seed: u64, sink: &mut dyn Sink) -> Result<Report, Error> {
    let election = configure(spec, algorithm::find_with_mutants)?;
    sink.command(&spec.command(seed)).map_err(Error::Trace)?;
    let sites = spec.system.sites;
    let tracer = Tracer::new(sink, Names { sites }, sites);
    let (run, traced) = Sim::new(spec, &*election, seed, Some(tracer)).run();
    traced.map_err(Error::Trace)?;
    Ok(report(spec, &*election, seed, vec![run]))
}

/// Validates a spec; returns the election with the options from the spec's settings.
fn configure(
    spec: &ElectionSpec,
    find: impl Fn(&str) -> Option<&'static dyn ElectionAlgorithm>,
) -> Result<Arc<dyn ConfiguredElection>, Error> {
    let system = &spec.system;
    let sites = system.sites;
    if sites == 0 || sites > MOST_SITES {
        return Err(UsageError::Sites { sites }.into());
    }
    let unknown = || {
        let known = registry::ELECTIONS.iter().map(|entry| entry.about.slug).collect();
        UsageError::UnknownElection { name: system.algorithm.clone(), known }
    };
    let algorithm = find(&system.algorithm).ok_or_else(unknown)?;
    let mut settings = Settings::new(system.settings.iter().cloned());
    let election = algorithm.configure(&mut settings, sites).map_err(UsageError::from)?;
    settings.nothing_left().map_err(UsageError::from)?;
    system.network.delay.fits(sites).map_err(UsageError::from)?;
    let scripted = system.script.iter().flat_map(|scripted| scripted.action.processes());
    let named = scripted.map(|(site, _)| site).chain(spec.initiators.iter().map(|(site, _)| *site));
    match named.into_iter().find(|site| site.index() >= sites) {
        Some(site) => Err(UsageError::UnknownSite { site, sites }.into()),
        None => Ok(election),
    }
}

fn report(spec: &ElectionSpec, election: &dyn ConfiguredElection, seed: u64, runs: Vec<Run>) -> Report {
    Report::new(spec, seed, election.algorithm(), runs)
}
