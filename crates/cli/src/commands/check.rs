//! `lockkeeper check`: every reachable state of a small system.

use super::applies::{self, Job, Jobs};
use super::check_cluster::ClusterFlags;
use super::check_many::{check_all, check_mutants};
use super::check_registers::{RegistersQuestion, check_registers};
use super::sim::{known, settings};
use crate::{exit, say};
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

/// Explore every reachable state of a small system, and show the shortest run to whatever is wrong
///
/// The same code as in the simulator, every order of messages. Sites ask so many times each, or for ever; then a
/// run that goes round for ever, fairly, while somebody waits, is starvation.
#[derive(Args)]
#[command(after_help = "\
What must hold:
  mutual exclusion   nobody enters while that is not allowed
  no deadlock        it does not happen that nothing can happen and somebody waits
  no starvation      nobody waits for ever; with --requests, all runs come to an end; with --forever, no fair circle.
                     A deadlock violates it as well
  rising fences      what conflicts has rising fences
  invariants         the algorithm's own: one token, one vote at a time
  timestamp order    where the paper promises it
  message bound      no run takes more messages per entry than the paper says
and what must happen, or the above would say nothing: every site enters, every message is delivered, every rule fires.

Examples:
  lockkeeper check ricart-agrawala --sites 3 --requests 2
  lockkeeper check lamport --sites 2 --non-fifo --svg broken.svg --trace broken.scenario
  lockkeeper check centralized --sites 3 --forever
  lockkeeper check --all --sites 3 --requests 1
  lockkeeper check --mutants
  lockkeeper check bakery --sites 3 --flickering      # threads and registers instead of messages
  lockkeeper check --cluster --crashes 1              # whole members of a cluster, while their view changes
  lockkeeper check --cluster --sleeps 1 --flaw no-wait

A flag that does not apply to the kind of check is refused: bakery has no messages to lose, and --cluster no --sites.

Exit codes: 0 verified; 2 something is wrong; 3 a budget was reached before everything was seen; 64 wrong usage.")]
pub struct Check {
    /// The algorithm, or a wrong-on-purpose variant; or one for registers: dijkstra, bakery, black-white-bakery.
    #[arg(required_unless_present_any = ["all", "mutants", "cluster"], conflicts_with_all = ["all", "mutants"])]
    algorithm: Option<String>,
    /// Checks every algorithm, on the channels that it assumes.
    #[arg(long, conflicts_with = "mutants")]
    all: bool,
    /// Checks everything that is wrong on purpose; each must be caught.
    #[arg(long)]
    mutants: bool,
    /// How many sites, or processes that share registers.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 3)]
    sites: usize,
    /// How often each site asks.
    #[arg(long, short, value_name = "N", default_value_t = 1, conflicts_with = "forever")]
    requests: u8,
    /// Sites ask again and again, without end.
    #[arg(long)]
    forever: bool,
    /// Messages of one channel may overtake each other. Without it, channels are as the algorithm assumes.
    #[arg(long)]
    non_fifo: bool,
    /// Messages of one channel keep their order, even if the algorithm does not need it.
    #[arg(long, conflicts_with = "non_fifo")]
    fifo: bool,
    /// At most so many sites crash.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    crashes: u8,
    /// At most so many crashed sites start again, from scratch.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    restarts: u8,
    /// At most so many messages are lost.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    losses: u8,
    /// At most so many messages arrive twice.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    duplicates: u8,
    /// At most so often an idle site's state is thrown away and made anew.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    forgets: u8,
    /// At most so often a site is suspected that has not crashed.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    suspicions: u8,
    /// Who is inside at the start: 1, or 1:shared,2:shared.
    #[arg(long, value_name = "SITES")]
    holder: Option<String>,
    /// Asks about one property only, and goes on where another does not hold: mutual-exclusion, no-deadlock,
    /// no-starvation, rising-fences, invariants, timestamp-order. For registers the first three.
    #[arg(long, value_name = "PROPERTY", value_parser = parse_property)]
    only: Option<Property>,
    /// A setting of the algorithm; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Registers flicker: a read that overlaps a write returns anything.
    #[arg(long)]
    flickering: bool,
    /// Prints one JSON object; with --all or --mutants one for each line.
    #[arg(long)]
    json: bool,
    /// Draws the counterexample.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Writes the counterexample as a scenario, for 'lockkeeper replay' and 'lockkeeper sim --scenario'.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Stops after so many states. [default: 200000000; for registers 10000000]
    #[arg(long, value_name = "N")]
    max_states: Option<u64>,
    /// Stops after so many seconds.
    #[arg(long, value_name = "S")]
    max_seconds: Option<u64>,
    /// How many threads search. What is found does not depend on it.
    #[arg(long, value_name = "N", default_value_t = cores(), value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Tries every order of steps, even of those that commute.
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
}

