//! The requests of a page, and their limits.

use lockkeeper_core::mutex::parse_site;
use lockkeeper_core::sharing::HolderError;
use lockkeeper_core::{SiteId, registry};
use lockkeeper_lab::causality::{CutError, HistoryError};
use lockkeeper_lab::checker::{CheckSpec, Fault, Faults, ModelKind};
use lockkeeper_lab::comparison::table::Sweep;
use lockkeeper_lab::election::ElectionSpec;
use lockkeeper_lab::flp::explore::TooManyConfigurations;
use lockkeeper_lab::quiz::{AnswerError, Exercise, Grade};
use lockkeeper_lab::simulator::delay::{Delay, DelayError};
use lockkeeper_lab::simulator::network::{NetworkError, Partition, parse_probability};
use lockkeeper_lab::simulator::scenario::ScenarioError;
use lockkeeper_lab::simulator::spec::{
    Action, DetectorError, DetectorSpec, LoadError, LoadSpec, Scripted, SiteTimeError, Spec, parse_holders,
    parse_site_at, parse_site_during,
};
use lockkeeper_lab::trace::recording::Limits;
use lockkeeper_lab::{Scenario, Time};
use serde::Deserialize;
use std::time::Duration;

/// The limits of a recorded run.
pub const RUN: Limits = Limits { processes: 64, steps: 20_000, messages: 60_000 };
/// The time limit of a run.
pub const RUN_TIME: Duration = Duration::from_secs(20);
/// The time limit of a check.
pub const CHECK_TIME: Duration = Duration::from_secs(120);
/// The maximum number of states of a check.
pub const CHECK_STATES: u64 = 5_000_000;
/// The time limit of a comparison.
pub const COMPARE_TIME: Duration = Duration::from_secs(300);
const MOST_SITES: usize = 60;
const MOST_ENTRIES: u64 = 20_000;
const MOST_SIZES: usize = 8;
const LARGEST_SIZE: usize = 127;
const MOST_FAULTS: u8 = 3;

/// A run with flags, as for `lockkeeper sim`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    algorithm: String,
    sites: usize,
    #[serde(default)]
    settings: Vec<String>,
    load: String,
    entries: u64,
    delay: String,
    cs: String,
    fifo: bool,
    #[serde(default)]
    loss: String,
    #[serde(default)]
    duplicate: String,
    #[serde(default)]
    crash: Vec<String>,
    #[serde(default)]
    recover: Vec<String>,
    #[serde(default)]
    pause: Vec<String>,
    #[serde(default)]
    partition: Vec<String>,
    detector: String,
    #[serde(default)]
    holder: String,
    #[serde(default)]
    readers: String,
    /// The sites that start an election, if the algorithm is one.
    #[serde(default)]
    initiators: Vec<String>,
    pub seed: u64,
}

impl RunRequest {
    /// The election to run; `None` if the algorithm is not an election.
    pub fn election(&self) -> Result<Option<ElectionSpec>, RequestError> {
        if registry::find_election(&self.algorithm).is_none() {
            return Ok(None);
        }
        few_sites(self.sites)?;
        let mut spec = ElectionSpec::new(&self.algorithm, self.sites);
        spec.system.settings = settings(&self.settings)?;
        self.network_and_faults(&mut spec.system, self.sites)?;
        let at_first = spec.first_crash();
        for text in &self.initiators {
            spec.initiators.push(match text.contains('@') {
                true => parse_site_at(text, self.sites)?,
                false => (site(text, self.sites)?, at_first),
            });
        }
        Ok(Some(spec))
    }

