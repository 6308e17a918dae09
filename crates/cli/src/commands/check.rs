//! `lockkeeper check`: explores every reachable state of a small system.

use super::check_cluster::ClusterFlags;
use super::check_many::{check_all, check_mutants};
use super::check_registers::{RegistersQuestion, check_registers};
use super::flag_table::{self, Job, Jobs};
use super::sim::{known, settings};
use crate::{exit, print_line};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lockkeeper_lab::check::{self, Answer, Fault, Faults, Question, Sofar, Verdict};
use lockkeeper_lab::property::Property;
use lockkeeper_lab::spec::parse_holders;
use lockkeeper_lab::{Error, Scenario, registers};
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
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
The report also lists sites that never enter, messages never delivered and rules that never fire.

Examples:
  lockkeeper check ricart-agrawala --sites 3 --requests 2
  lockkeeper check lamport --sites 2 --non-fifo --svg broken.svg --trace broken.scenario
  lockkeeper check centralized --sites 3 --forever
  lockkeeper check --all --sites 3 --requests 1
  lockkeeper check --mutants
  lockkeeper check bakery --sites 3 --safe-registers  # threads and registers instead of messages
  lockkeeper check --cluster --crashes 1              # whole members of a cluster, while their view changes
  lockkeeper check --cluster --sleeps 1 --flaw no-wait

A flag that does not apply to the kind of check is an error: bakery has no messages to lose, and --cluster no --sites.

Exit codes: 0 verified; 2 a property is violated; 3 a budget was reached first; 64 wrong usage.")]
pub struct Check {
    /// The algorithm, or a mutant of one; or one for registers: dijkstra, bakery, black-white-bakery.
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
    /// no-starvation, rising-fences, invariants, timestamp-order. For registers, only the first three.
    #[arg(long, value_name = "PROPERTY", value_parser = parse_property)]
    only: Option<Property>,
    /// A setting of the algorithm; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Use safe registers, which flicker: a read that overlaps a write may return any value.
    #[arg(long, alias = "flickering")]
    safe_registers: bool,
    /// Print one JSON object; with --all or --mutants, one per line.
    #[arg(long)]
    json: bool,
    /// Draw the counterexample.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the counterexample as a scenario, for 'lockkeeper replay' and 'lockkeeper sim --scenario'.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Stop after this number of states. [default: 200000000; for registers 10000000]
    #[arg(long, value_name = "N")]
    max_states: Option<u64>,
    /// Stop after this number of seconds.
    #[arg(long, value_name = "S")]
    max_seconds: Option<u64>,
    /// The number of threads of the search. The result does not depend on it.
    #[arg(long, value_name = "N", default_value_t = cores(), value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Explore every order of steps, even of steps that commute.
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
}

fn cores() -> u16 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(64) as u16)
}

/// The default budget of states.
const MOST_STATES: u64 = 200_000_000;

fn is_for_registers(algorithm: &str) -> bool {
    registers::ALL.iter().any(|about| about.slug == algorithm)
}

impl Jobs for Check {
    const FLAGS: &'static [flag_table::Row] = flag_table::CHECK;

    fn job(&self) -> Job {
        match &self.algorithm {
            _ if self.cluster.cluster => Job::Cluster,
            _ if self.all => Job::All,
            _ if self.mutants => Job::Mutants,
            Some(algorithm) if is_for_registers(algorithm) => Job::Registers,
            _ => Job::Algorithm,
        }
    }
}

impl Check {
    pub fn run(self) -> ExitCode {
        let budget = Budget::new(self.max_states.unwrap_or(MOST_STATES), self.max_seconds);
        if self.cluster.cluster {
            let algorithm = self.algorithm.as_deref().unwrap_or("naimi-trehel");
            return self.cluster.check(algorithm, (self.crashes, self.restarts), &budget, self.json);
        }
        let question = match self.question() {
            Ok(question) => question,
            Err(what) => return exit::fail(exit::USAGE, &what),
        };
        if self.all {
            return check_all(&question, &budget, self.json);
        }
        if self.mutants {
            return check_mutants(self.json);
        }
        if self.job() == Job::Registers {
            let limits = match self.limits() {
                Ok(limits) => limits,
                Err(what) => return exit::fail(exit::USAGE, &what),
            };
            let question = RegistersQuestion {
                algorithm: &question.algorithm,
                processes: self.sites,
                flickering: self.safe_registers,
                only: self.only,
                limits,
            };
            return check_registers(&question, self.json);
        }
        let watch = Stopwatch::start();
        let answer = match budget.spend(&question) {
            Ok(answer) => answer,
            Err(error) => return exit::fail(exit::USAGE, &error),
        };
        if let Err(error) = self.write(&answer) {
            return exit::fail(exit::IO, &error);
        }
        if self.json {
            print_line!("{}", json(&answer, watch.took()));
        } else {
            print(&answer, watch.took());
        }
        verdict(&answer)
    }

