//! `lockkeeper sim`: simulates an algorithm and measures it.

use super::flag_table::{self, Job, Jobs};
use super::lab_error::LabError;
use super::sim_cluster::{Common, Flags};
use super::{election, progress, table};
use crate::exit::CliError;
use crate::file_error::FileError;
use crate::{exit, print_line};
use clap::Args;
use lockkeeper_core::mutex::Channels;
use lockkeeper_core::registry;
use lockkeeper_lab::election::ElectionSpec;
use lockkeeper_lab::property::Names;
use lockkeeper_lab::simulator::delay::Delay;
use lockkeeper_lab::simulator::network::{Link, Partition, parse_probability};
use lockkeeper_lab::simulator::spec::{
    Action, DetectorSpec, LoadSpec, Scripted, parse_holders, parse_site_at, parse_site_during,
};
use lockkeeper_lab::{Progress, Report, RunSpec, Scenario, Spec, Time, trace};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Simulate an algorithm in virtual time, measure it, and check its properties
///
/// Times are in T, the unit of message delays. The result depends on the flags and the seed alone.
#[derive(Args)]
#[command(after_help = "\
Examples:
  lockkeeper sim --algorithm ricart-agrawala --sites 9 --load high --entries 10000 --seed 7
  lockkeeper sim --algorithm lamport --sites 4 --non-fifo --delay exponential:1 --seeds 20
  lockkeeper sim --algorithm centralized --sites 3 --crash 2@5 --load burst --trace crash.svg
  lockkeeper sim --algorithm k-mutual-exclusion --sites 9 --set k=3 --holder 1,2,3
  lockkeeper sim --algorithm readers-writers --sites 9 --readers 0.8 --seeds 5
  lockkeeper sim --scenario lamport-two-requests --trace figure.svg
  lockkeeper sim --election bully --sites 7 --crash 7@10 --initiator 1 --recover 7@50
  lockkeeper sim --election ring-election --sites 7 --crash 7@10 --detector perfect --trace ring.svg
  lockkeeper sim --cluster --members 5 --algorithm naimi-trehel --faults all --seed 42 --seeds 100

