//! `lockkeeper check`: explores every reachable state of a small system.

use super::check_cluster::{ClusterFlags, MemberFaults};
use super::check_many::{check_all, check_mutants};
use super::flag_table::{self, Job, Jobs};
use super::lab_error::LabError;
use super::sim::{known, settings};
use crate::exit::CliError;
use crate::file_error::FileError;
use crate::{exit, print_line};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lockkeeper_lab::checker::counterexample::Counterexample;
use lockkeeper_lab::checker::registers::RegisterKind;
pub use lockkeeper_lab::checker::report::grouped;
use lockkeeper_lab::checker::tla;
use lockkeeper_lab::checker::{
    self, CheckReport, CheckSpec, Fault, Faults, ModelKind, SearchLimits, SearchProgress, Verdict,
};
use lockkeeper_lab::property::Property;
use lockkeeper_lab::simulator::spec::parse_holders;
use lockkeeper_lab::{Error, Scenario};
use rayon::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Explore every reachable state of a small system, and show the shortest run to a violation
///
/// Runs the same code as the simulator, with every order of messages. Each site requests the given number of times,
/// or forever; with --forever, a fair cycle of states in which a site waits is starvation.
#[derive(Args)]
#[command(after_help = "\
Properties:
  mutual exclusion   no site enters while its mode conflicts with a site inside
  no deadlock        no state without a next step in which a site waits
  no starvation      no site waits forever; with --requests, all runs end; with --forever, there is no fair cycle.
                     A deadlock violates it as well
  rising fences      conflicting entries have rising fences
  invariants         those of the algorithm: one token, one vote at a time
  timestamp order    entries in timestamp order, where the paper promises it
  message bound      no run takes more messages per entry than the paper's bound
Elections:
  highest leads      a site that becomes leader is the highest site that is up
  agreement          when the system is at rest, all sites that are up know the same leader, and it is up
  termination        the system comes to rest
Shared registers: the first three, and
  first come, first served   a process that completes its doorway before another begins its own enters first
The report also lists sites that never enter, messages never delivered and rules that never fire.

Examples:
  lockkeeper check ricart-agrawala --sites 3 --requests 2
  lockkeeper check lamport --sites 2 --non-fifo --svg broken.svg --trace broken.scenario
  lockkeeper check centralized --sites 3 --forever
  lockkeeper check ricart-agrawala --sites 2 --tla Ra.tla     # for TLC
  lockkeeper check lamport --sites 4 --symmetry
  lockkeeper check --all --sites 3 --requests 1
  lockkeeper check --mutants
  lockkeeper check bully --sites 3 --crashes 1        # elections
  lockkeeper check bully --sites 3 --partition
  lockkeeper check bakery --sites 3 --safe-registers  # threads and registers instead of messages
  lockkeeper check peterson --sites 2 --regular-registers
  lockkeeper check --cluster --crashes 1              # whole members of a cluster, while their view changes
  lockkeeper check --cluster --sleeps 1 --bug no-wait

A flag that does not apply to the kind of check is an error: bakery has no messages to lose, and --cluster no --sites.