    fn question(&self) -> Result<Question, String> {
        let algorithm = self.algorithm.as_deref().unwrap_or_default();
        let elsewhere = is_for_registers(algorithm)
            || lockkeeper_lab::mutants::ALL.iter().any(|mutant| mutant.name == algorithm);
        if !algorithm.is_empty() && !elsewhere {
            known(algorithm)?;
        }
        let mut question = Question::new(algorithm, self.sites);
        question.requests = (!self.forever).then_some(self.requests);
        question.fifo = if self.non_fifo { Some(false) } else { self.fifo.then_some(true) };
        question.faults = Faults::default()
            .with(Fault::Crash, self.crashes)
            .with(Fault::Restart, self.restarts)
            .with(Fault::Loss, self.losses)
            .with(Fault::Duplicate, self.duplicates)
            .with(Fault::Forget, self.forgets)
            .with(Fault::Suspicion, self.suspicions);
        question.only = self.only;
        question.settings = settings(&self.set)?;
        question.threads = self.threads.into();
        question.full = self.full;
        if let Some(holders) = &self.holder {
            question.holders = parse_holders(holders, self.sites)?;
        }
        Ok(question)
    }

    /// The budget of a search for registers.
    fn limits(&self) -> Result<registers::Limits, String> {
        let mut limits = registers::Limits::default();
        if let Some(most) = self.max_states {
            limits.states = most.try_into().map_err(|_| format!("{most} states do not fit into memory"))?;
        }
        Ok(limits)
    }

    /// Writes the counterexample to the files that the flags name.
    fn write(&self, answer: &Answer) -> Result<(), Error> {
        let Some(found) = &answer.counterexample else {
            if self.svg.is_some() || self.trace.is_some() {
                eprintln!("no property is violated, so there is no counterexample to write");
            }
            return Ok(());
        };
        if let Some(path) = &self.trace {
            std::fs::write(path, &found.scenario).map_err(|error| named(error, path))?;
        }
        if let Some(path) = &self.svg {
            let scenario = Scenario::parse("counterexample", &found.scenario).map_err(Error::Usage)?;
            super::replay::draw(&scenario, path)?;
        }
        Ok(())
    }
}