    /// The run of a mutual exclusion algorithm.
    pub fn spec(&self) -> Result<Spec, RequestError> {
        known(&self.algorithm)?;
        few_sites(self.sites)?;
        if self.entries > MOST_ENTRIES {
            return Err(RequestError::Entries);
        }
        let mut spec = Spec::new(&self.algorithm, self.sites);
        spec.settings = settings(&self.settings)?;
        let processes = lockkeeper_lab::processes(&spec)?;
        spec.load = LoadSpec::parse(&self.load)?;
        spec.entries = self.entries;
        spec.warmup = Some(0);
        spec.cs = Some(delay(&self.cs)?);
        spec.readers = probability("the share of readers", &self.readers)?;
        if !self.holder.is_empty() {
            spec.holders = parse_holders(&self.holder, spec.sites)?;
        }
        self.network_and_faults(&mut spec, processes)?;
        Ok(spec)
    }

    fn network_and_faults(&self, spec: &mut Spec, processes: usize) -> Result<(), RequestError> {
        spec.network.delay = delay(&self.delay)?;
        spec.network.fifo = self.fifo;
        spec.network.loss = probability("the loss", &self.loss)?;
        spec.network.duplicate = probability("the duplication", &self.duplicate)?;
        spec.detector = DetectorSpec::parse(&self.detector)?;
        for text in &self.partition {
            spec.network.partitions.push(Partition::parse(text, processes)?);
        }
        spec.script = self.faults(processes)?;
        Ok(())
    }

    fn faults(&self, processes: usize) -> Result<Vec<Scripted>, RequestError> {
        let mut script = Vec::new();
        for text in &self.crash {
            let (site, at) = parse_site_at(text, processes)?;
            script.push(Scripted { at, action: Action::Crash(site) });
        }
        for text in &self.recover {
            let (site, at) = parse_site_at(text, processes)?;
            script.push(Scripted { at, action: Action::Recover(site) });
        }
        for text in &self.pause {
            let (site, at, to) = parse_site_during(text, processes)?;
            script.push(Scripted { at, action: Action::Pause(site) });
            if to != Time::NEVER {
                script.push(Scripted { at: to, action: Action::Resume(site) });
            }
        }
        script.sort_by_key(|scripted| scripted.at);
        Ok(script)
    }
}

/// A scenario to run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlayRequest {
    scenario: String,
}

impl PlayRequest {
    /// A scenario of the server's own.
    pub fn new(scenario: &str) -> Self {
        Self { scenario: scenario.into() }
    }

    /// The text of the scenario.
    pub fn text(&self) -> &str {
        &self.scenario
    }

    /// The parsed scenario.
    pub fn scenario(&self) -> Result<Scenario, RequestError> {
        // Delay matrices are read from files, and a page must not be able to read files of this machine.
        let names_a_file = |line: &str| {
            line.split_once(':').is_some_and(|(_, value)| value.trim_start().starts_with("matrix"))
        };
        if self.scenario.lines().any(names_a_file) {
            return Err(RequestError::Matrix);
        }
        let scenario = Scenario::parse("scenario", &self.scenario)?;
        few_sites(scenario.spec.sites)?;
        Ok(scenario)
    }
}

/// A question of the quiz.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionRequest {
    seed: u64,
    number: u64,
}

impl QuestionRequest {
    /// The question with its answer.
    pub fn exercise(&self) -> Result<Exercise, RequestError> {
        Ok(Exercise::new(self.seed, self.number)?)
    }
}

/// An answer to a question of the quiz.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerRequest {
    seed: u64,
    number: u64,
    /// The answer. Empty: the user gives up.
    answer: String,
}

impl AnswerRequest {
    /// The verdict on the answer.
    pub fn grade(&self) -> Result<Grade, RequestError> {
        let exercise = Exercise::new(self.seed, self.number)?;
        Ok(if self.answer.trim().is_empty() { exercise.solution() } else { exercise.grade(&self.answer)? })
    }
}