Exit codes: 0 every property held; 2 one was violated; 64 wrong usage; 74 a trace could not be written.")]
pub struct Sim {
    /// The algorithm; 'lockkeeper algorithms' lists them.
    #[arg(long, short, required_unless_present_any = ["scenario", "election"])]
    algorithm: Option<String>,
    /// An election in place of a mutual exclusion algorithm: bully, ring-election, chang-roberts, hirschberg-sinclair,
    /// itai-rodeh or raft. At the start, the highest site is the leader.
    #[arg(long, conflicts_with_all = ["algorithm", "scenario"])]
    election: Option<String>,
    /// A site that notices the failure of the leader; without a time, at the first crash. Sites also start an
    /// election when their detector suspects the leader, and when they recover.
    #[arg(long, value_name = "SITE[@TIME]", requires = "election", conflicts_with_all = ["algorithm", "scenario"])]
    initiator: Vec<String>,
    /// The number of sites, from 1 to 1000000.
    #[arg(long, short = 'n', value_name = "N", required_unless_present_any = ["scenario", "cluster"])]
    sites: Option<usize>,
    /// The load: low, pairs, high, staggered, poisson:RATE (per site and T) or burst.
    #[arg(long, default_value = "high", value_parser = LoadSpec::parse)]
    load: LoadSpec,
    /// The number of measured entries.
    #[arg(long, default_value_t = 1000)]
    entries: u64,
    /// The number of entries before those; by default as many as the load needs to settle.
    #[arg(long)]
    warmup: Option<u64>,
    /// A setting of the algorithm, such as coordinator=1 or k=3.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// The delay of messages: constant:T, uniform:A..B, exponential:MEAN, lognormal:MEAN,SIGMA, matrix:FILE.
    #[arg(long, default_value = "constant:1", value_parser = Delay::parse, allow_hyphen_values = true)]
    delay: Delay,
    /// The time that a site stays inside, in the same forms.
    #[arg(long, default_value = "0.1", value_parser = Delay::parse, allow_hyphen_values = true)]
    cs: Delay,
    /// The time that a site needs to process a message.
    #[arg(long, default_value = "0", value_parser = Time::parse, allow_hyphen_values = true)]
    service: Time,
    /// The same for one site.
    #[arg(long, value_name = "SITE=T")]
    service_at: Vec<String>,
    /// Messages of one channel may overtake each other.
    #[arg(long)]
    non_fifo: bool,
    /// The probability that a message is lost.
    #[arg(long, default_value = "0", value_parser = |text: &str| parse_probability("the loss", text), allow_hyphen_values = true)]
    loss: f64,
    /// The probability that a message arrives twice.
    #[arg(long, default_value = "0", value_parser = |text: &str| parse_probability("the duplication", text), allow_hyphen_values = true)]
    duplicate: f64,
    /// A link with other parameters, such as '1>2=constant:5' or '1>2=exponential:1,loss:0.1'.
    #[arg(long, value_name = "FROM>TO=DELAY")]
    link: Vec<String>,
    /// A site crashes and loses its state.
    #[arg(long, value_name = "SITE@TIME")]
    crash: Vec<String>,
    /// A crashed site restarts with no state.
    #[arg(long, value_name = "SITE@TIME")]
    recover: Vec<String>,
    /// A site stops for a while and keeps its state.
    #[arg(long, value_name = "SITE@FROM..TO")]
    pause: Vec<String>,
    /// Two groups are disconnected from each other; with > in place of |, only from left to right.
    #[arg(long, value_name = "1,2|3@FROM..TO")]
    partition: Vec<String>,
    /// The failure detector: none, perfect, timeout:D or false:RATE.
    #[arg(long, default_value = "none", value_parser = DetectorSpec::parse)]
    detector: DetectorSpec,
    /// The sites inside at the start: one site; several for a semaphore, as in 1,2, or for readers, as in
    /// 1:shared,2:shared.
    #[arg(long, value_name = "SITE,…")]
    holder: Option<String>,
    /// The share of shared requests, if the algorithm supports readers.
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = |text: &str| parse_probability("the share of readers", text), allow_hyphen_values = true)]
    readers: f64,
    /// The seed of all randomness.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of runs, with successive seeds; more than one gives confidence intervals.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    seeds: u64,
    /// A scenario file, or the name of a figure from 'lockkeeper scenarios'.
    #[arg(long, value_name = "FILE", conflicts_with = "algorithm")]
    scenario: Option<String>,
    #[command(flatten)]
    cluster: Flags,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Write every event to a file: .jsonl, .svg, .shiviz, .perfetto.json or .mmd.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

impl Jobs for Sim {
    const FLAGS: &'static [flag_table::Row] = flag_table::SIM;

    fn job(&self) -> Job {
        match self {
            _ if self.cluster.cluster => Job::Cluster,
            Self { election: Some(_), .. } => Job::Election,
            Self { scenario: Some(_), .. } => Job::Scenario,
            _ => Job::Algorithm,
        }
    }
}

impl Sim {
    pub fn run(self) -> ExitCode {
        exit::code(self.report().map_err(CliError::from))
    }

    fn report(self) -> Result<ExitCode, LabError> {
        if self.cluster.cluster {
            let (algorithm, trace) = (self.algorithm.as_deref().unwrap_or_default(), self.trace.as_deref());
            let Self { seed, seeds, json, .. } = self;
            return self.cluster.report(&Common { algorithm, seed, seeds, json, trace });
        }
        let (title, spec) = match self.run_spec()? {
            (title, RunSpec::MutualExclusion(spec)) => (title, spec),
            (title, RunSpec::Election(spec)) => return self.elect(&title, &spec),
        };
        if self.trace.is_some() && self.seeds > 1 {
            return Err(LabError::TraceOfSeveralRuns);
        }
        self.warn(&spec);
        let started = Instant::now();
        let report = match &self.trace {
            Some(path) => self.traced(path, &title, &spec)?,
            None => {
                let total = (spec.warmup().saturating_add(spec.entries)).saturating_mul(self.seeds);
                progress::bar(total, |progress| {
                    lockkeeper_lab::simulate(&spec, self.seed, self.seeds, progress)
                })?
            }
        };
        if self.json {
            print_line!("{}", serde_json::to_string(&report).expect("a report is plain data"));
        } else {
            table::print(&report, started.elapsed());
        }
        Ok(verdict(&report))
    }