Exit codes: 0 verified; 2 a property is violated; 3 a budget was reached first; 64 wrong usage.")]
pub struct Check {
    /// The algorithm, the election, or a mutant of one; or one for registers: dijkstra,
    /// eisenberg-mcguire, bakery, peterson, filter, szymanski, ticket, mcs, clh, black-white-bakery.
    #[arg(required_unless_present_any = ["all", "mutants", "cluster"], conflicts_with_all = ["all", "mutants"])]
    algorithm: Option<String>,
    /// Check every algorithm, on the channels that it assumes.
    #[arg(long, conflicts_with = "mutants")]
    all: bool,
    /// Check all mutants; each must be caught.
    #[arg(long)]
    mutants: bool,
    /// The number of sites, or of processes that share registers.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 3)]
    sites: usize,
    /// The number of requests of each site.
    #[arg(long, short, value_name = "N", default_value_t = 1, conflicts_with = "forever")]
    requests: u8,
    /// Sites request again and again, without end.
    #[arg(long)]
    forever: bool,
    /// Messages of one channel may overtake each other. By default, channels are as the algorithm assumes.
    #[arg(long)]
    non_fifo: bool,
    /// Messages of one channel keep their order, even if the algorithm does not need it.
    #[arg(long, conflicts_with = "non_fifo")]
    fifo: bool,
    /// The maximum number of crashes.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    crashes: u8,
    /// The maximum number of restarts of crashed sites, with no state.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    restarts: u8,
    /// The maximum number of lost messages.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    losses: u8,
    /// The maximum number of messages that arrive twice.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    duplicates: u8,
    /// The maximum number of times that an idle site's state is discarded and created anew.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    forgets: u8,
    /// The maximum number of wrong suspicions, of a site that has not crashed.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    suspicions: u8,
    /// The sites inside at the start: 1, or 1:shared,2:shared.
    #[arg(long, value_name = "SITES")]
    holder: Option<String>,
    /// Check one property only, and continue past violations of the others: mutual-exclusion, no-deadlock,
    /// no-starvation, rising-fences, invariants, timestamp-order, message-bound. For registers: the first three, and
    /// first-come-first-served. For elections: highest-leads, agreement, termination.
    #[arg(long, value_name = "PROPERTY", value_parser = parse_property)]
    only: Option<Property>,
    /// A setting of the algorithm; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// The number of sites that may start an election without having noticed a crash. [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=9))]
    initiators: Option<u8>,
    /// The network may be partitioned into two groups, once and for good.
    #[arg(long)]
    partition: bool,
    /// The timeouts of an election may be shorter than the time until the reply.
    #[arg(long)]
    short_timeouts: bool,
    /// Use safe registers, which flicker: a read that overlaps a write may return any value.
    #[arg(long, alias = "flickering")]
    safe_registers: bool,
    /// Use regular registers: a read that overlaps a write returns the value before it or the one being written.
    #[arg(long, conflicts_with = "safe_registers")]
    regular_registers: bool,
    /// The highest ticket of the bakery. [default: 4]
    #[arg(long, value_name = "N")]
    tickets: Option<u8>,
    /// Print one JSON object; with --all or --mutants, one per line.
    #[arg(long)]
    json: bool,
    /// Draw the counterexample.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the counterexample as a scenario, for 'lockkeeper replay' and 'lockkeeper sim --scenario'.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Also write all reachable states as a TLA+ module that TLC can check, and a configuration beside it. The module
    /// has every interleaving, as with --full.
    #[arg(long, value_name = "FILE.tla")]
    tla: Option<PathBuf>,
    /// Stop after this number of states.
    #[arg(long, value_name = "N", default_value_t = 200_000_000)]
    max_states: u64,
    /// Stop after runs of this number of steps.
    #[arg(long, value_name = "N")]
    max_depth: Option<u64>,
    /// Stop when the states take this amount of memory, in MiB.
    #[arg(long, value_name = "MIB")]
    max_memory: Option<usize>,
    /// Stop after this number of seconds.
    #[arg(long, value_name = "S")]
    max_seconds: Option<u64>,
    /// The number of threads of the search. The result does not depend on it.
    #[arg(long, value_name = "N", default_value_t = cores(), value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Explore every order of steps, even of steps that commute.
    #[arg(long)]
    full: bool,
    /// Explore one of the states that differ only in the names of the sites and in the distances of timestamps: for
    /// lamport, lamport-suppressed and bakery-messages, with far fewer states.
    #[arg(long, conflicts_with = "full")]
    symmetry: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// The kind of registers that the two flags choose.
pub fn register_kind(safe: bool, regular: bool) -> RegisterKind {
    match (safe, regular) {
        (true, _) => RegisterKind::Safe,
        (_, true) => RegisterKind::Regular,
        _ => RegisterKind::Atomic,
    }
}

fn cores() -> u16 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(64) as u16)
}

impl Jobs for Check {
    const FLAGS: &'static [flag_table::Row] = flag_table::CHECK;