/// A check, as for `lockkeeper check`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRequest {
    algorithm: String,
    sites: usize,
    #[serde(default)]
    settings: Vec<String>,
    /// Number of requests of each site. `None`: without limit.
    requests: Option<u8>,
    /// Whether channels are FIFO. `None`: as the algorithm assumes.
    fifo: Option<bool>,
    #[serde(default)]
    crashes: u8,
    #[serde(default)]
    restarts: u8,
    #[serde(default)]
    losses: u8,
    #[serde(default)]
    duplicates: u8,
    #[serde(default)]
    forgets: u8,
    #[serde(default)]
    suspicions: u8,
    /// Elections: number of sites that may start one without having noticed a crash. `None`: 1.
    #[serde(default)]
    initiators: Option<u8>,
    /// Elections: whether the network may be partitioned.
    #[serde(default)]
    partition: bool,
    /// Elections: whether a timeout may expire before the reply.
    #[serde(default)]
    short_timeouts: bool,
}

impl CheckRequest {
    /// The system to check.
    pub fn spec(&self) -> Result<CheckSpec, RequestError> {
        if matches!(ModelKind::of(&self.algorithm), None | Some(ModelKind::Registers)) {
            return Err(RequestError::UnknownAlgorithm { algorithm: self.algorithm.clone() });
        }
        let mut faults = Faults::default();
        for (fault, times) in [
            (Fault::Crash, self.crashes),
            (Fault::Restart, self.restarts),
            (Fault::Loss, self.losses),
            (Fault::Duplicate, self.duplicates),
            (Fault::Forget, self.forgets),
            (Fault::Suspicion, self.suspicions),
        ] {
            if times > MOST_FAULTS {
                return Err(RequestError::Faults);
            }
            faults = faults.with(fault, times);
        }
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8));
        Ok(CheckSpec {
            requests: self.requests,
            fifo: self.fifo,
            faults,
            settings: settings(&self.settings)?,
            threads,
            initiators: self.initiators,
            partition: self.partition,
            short_timeouts: self.short_timeouts,
            ..CheckSpec::new(&self.algorithm, self.sites)
        })
    }
}

/// A comparison, as for `lockkeeper compare`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompareRequest {
    algorithms: Vec<String>,
    sites: Vec<usize>,
    loads: Vec<String>,
    seeds: u64,
    cs: String,
}

impl CompareRequest {
    /// The parameters of the comparison.
    pub fn sweep(&self) -> Result<Sweep, RequestError> {
        for algorithm in &self.algorithms {
            known(algorithm)?;
        }
        if self.sites.len() > MOST_SIZES || self.sites.iter().any(|&sites| sites > LARGEST_SIZE) {
            return Err(RequestError::Sizes);
        }
        if !(1..=10).contains(&self.seeds) {
            return Err(RequestError::Seeds);
        }
        let loads: Result<Vec<LoadSpec>, _> = self.loads.iter().map(|load| LoadSpec::parse(load)).collect();
        Ok(Sweep {
            algorithms: once(&self.algorithms),
            sites: once(&self.sites),
            loads: once(&loads?),
            seeds: self.seeds,
            cs: delay(&self.cs)?,
            settings: Vec::new(),
            readers: 0.5,
        })
    }
}

fn delay(text: &str) -> Result<Delay, RequestError> {
    let text = text.trim();
    if text.starts_with("matrix") { Err(RequestError::Matrix) } else { Ok(Delay::parse(text)?) }
}

fn probability(what: &'static str, text: &str) -> Result<f64, NetworkError> {
    if text.trim().is_empty() { Ok(0.0) } else { parse_probability(what, text.trim()) }
}

fn site(text: &str, sites: usize) -> Result<SiteId, RequestError> {
    parse_site(text, sites).ok_or_else(|| RequestError::UnknownSite { site: text.into(), sites })
}

fn few_sites(sites: usize) -> Result<(), RequestError> {
    match sites {
        1..=MOST_SITES => Ok(()),
        _ => Err(RequestError::Sites { sites }),
    }
}

fn known(algorithm: &str) -> Result<(), RequestError> {
    match registry::find(algorithm) {
        Some(_) => Ok(()),
        None => Err(RequestError::UnknownAlgorithm { algorithm: algorithm.into() }),
    }
}