    fn traced(&self, path: &Path, title: &str, spec: &Spec) -> Result<Report, LabError> {
        let processes = lockkeeper_lab::processes(spec)?;
        let mut sink = open_trace(path, title, spec.sites, processes)?;
        Ok(lockkeeper_lab::trace_run(spec, self.seed, sink.as_mut(), &Progress::default())?)
    }

    fn elect(&self, title: &str, spec: &ElectionSpec) -> Result<ExitCode, LabError> {
        let report = match &self.trace {
            Some(_) if self.seeds > 1 => {
                return Err(LabError::TraceOfSeveralRuns);
            }
            Some(path) => {
                let mut sink = open_trace(path, title, spec.system.sites, spec.system.sites)?;
                lockkeeper_lab::election::trace(spec, self.seed, sink.as_mut())?
            }
            None => lockkeeper_lab::election::elect(spec, self.seed, self.seeds)?,
        };
        Ok(election::print(&report, self.json))
    }

    fn election_spec(&self, name: &str) -> Result<ElectionSpec, LabError> {
        let mut spec = ElectionSpec::new(name, self.sites.unwrap_or_default());
        spec.system.settings = settings(&self.set)?;
        let sites = spec.system.sites;
        self.network_and_faults(&mut spec.system, sites)?;
        let at_first = spec.first_crash();
        for text in &self.initiator {
            spec.initiators.push(match text.contains('@') {
                true => parse_site_at(text, sites).map_err(LabError::parameter)?,
                false => (Self::site(text, sites)?, at_first),
            });
        }
        Ok(spec)
    }

    /// The specification of the run, and its seed.
    pub fn spec_and_seed(&self) -> Result<(RunSpec, u64), LabError> {
        Ok((self.run_spec()?.1, self.seed))
    }

    /// The title and the specification of the run.
    fn run_spec(&self) -> Result<(String, RunSpec), LabError> {
        if let Some(name) = &self.scenario {
            let scenario = Scenario::open(name)?;
            let run = scenario.run_spec();
            return Ok((scenario.title, run));
        }
        if let Some(name) = &self.election {
            let spec = self.election_spec(name)?;
            let title = format!("{name}, {} sites, seed {}", spec.system.sites, self.seed);
            return Ok((title, RunSpec::Election(spec)));
        }
        let algorithm = self.algorithm.as_deref().unwrap_or_default();
        let spec = self.spec_from_flags(algorithm)?;
        let title = format!("{algorithm}, {} sites, {} load, seed {}", spec.sites, spec.load, self.seed);
        Ok((title, RunSpec::MutualExclusion(spec)))
    }

    fn spec_from_flags(&self, algorithm: &str) -> Result<Spec, LabError> {
        known(algorithm)?;
        let mut spec = Spec::new(algorithm, self.sites.unwrap_or_default());
        spec.settings = settings(&self.set)?;
        let processes = lockkeeper_lab::processes(&spec)?;
        spec.load = self.load;
        spec.entries = self.entries;
        spec.warmup = self.warmup;
        spec.cs = Some(self.cs.clone());
        if let Some(holders) = &self.holder {
            spec.holders = parse_holders(holders, spec.sites).map_err(LabError::parameter)?;
        }
        spec.readers = self.readers;
        self.network_and_faults(&mut spec, processes)?;
        Ok(spec)
    }

