//! The simulator and the checker of elections.
//!
//! | module | contents |
//! |---|---|
//! | [`electorate`] | the sites and their steps, without time; the properties |
//! | [`sim`] | one run in virtual time |
//! | [`report`] | the report of runs |
//! | [`model`] | elections as models for the explorer: every order of events in a small system |
//! | [`cost`] | the cost in the papers' cases, measured |
//! | [`mod@explain`] | the explanation of an election |

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

use crate::dispatch;
use crate::property::Names;
use crate::simulator::runner::Error;
use crate::simulator::spec::{Action, MOST_SITES, Spec};
use crate::simulator::time::Time;
use crate::trace::{Sink, Tracer};
use crate::usage::UsageError;
use lockkeeper_core::registry::{self, ElectionVisitor};
use lockkeeper_core::settings::Settings;
use lockkeeper_core::{Election, Protocol, SiteId, Vocabulary};
use rayon::prelude::*;
use report::Run;
use sim::Sim;

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
    visit(spec, Elect { spec, seed, seeds })?
}

/// Runs an election once and passes every event to `sink`.
pub fn trace(spec: &ElectionSpec, seed: u64, sink: &mut dyn Sink) -> Result<Report, Error> {
    visit(spec, Trace { spec, seed, sink })?
}

fn visit<V: ElectionVisitor>(spec: &ElectionSpec, visitor: V) -> Result<V::Output, Error> {
    let sites = spec.system.sites;
    if sites == 0 || sites > MOST_SITES {
        return Err(UsageError::Sites { sites }.into());
    }
    let unknown = || {
        let known = registry::ELECTIONS.iter().map(|entry| entry.about.slug).collect();
        UsageError::UnknownElection { name: spec.system.algorithm.clone(), known }
    };
    Ok(dispatch::visit_election(&spec.system.algorithm, visitor).ok_or_else(unknown)?)
}

/// Validates a spec; returns the election's options.
fn check_spec<E: Election>(spec: &ElectionSpec) -> Result<E::Options, Error> {
    let system = &spec.system;
    let mut settings = Settings::new(system.settings.iter().cloned());
    let options = E::options(&mut settings, system.sites).map_err(UsageError::from)?;
    settings.nothing_left().map_err(UsageError::from)?;
    system.network.delay.fits(system.sites).map_err(UsageError::from)?;
    let scripted = system.script.iter().flat_map(|scripted| scripted.action.processes());
    let named = scripted.map(|(site, _)| site).chain(spec.initiators.iter().map(|(site, _)| *site));
    match named.into_iter().find(|site| site.index() >= system.sites) {
        Some(site) => Err(UsageError::UnknownSite { site, sites: system.sites }.into()),
        None => Ok(options),
    }
}

fn report<E: Election>(spec: &ElectionSpec, seed: u64, runs: Vec<Run>) -> Report {
    Report::new(spec, seed, <E as Protocol>::Message::WORDS, runs)
}

struct Elect<'a> {
    spec: &'a ElectionSpec,
    seed: u64,
    seeds: u64,
}

impl ElectionVisitor for Elect<'_> {
    type Output = Result<Report, Error>;

    fn visit<E: Election>(self) -> Self::Output {
        let options = check_spec::<E>(self.spec)?;
        let one = |seed| Sim::<E>::new(self.spec, options.clone(), seed, None).run().0;
        let runs = (self.seed..self.seed.saturating_add(self.seeds)).into_par_iter().map(one).collect();
        Ok(report::<E>(self.spec, self.seed, runs))
    }
}

struct Trace<'a> {
    spec: &'a ElectionSpec,
    seed: u64,
    sink: &'a mut dyn Sink,
}

impl ElectionVisitor for Trace<'_> {
    type Output = Result<Report, Error>;

    fn visit<E: Election>(self) -> Self::Output {
        let options = check_spec::<E>(self.spec)?;
        let sites = self.spec.system.sites;
        let tracer = Tracer::new(self.sink, Names { sites }, sites);
        let (run, traced) = Sim::<E>::new(self.spec, options, self.seed, Some(tracer)).run();
        traced.map_err(Error::Trace)?;
        Ok(report::<E>(self.spec, self.seed, vec![run]))
    }
}