fn named(error: std::io::Error, path: &Path) -> Error {
    Error::Trace(std::io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// The limits of a search, and its progress bar.
pub struct Budget {
    max_states: u64,
    until: Option<Instant>,
    bar: ProgressBar,
}

impl Budget {
    pub fn new(max_states: u64, max_seconds: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(
            ProgressStyle::with_template("{elapsed} {msg}").expect("the template is tested by every run"),
        );
        let until = max_seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        Self { max_states, until, bar }
    }

    /// Searches within the budget, and shows the progress on a terminal.
    pub fn spend(&self, question: &Question) -> Result<Answer, Error> {
        self.watch(&question.algorithm, |go_on| check::check(question, go_on))
    }

    /// Runs a search within the budget.
    pub fn watch<T>(&self, name: &str, search: impl FnOnce(&mut dyn FnMut(Sofar) -> bool) -> T) -> T {
        let started = Instant::now();
        let found = search(&mut |sofar: Sofar| {
            if started.elapsed() > Duration::from_millis(500) {
                self.bar.set_message(format!(
                    "{name}: {} states, {} deep, {} MiB",
                    grouped(sofar.distinct),
                    sofar.depth,
                    sofar.bytes >> 20
                ));
                self.bar.tick();
            }
            sofar.distinct < self.max_states && self.until.is_none_or(|until| Instant::now() < until)
        });
        self.bar.finish_and_clear();
        found
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

/// The answer as JSON, with the time that it took.
pub fn json(answer: &Answer, took: Took) -> String {
    let mut value = serde_json::to_value(answer).expect("an answer is plain data");
    let object = value.as_object_mut().expect("it is an object");
    object.insert("seconds".into(), seconds(took.wall).into());
    object.insert("cpu_seconds".into(), seconds(took.cpu).into());
    value.to_string()
}

/// The exit code for the result of a check.
fn verdict(answer: &Answer) -> ExitCode {
    ExitCode::from(match answer {
        answer if answer.is_violated() => exit::VIOLATED,
        answer if !answer.complete => exit::UNFINISHED,
        _ => 0,
    })
}

fn print(answer: &Answer, took: Took) {
    let asks = match answer.requests {
        Some(1) => "each asks once".into(),
        Some(requests) => format!("each asks {requests} times"),
        None => "each asks again and again".to_string(),
    };
    let order = if answer.fifo { "FIFO channels" } else { "channels that may reorder" };
    print_line!("{}, {} sites, {asks}, {order}", answer.algorithm, answer.sites);
    print_line!(
        "{} states, {} steps, {} deep, {:.1} s ({:.1} s of processor time), {} bytes per state{}\n",
        grouped(answer.distinct),
        grouped(answer.generated),
        answer.depth,
        took.wall.as_secs_f64(),
        took.cpu.as_secs_f64(),
        answer.bytes_per_state,
        answer
            .reduction
            .map(|stands_for| format!(", each for up to {stands_for} that differ in the order of steps"))
            .unwrap_or_default()
    );
    for (property, verdict) in &answer.properties {
        let verdict = match verdict {
            Verdict::Holds if answer.bounded => "holds, within the bounds",
            Verdict::Holds => "holds",
            Verdict::Violated => "VIOLATED",
            Verdict::Unknown if answer.counterexample.is_some() => "–",
            Verdict::Unknown => "not known",
        };
        print_line!("  {:<18} {verdict}", title(*property));
    }
    if let Some(found) = &answer.counterexample {
        return super::replay::print_counterexample(found);
    }
    if let Some(wrong) = &answer.wrong {
        print_line!("\n{wrong}. The budget was reached before a shortest run to that was found.");
        return;
    }
    print_line!("");
    match answer.max_bypass {
        Some(bypass) => print_line!("While one waited, at most {bypass} others entered."),
        None => print_line!("There is no bound on how many others enter while one waits."),
    }
    if let Some(most) = answer.max_messages_per_entry {
        print_line!("No run in which all were served took more than {most} messages per entry.");
    }
    if answer.never_fired.is_empty() {
        print_line!("Every site entered, every message was delivered, every rule fired.");
    } else {
        print_line!("It never happened that\n  {}", answer.never_fired.join("\n  "));
    }
    if answer.bounded {
        let limits = check::mutex::FOREVER;
        print_line!(
            "Only states with at most {} messages in a channel and clocks at most {} apart were explored.",
            limits.in_flight,
            limits.number
        );
    }
    if !answer.complete {
        print_line!("The budget was reached: what lies deeper than {} was not seen.", answer.depth);
    }
}

fn parse_property(text: &str) -> Result<Property, String> {
    let all = [
        Property::MutualExclusion,
        Property::NoDeadlock,
        Property::NoStarvation,
        Property::FenceMonotone,
        Property::Invariant,
        Property::TimestampOrder,
    ];
    let typed = |property: &Property| title(*property).replace(' ', "-");
    all.into_iter()
        .find(|property| typed(property) == text)
        .ok_or_else(|| format!("there is {}", all.iter().map(typed).collect::<Vec<_>>().join(", ")))
}

/// The display name of a property.
pub fn title(property: Property) -> &'static str {
    match property {
        Property::MutualExclusion => "mutual exclusion",
        Property::NoDeadlock => "no deadlock",
        Property::NoStarvation => "no starvation",
        Property::FenceMonotone => "rising fences",
        Property::Invariant => "invariants",
        Property::TimestampOrder => "timestamp order",
        Property::MessageBound => "message bound",
    }
}

/// A number with commas as thousands separators.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