    fn network_and_faults(&self, spec: &mut Spec, processes: usize) -> Result<(), LabError> {
        spec.detector = self.detector;
        let network = &mut spec.network;
        network.delay = self.delay.clone();
        network.fifo = !self.non_fifo;
        network.loss = self.loss;
        network.duplicate = self.duplicate;
        network.service = self.service;
        for text in &self.service_at {
            let (site, time) =
                text.split_once('=').ok_or_else(|| LabError::ServiceAt { text: text.clone() })?;
            let site = Self::site(site, processes)?;
            network.service_at.push((site, Time::parse(time).map_err(LabError::parameter)?));
        }
        for text in &self.link {
            let link = Link::parse(text, processes).map_err(LabError::parameter)?;
            link.delay.fits(processes).map_err(LabError::parameter)?;
            network.links.push(link);
        }
        for text in &self.partition {
            network.partitions.push(Partition::parse(text, processes).map_err(LabError::parameter)?);
        }
        self.faults(&mut spec.script, processes)
    }

    fn faults(&self, script: &mut Vec<Scripted>, processes: usize) -> Result<(), LabError> {
        let mut add = |at, action| script.push(Scripted { at, action });
        for text in &self.crash {
            let (site, at) = parse_site_at(text, processes).map_err(LabError::parameter)?;
            add(at, Action::Crash(site));
        }
        for text in &self.recover {
            let (site, at) = parse_site_at(text, processes).map_err(LabError::parameter)?;
            add(at, Action::Recover(site));
        }
        for text in &self.pause {
            let (site, from, to) = parse_site_during(text, processes).map_err(LabError::parameter)?;
            add(from, Action::Pause(site));
            if to != Time::NEVER {
                add(to, Action::Resume(site));
            }
        }
        script.sort_by_key(|scripted| scripted.at);
        Ok(())
    }

    fn site(text: &str, processes: usize) -> Result<lockkeeper_core::SiteId, LabError> {
        lockkeeper_core::mutex::parse_site(text, processes)
            .ok_or_else(|| LabError::NoSite { text: text.into(), processes })
    }

    /// Warns if an assumption of the paper is violated, or a flag has no effect.
    fn warn(&self, spec: &Spec) {
        let about = registry::find(&spec.algorithm).map(|entry| entry.about);
        if !spec.network.fifo && about.is_some_and(|about| about.channels == Channels::Fifo) {
            eprintln!(
                "warning: {} assumes FIFO channels, and --non-fifo drops that: expect it to break",
                spec.algorithm
            );
        }
        if !spec.network.fifo && spec.network.delay.keeps_order() && !spec.by_hand {
            eprintln!(
                "warning: with the delay {} nothing overtakes; try --delay uniform:0.5..1.5 or exponential:1",
                spec.network.delay
            );
        }
    }
}

/// Creates a file for a trace, in the format of its extension.
fn open_trace(
    path: &Path,
    title: &str,
    sites: usize,
    processes: usize,
) -> Result<Box<dyn trace::Sink>, LabError> {
    let names = Names { sites };
    // Check the format before the file is created.
    trace::sink_for(path, title, names, processes, Box::new(std::io::sink()))?;
    let file = File::create(path).map_err(|error| LabError::Trace(FileError::trace(path)(error)))?;
    let out = Box::new(BufWriter::with_capacity(1 << 20, file));
    trace::sink_for(path, title, names, processes, out).map_err(LabError::from)
}

/// Parses settings, each as `NAME=VALUE`.
pub fn settings(given: &[String]) -> Result<Vec<(String, String)>, LabError> {
    let read = |setting: &String| match setting.split_once('=') {
        Some((name, value)) => Ok((name.into(), value.into())),
        None => Err(LabError::Setting { setting: setting.clone() }),
    };
    given.iter().map(read).collect()
}