    fn job(&self) -> Job {
        match &self.algorithm {
            _ if self.cluster.cluster => Job::Cluster,
            _ if self.all => Job::All,
            _ if self.mutants => Job::Mutants,
            Some(algorithm) => match ModelKind::of(algorithm) {
                Some(ModelKind::Registers) => Job::Registers,
                Some(ModelKind::Election) => Job::ElectionModel,
                Some(ModelKind::MutualExclusion) | None => Job::Algorithm,
            },
            None => Job::Algorithm,
        }
    }

    fn subject(&self) -> String {
        match (&self.algorithm, self.job()) {
            (Some(algorithm), Job::Algorithm | Job::Registers | Job::ElectionModel) => algorithm.clone(),
            (_, job) => job.to_string(),
        }
    }
}

impl Check {
    pub fn run(self) -> ExitCode {
        exit::code(self.check())
    }

    fn check(self) -> Result<ExitCode, CliError> {
        let budget = Budget::new(self.limits(), self.max_seconds);
        if self.cluster.cluster {
            let algorithm = self.algorithm.as_deref().unwrap_or("naimi-trehel");
            let faults = MemberFaults { crashes: self.crashes, restarts: self.restarts };
            return self.cluster.check(algorithm, faults, &budget, self.json);
        }
        let spec = self.spec()?;
        if self.all {
            return check_all(&spec, &budget, self.json);
        }
        if self.mutants {
            return check_mutants(&budget, self.json);
        }
        if let Some(path) = &self.tla {
            write_module(&spec, path)?;
        }
        let watch = Stopwatch::start();
        let report = budget.spend(&spec).map_err(CliError::usage)?;
        self.write(&report).map_err(CliError::io)?;
        if self.json {
            print_line!("{}", json(&report, watch.took()));
        } else {
            print(&report, watch.took());
        }
        Ok(verdict(&report))
    }

    fn spec(&self) -> Result<CheckSpec, LabError> {
        let algorithm = self.algorithm.as_deref().unwrap_or_default();
        if !algorithm.is_empty() && ModelKind::of(algorithm).is_none() {
            known(algorithm)?;
        }
        let requests = (self.job() != Job::Registers && !self.forever).then_some(self.requests);
        let faults = Faults::default()
            .with(Fault::Crash, self.crashes)
            .with(Fault::Restart, self.restarts)
            .with(Fault::Loss, self.losses)
            .with(Fault::Duplicate, self.duplicates)
            .with(Fault::Forget, self.forgets)
            .with(Fault::Suspicion, self.suspicions);
        let holders = self.holder.as_ref().map(|holders| parse_holders(holders, self.sites)).transpose();
        let holders = holders.map_err(LabError::parameter)?;
        Ok(CheckSpec {
            requests,
            fifo: if self.non_fifo { Some(false) } else { self.fifo.then_some(true) },
            faults,
            only: self.only,
            settings: settings(&self.set)?,
            threads: self.threads.into(),
            full: self.full,
            symmetry: self.symmetry,
            holders: holders.unwrap_or_default(),
            initiators: self.initiators,
            partition: self.partition,
            short_timeouts: self.short_timeouts,
            registers: register_kind(self.safe_registers, self.regular_registers),
            tickets: self.tickets,
            limits: self.limits(),
            ..CheckSpec::new(algorithm, self.sites)
        })
    }

    fn limits(&self) -> SearchLimits {
        SearchLimits {
            states: self.max_states,
            depth: self.max_depth.unwrap_or(u64::MAX),
            bytes: self.max_memory.map_or(usize::MAX, |mib| mib.saturating_mul(1 << 20)),
        }
    }

    /// Writes the counterexample to the files that the flags name.
    fn write(&self, report: &CheckReport) -> Result<(), LabError> {
        let Some(found) = &report.counterexample else {
            if self.svg.is_some() || self.trace.is_some() {
                eprintln!("no property is violated, so there is no counterexample to write");
            }
            return Ok(());
        };
        // Only message-passing algorithms and elections have these flags; their counterexamples are scenarios.
        let Some(text) = &found.scenario else { return Ok(()) };
        if let Some(path) = &self.trace {
            std::fs::write(path, text).map_err(|error| LabError::Trace(FileError::trace(path)(error)))?;
        }
        if let Some(path) = &self.svg {
            let scenario = Scenario::parse("counterexample", text)?;
            super::replay::draw(&scenario, path)?;
        }
        Ok(())
    }
}