fn cores() -> u16 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(64) as u16)
}

/// The budget of states where none is given.
const MOST_STATES: u64 = 200_000_000;

fn is_for_registers(algorithm: &str) -> bool {
    registers::ALL.iter().any(|about| about.slug == algorithm)
}

impl Jobs for Check {
    const FLAGS: &'static [applies::Row] = applies::CHECK;

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
            Err(what) => return exit::complain(exit::USAGE, &what),
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
                Err(what) => return exit::complain(exit::USAGE, &what),
            };
            let question = RegistersQuestion {
                algorithm: &question.algorithm,
                processes: self.sites,
                flickering: self.flickering,
                only: self.only,
                limits,
            };
            return check_registers(&question, self.json);
        }
        let watch = Stopwatch::start();
        let answer = match budget.spend(&question) {
            Ok(answer) => answer,
            Err(error) => return exit::complain(exit::USAGE, &error),
        };
        if let Err(error) = self.write(&answer) {
            return exit::complain(exit::IO, &error);
        }
        if self.json {
            say!("{}", json(&answer, watch.took()));
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

    /// The budget of a search in registers.
    fn limits(&self) -> Result<registers::Limits, String> {
        let mut limits = registers::Limits::default();
        if let Some(most) = self.max_states {
            limits.states = most.try_into().map_err(|_| format!("{most} states do not fit into memory"))?;
        }
        Ok(limits)
    }

    /// Writes the counterexample where that was asked for.
    fn write(&self, answer: &Answer) -> Result<(), Error> {
        let Some(found) = &answer.counterexample else {
            if self.svg.is_some() || self.trace.is_some() {
                eprintln!("nothing is wrong, so there is nothing to write");
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

/// How much may be searched.
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

    /// Searches within the budget, telling how far it is on a terminal.
    pub fn spend(&self, question: &Question) -> Result<Answer, Error> {
        self.watch(&question.algorithm, |go_on| check::check(question, go_on))
    }

    /// Lets a search run within the budget.
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

/// Measures what a search takes.
pub struct Stopwatch {
    started: Instant,
    cpu_before: Duration,
}

/// What it took.
#[derive(Clone, Copy, Default)]
pub struct Took {
    pub wall: Duration,
    /// Of processor time, by all threads: what counts while the machine has other work.
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

/// Seconds for JSON: to the millisecond.
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

/// The exit code.
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
    say!("{}, {} sites, {asks}, {order}", answer.algorithm, answer.sites);
    say!(
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
        say!("  {:<18} {verdict}", title(*property));
    }
    if let Some(found) = &answer.counterexample {
        return super::replay::tell(found);
    }
    if let Some(wrong) = &answer.wrong {
        say!("\n{wrong}. The budget was reached before a shortest run to that was found.");
        return;
    }
    say!("");
    match answer.max_bypass {
        Some(bypass) => say!("While one waited, at most {bypass} others entered."),
        None => say!("There is no bound on how many others enter while one waits."),
    }
    if let Some(most) = answer.max_messages_per_entry {
        say!("No run in which all were served took more than {most} messages per entry.");
    }
    if answer.never_fired.is_empty() {
        say!("Every site entered, every message was delivered, every rule fired.");
    } else {
        say!("It never happened that\n  {}", answer.never_fired.join("\n  "));
    }
    if answer.bounded {
        let limits = check::mutex::FOREVER;
        say!(
            "Only states with at most {} messages in a channel and clocks at most {} apart were explored.",
            limits.in_flight,
            limits.number
        );
    }
    if !answer.complete {
        say!("The budget was reached: what lies deeper than {} was not seen.", answer.depth);
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

/// What people call a property.
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

/// A number with commas.
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