/// A name that is not that of a mutual exclusion algorithm for sites.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlgorithmError {
    /// The algorithm is for threads.
    #[error(
        "'{algorithm}' is for threads that share memory, not for sites: lockkeeper threads --algorithm {algorithm}"
    )]
    ForThreads {
        /// The name.
        algorithm: String,
    },
    /// The algorithm is an election.
    #[error(
        "'{algorithm}' is an election, not a mutual exclusion algorithm: lockkeeper sim --election {algorithm}"
    )]
    Election {
        /// The name.
        algorithm: String,
    },
    /// The algorithm has another name now.
    #[error("there is no algorithm '{algorithm}'{}", registry::PresentName(algorithm))]
    Renamed {
        /// The former name.
        algorithm: String,
    },
    /// There is no such algorithm.
    #[error("there is no algorithm '{algorithm}'{} ('lockkeeper algorithms' lists them)", hint(*.near))]
    Unknown {
        /// The name.
        algorithm: String,
        /// The name of an algorithm that is similar to it.
        near: Option<&'static str>,
    },
}

fn hint(near: Option<&str>) -> String {
    near.map(|near| format!(": did you mean '{near}'?")).unwrap_or_default()
}

/// Rejects an unknown algorithm, and suggests the nearest name.
pub fn known(algorithm: &str) -> Result<(), AlgorithmError> {
    if registry::find(algorithm).is_some() {
        return Ok(());
    }
    if lockkeeper_shared_memory::ALL.iter().any(|about| about.slug == algorithm) {
        return Err(AlgorithmError::ForThreads { algorithm: algorithm.into() });
    }
    if registry::find_election(algorithm).is_some() {
        return Err(AlgorithmError::Election { algorithm: algorithm.into() });
    }
    if registry::is_former_name(algorithm) {
        return Err(AlgorithmError::Renamed { algorithm: algorithm.into() });
    }
    let near = registry::ALL
        .iter()
        .map(|entry| entry.about.slug)
        .max_by(|a, b| strsim::jaro_winkler(a, algorithm).total_cmp(&strsim::jaro_winkler(b, algorithm)))
        .filter(|near| strsim::jaro_winkler(near, algorithm) > 0.7);
    Err(AlgorithmError::Unknown { algorithm: algorithm.into(), near })
}

/// Prints the violations and the commands that reproduce them.
fn verdict(report: &Report) -> ExitCode {
    const MOST_SEEDS: usize = 5;
    let mut shown = Vec::new();
    for found in &report.violations {
        if shown.last() != Some(&found.seed) {
            if shown.len() == MOST_SEEDS {
                break;
            }
            shown.push(found.seed);
            eprintln!("seed {}; see it again with: {}", found.seed, found.reproduce);
        }
        eprintln!("  {}", found.violation);
    }
    let mut seeds: Vec<u64> = report.violations.iter().map(|found| found.seed).collect();
    seeds.dedup();
    if seeds.len() > shown.len() {
        eprintln!("… and {} more seeds", seeds.len() - shown.len());
    }
    if report.held() { ExitCode::SUCCESS } else { ExitCode::from(exit::VIOLATED) }
}

#[cfg(test)]
mod tests {
    use super::{AlgorithmError, known};

    #[test]
    fn names_of_other_algorithms_are_rejected_with_the_reason() {
        assert_eq!(known("maekawa"), Ok(()));
        let name = String::from;
        assert_eq!(known("bakery"), Err(AlgorithmError::ForThreads { algorithm: name("bakery") }));
        assert_eq!(known("bully"), Err(AlgorithmError::Election { algorithm: name("bully") }));
        assert_eq!(
            known("maekava"),
            Err(AlgorithmError::Unknown { algorithm: name("maekava"), near: Some("maekawa") })
        );
        let unknown = known("xyz").unwrap_err();
        assert_eq!(unknown, AlgorithmError::Unknown { algorithm: name("xyz"), near: None });
        assert_eq!(unknown.to_string(), "there is no algorithm 'xyz' ('lockkeeper algorithms' lists them)");
        assert_eq!(
            known("maekawa-published").unwrap_err().to_string(),
            "there is no algorithm 'maekawa-published': it is called 'maekawa-basic' now"
        );
    }
}