/// Writes the reachable states as a TLA+ module, and the configuration for TLC beside it.
fn write_module(spec: &CheckSpec, path: &Path) -> Result<(), CliError> {
    let name = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let module = tla::module(spec, name).map_err(CliError::usage)?;
    let config = path.with_extension("cfg");
    for (file, text) in [(path, &module.module), (&config, &module.config)] {
        std::fs::write(file, text).map_err(FileError::write(file)).map_err(CliError::io)?;
    }
    eprintln!(
        "written: {} with {} states and {} steps, and {}",
        path.display(),
        module.states,
        module.steps,
        config.display()
    );
    Ok(())
}

/// The limits of a search, and its progress bar.
pub struct Budget {
    limits: SearchLimits,
    until: Option<Instant>,
    bar: ProgressBar,
}

impl Budget {
    pub fn new(limits: SearchLimits, max_seconds: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(
            ProgressStyle::with_template("{elapsed} {msg}").expect("the template is tested by every run"),
        );
        let until = max_seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        Self { limits, until, bar }
    }

    /// Searches within the budget, and shows the progress on a terminal.
    pub fn spend(&self, spec: &CheckSpec) -> Result<CheckReport, Error> {
        self.watch(&spec.algorithm, |go_on| checker::check(spec, go_on))
    }

    /// Runs a search within the budget.
    pub fn watch<T>(
        &self,
        name: &str,
        search: impl FnOnce(&mut dyn FnMut(SearchProgress) -> bool) -> T,
    ) -> T {
        self.show(format!("{name}: the search begins"));
        let found = search(&mut |progress: SearchProgress| {
            self.bar.set_message(format!(
                "{name}: {} states, {} deep, {} MiB",
                grouped(progress.distinct),
                progress.depth,
                progress.bytes >> 20
            ));
            let SearchLimits { states, depth, bytes } = self.limits;
            let within = progress.distinct < states && progress.depth <= depth && progress.bytes < bytes;
            within && !self.is_over()
        });
        self.bar.finish_and_clear();
        found
    }

    /// Shows a message and the elapsed time on a terminal, four times a second.
    fn show(&self, message: String) {
        self.bar.set_message(message);
        self.bar.enable_steady_tick(Duration::from_millis(250));
    }

    /// Whether the time is over.
    pub fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Runs a function on each item, on all cores, and shows how many items are done.
    pub fn each<T: Sync, R: Send>(&self, name: &str, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        self.show(format!("{name}: 0 of {} done", items.len()));
        let done = AtomicUsize::new(0);
        let one = |item: &T| {
            let result = work(item);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            self.bar.set_message(format!("{name}: {done} of {} done", items.len()));
            result
        };
        let results = items.par_iter().map(one).collect();
        self.bar.finish_and_clear();
        results
    }
}

/// Measures the time that a search takes.
pub struct Stopwatch {
    started: Instant,
    cpu_before: Duration,
}

/// The time that a search took.
#[derive(Clone, Copy, Default)]
pub struct Took {
    pub wall: Duration,
    /// The processor time of all threads, which counts if the machine has other load.
    pub cpu: Duration,
}

impl Stopwatch {
    pub fn start() -> Self {
        Self { started: Instant::now(), cpu_before: cpu_time() }
    }

    pub fn took(&self) -> Took {
        Took { wall: self.started.elapsed(), cpu: cpu_time().saturating_sub(self.cpu_before) }
    }
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}

/// Seconds for JSON, rounded to milliseconds.
pub fn seconds(took: Duration) -> f64 {
    (took.as_secs_f64() * 1000.0).round() / 1000.0
}

/// The report as JSON, with the time that it took.
pub fn json(report: &CheckReport, took: Took) -> String {
    let mut value = serde_json::to_value(report).expect("a report is plain data");
    let object = value.as_object_mut().expect("it is an object");
    object.insert("seconds".into(), seconds(took.wall).into());
    object.insert("cpu_seconds".into(), seconds(took.cpu).into());
    value.to_string()
}