fn settings(given: &[String]) -> Result<Vec<(String, String)>, RequestError> {
    let read = |pair: &String| match pair.split_once('=') {
        Some((name, value)) => Ok((name.trim().into(), value.trim().into())),
        None => Err(RequestError::Setting { setting: pair.clone() }),
    };
    given.iter().map(read).collect()
}

/// The reason why a request of a page is rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// There is no algorithm of this name.
    #[error("there is no algorithm '{algorithm}'{}", registry::PresentName(algorithm))]
    UnknownAlgorithm {
        /// The name.
        algorithm: String,
    },
    /// There is no such site.
    #[error("there is no site '{site}': sites are numbered from 1 to {sites}")]
    UnknownSite {
        /// The site as given.
        site: String,
        /// The number of sites.
        sites: usize,
    },
    /// A setting has no value.
    #[error("a setting is written name=value, not '{setting}'")]
    Setting {
        /// The setting.
        setting: String,
    },
    /// A run has no site, or too many.
    #[error("a run on this page has 1 to {MOST_SITES} sites, and {sites} were asked for")]
    Sites {
        /// The number of sites.
        sites: usize,
    },
    /// A run has too many entries.
    #[error("a run on this page has at most {MOST_ENTRIES} entries")]
    Entries,
    /// A check has too many faults.
    #[error("on this page, each kind of fault happens at most {MOST_FAULTS} times")]
    Faults,
    /// A comparison has too many or too large systems.
    #[error("a comparison on this page has at most {MOST_SIZES} sizes of at most {LARGEST_SIZE} sites")]
    Sizes,
    /// A comparison has no seed, or too many.
    #[error("a comparison on this page has 1 to 10 seeds")]
    Seeds,
    /// The delay is a matrix, which would be read from a file of the server.
    #[error("a delay matrix is read from a file, which only 'lockkeeper sim' does, not the page")]
    Matrix,
    /// A delay is invalid.
    #[error(transparent)]
    Delay(#[from] DelayError),
    /// The load is invalid.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The failure detector is invalid.
    #[error(transparent)]
    Detector(#[from] DetectorError),
    /// A holder is invalid.
    #[error(transparent)]
    Holder(#[from] HolderError),
    /// A probability or a partition is invalid.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The time of a fault or of an election is invalid.
    #[error(transparent)]
    SiteTime(#[from] SiteTimeError),
    /// The scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The answer to a question has another form.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// There is no protocol of this name.
    #[error("there is no protocol '{protocol}'")]
    UnknownProtocol {
        /// The name.
        protocol: String,
    },
    /// The protocol has too many configurations.
    #[error(transparent)]
    Protocol(#[from] TooManyConfigurations),
    /// A drawn history has too many events.
    #[error("a history on this page has at most {most} events")]
    Events {
        /// The limit.
        most: usize,
    },
    /// The history does not have an event.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A cut is invalid.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// The lab rejects the run, or it failed.
    #[error(transparent)]
    Run(#[from] lockkeeper_lab::Error),
}

/// The elements without duplicates, in their order.
fn once<T: PartialEq + Clone>(given: &[T]) -> Vec<T> {
    let mut once = Vec::new();
    for item in given {
        if !once.contains(item) {
            once.push(item.clone());
        }
    }
    once
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_cannot_make_the_server_read_a_file() {
        let text = "algorithm: lamport\nsites: 3\ndelay:  matrix:/etc/hostname\n0 S1 requests\n";
        let error = PlayRequest { scenario: text.into() }.scenario().unwrap_err();
        assert!(matches!(error, RequestError::Matrix), "{error}");
        assert!(matches!(delay(" matrix:/etc/hostname"), Err(RequestError::Matrix)));
    }

    #[test]
    fn large_systems_are_rejected_before_they_are_built() {
        let text = "algorithm: maekawa\nsites: 1000000\n0 S1 requests\n";
        let error = PlayRequest { scenario: text.into() }.scenario().unwrap_err();
        assert!(matches!(error, RequestError::Sites { sites: 1_000_000 }), "{error}");
    }
}