/// The exit code for the result of a check.
fn verdict(report: &CheckReport) -> ExitCode {
    ExitCode::from(match report {
        report if report.is_violated() => exit::VIOLATED,
        report if !report.complete => exit::UNFINISHED,
        _ => 0,
    })
}

fn print(report: &CheckReport, took: Took) {
    print_line!("{}, {}", report.algorithm, report.system);
    print_line!(
        "{} states, {} steps, {} deep, {:.1} s ({:.1} s of processor time), {} bytes per state{}\n",
        grouped(report.distinct),
        grouped(report.generated),
        report.depth,
        took.wall.as_secs_f64(),
        took.cpu.as_secs_f64(),
        report.bytes_per_state,
        report
            .reduction
            .map(|stands_for| format!(", each for up to {stands_for} that differ in the order of steps"))
            .unwrap_or_default()
    );
    if report.symmetry {
        print_line!("States that differ in the names of sites or the distances of timestamps count as one.");
    }
    print_verdicts(report);
    let found: Vec<&Counterexample> =
        report.counterexample.iter().chain(&report.more_counterexamples).collect();
    for found in &found {
        super::replay::print_counterexample(found);
    }
    if report.counterexample.is_none() && report.wrong.is_none() {
        print_coverage(report);
    }
    if let (None, Some(wrong)) = (&report.counterexample, &report.wrong) {
        print_line!("\n{wrong}. The budget was reached before a shortest run to that was found.");
    } else if !report.complete {
        print_line!("\nThe budget was reached: what lies deeper than {} was not seen.", report.depth);
    }
}

fn print_verdicts(report: &CheckReport) {
    let names = report.properties.keys().map(|property| property.name().len());
    let width = names.max().unwrap_or_default().max(18);
    // Where the search stops at a violation, the other properties were not checked.
    let stopped = report.counterexample.is_some() && report.more_counterexamples.is_empty();
    for (property, verdict) in &report.properties {
        let verdict = match verdict {
            Verdict::Holds if report.bounded => "holds, within the bounds",
            Verdict::Holds => "holds",
            Verdict::Violated if report.not_guaranteed.contains(property) => {
                "does not hold, and is not promised"
            }
            Verdict::Violated => "VIOLATED",
            Verdict::Unknown if report.complete && stopped => "–",
            Verdict::Unknown => "not known",
        };
        print_line!("  {:<width$} {verdict}", property.name());
    }
}

fn print_coverage(report: &CheckReport) {
    print_line!("");
    if report.model == ModelKind::MutualExclusion {
        match report.max_bypass {
            Some(bypass) => print_line!("While one waited, at most {bypass} others entered."),
            None => print_line!("There is no bound on how many others enter while one waits."),
        }
        if let Some(most) = report.max_messages_per_entry {
            print_line!("No run in which all were served took more than {most} messages per entry.");
        }
        if report.never_fired.is_empty() {
            print_line!("Every site entered, every message was delivered, every rule fired.");
        }
    }
    if !report.never_fired.is_empty() {
        print_line!("It never happened that\n  {}", report.never_fired.join("\n  "));
    }
    match report.model {
        ModelKind::MutualExclusion if report.bounded => {
            let limits = checker::mutual_exclusion::mutex::FOREVER;
            print_line!(
                "Only states with at most {} messages in a channel and clocks at most {} apart were explored.",
                limits.in_flight,
                limits.number
            );
        }
        ModelKind::Registers if report.bounded => {
            print_line!("{} steps to a higher ticket were not followed.", grouped(report.cut));
        }
        _ => {}
    }
}

/// A name that no property has.
#[derive(Debug, thiserror::Error)]
#[error("the properties are {}", known.join(", "))]
struct UnknownProperty {
    /// The names of all properties.
    known: Vec<String>,
}

fn parse_property(text: &str) -> Result<Property, UnknownProperty> {
    let kinds = [ModelKind::MutualExclusion, ModelKind::Registers, ModelKind::Election];
    let mut all: Vec<Property> = kinds.iter().flat_map(|kind| kind.properties()).copied().collect();
    all.sort();
    all.dedup();
    let found = all.iter().find(|property| property.slug() == text).copied();
    found.ok_or_else(|| UnknownProperty { known: all.iter().map(|property| property.slug()).collect() })
}
