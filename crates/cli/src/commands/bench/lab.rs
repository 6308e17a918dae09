//! `lockkeeper bench sim`, `bench check` and `bench growth`: the speed of the lab, and the cost of growth.

use super::{NumberError, until_interrupted};
use crate::commands::algorithms::refuse_unknown;
use crate::exit::CliError;
use crate::print_line;
use indicatif::{ProgressBar, ProgressDrawTarget};
use lockkeeper_bench::checker::{Searched, Searcher, search};
use lockkeeper_bench::{BenchError, growth, simulator};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Measure the simulator: messages delivered per second on one core, with all metrics on
#[derive(clap::Args)]
#[command(after_help = "\
Each figure is the median of three runs. The last one writes a trace of every message to a file.

Examples:
  lockkeeper bench sim
  lockkeeper bench sim --part 0.1 --json      a tenth of the usual entries")]
pub struct Sim {
    /// The fraction of the usual number of entries to run, from 0.001 to 10
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = part)]
    part: f64,
    /// Run only the cases of this algorithm
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn part(text: &str) -> Result<f64, NumberError> {
    let (least, most) = (0.001, 10.0);
    let part: f64 = text.parse().map_err(|_| NumberError::NotANumber)?;
    if (least..=most).contains(&part) { Ok(part) } else { Err(NumberError::OutOfRange { least, most }) }
}

impl Sim {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let spinner = spinner();
        let measured =
            simulator::speeds(self.part, self.only.as_deref(), &|what| spinner.set_message(what.to_owned()));
        spinner.finish_and_clear();
        let speeds = match measured {
            Ok(speeds) => speeds,
            Err(error) => return CliError::usage(error).report(),
        };
        if self.json {
            print_line!("{}", serde_json::to_string(&speeds).expect("numbers are plain data"));
            return ExitCode::SUCCESS;
        }
        print_line!(
            "messages delivered per second, one core, all metrics on; medians of three runs, the trace one run"
        );
        for speed in speeds {
            let bytes =
                speed.trace_bytes.map_or(String::new(), |bytes| format!(", {bytes:.0} bytes a message"));
            print_line!("  {:48} {:6.2} million/s{bytes}", speed.what, speed.messages_per_second / 1e6);
        }
        ExitCode::SUCCESS
    }
}

/// Measure the checker: states per second and bytes per state, beside stateright
///
/// Both search the same model on one thread: Lamport's algorithm as it is specified in TLA+, three processes. Each
/// search runs several times, in a process of its own; the run with the least processor time counts, since other load
/// on the machine can only add to it.
#[derive(clap::Args)]
#[command(after_help = "\
stateright takes part in builds with the feature of that name:
  cargo build --release -p lockkeeper-cli --features stateright

Examples:
  lockkeeper bench check
  lockkeeper bench check --max-clock 4 --repeat 1 --json")]
pub struct Check {
    /// The bound of the model's clocks; 6 gives 724,274 distinct states
    #[arg(long, value_name = "CLOCK", default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=8))]
    max_clock: u8,
    /// The number of repetitions
    #[arg(long, value_name = "TIMES", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    repeat: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let spinner = spinner();
        let searched = self.search_all(&spinner);
        spinner.finish_and_clear();
        let searched = match searched {
            Ok(searched) => searched,
            Err(error) => return CliError::cannot_run(error).report(),
        };
        if self.json {
            print_line!("{}", serde_json::to_string(&searched).expect("numbers are plain data"));
            return ExitCode::SUCCESS;
        }
        print_line!(
            "Lamport's algorithm as specified in TLA+, 3 processes, clocks up to {}, one thread, best of {}",
            self.max_clock,
            self.repeat
        );
        for one in &searched {
            print_line!(
                "  {:<12} {:>10.0} distinct states per second of processor time ({:.0} per second), {:.1} bytes of memory for each",
                one.by.name(),
                one.states as f64 / one.cpu_s,
                one.states as f64 / one.seconds,
                one.bytes / one.states as f64
            );
        }
        match &searched[..] {
            [ours, theirs] => {
                let (faster, memory) = (theirs.cpu_s / ours.cpu_s, ours.bytes / theirs.bytes);
                print_line!("  ratios       {faster:>10.1} times as fast, {memory:.2} of the memory");
            }
            _ => print_line!(
                "  without stateright: cargo build --release -p lockkeeper-cli --features stateright"
            ),
        }
        ExitCode::SUCCESS
    }

    /// The best search of each program; the programs take turns.
    fn search_all(&self, spinner: &ProgressBar) -> Result<Vec<Searched>, SearchError> {
        let program = std::env::current_exe().map_err(SearchError::Program)?;
        let mut best: Vec<Searched> = Vec::new();
        for turn in 1..=self.repeat {
            for by in Searcher::built() {
                spinner.set_message(format!("{} ({turn} of {})", by.name(), self.repeat));
                let mut command = Command::new(&program);
                command.args(["bench", "search", by.name(), &self.max_clock.to_string()]);
                let output = command.output().map_err(SearchError::Start)?;
                let one: Searched = serde_json::from_slice(&output.stdout).map_err(|_| {
                    SearchError::Failed { stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned() }
                })?;
                match best.iter_mut().find(|known| known.by == *by) {
                    Some(known) if known.states != one.states => {
                        return Err(SearchError::Varies { by: *by });
                    }
                    Some(known) if known.cpu_s <= one.cpu_s => {}
                    Some(known) => *known = one,
                    None => best.push(one),
                }
            }
        }
        match &best[..] {
            [ours, theirs] if ours.states != theirs.states => {
                Err(SearchError::Disagree { ours: ours.states, theirs: theirs.states })
            }
            _ => Ok(best),
        }
    }
}

/// The reason why searches cannot be compared.
#[derive(Debug, thiserror::Error)]
enum SearchError {
    /// The checker does not exist.
    #[error("lockkeeper or stateright?")]
    UnknownSearcher,
    /// The path of this program is unknown.
    #[error("{0}")]
    Program(#[source] std::io::Error),
    /// The process of a search cannot be started.
    #[error("cannot start a search: {0}")]
    Start(#[source] std::io::Error),
    /// The process of a search failed.
    #[error("{stderr}")]
    Failed {
        /// Its output on standard error.
        stderr: String,
    },
    /// Two searches of one checker found different numbers of states.
    #[error("{} found another number of states the second time", by.name())]
    Varies {
        /// The checker whose counts differ.
        by: Searcher,
    },
    /// The checkers found different numbers of states.
    #[error("the two disagree: {ours} and {theirs} distinct states")]
    Disagree {
        /// The number of states that this project's checker found.
        ours: u64,
        /// The number of states that the other checker found.
        theirs: u64,
    },
}

/// Runs one search in this process.
pub fn search_here(by: &str, max_clock: u8) -> ExitCode {
    let known = [Searcher::Lockkeeper, Searcher::Stateright].into_iter().find(|known| known.name() == by);
    let Some(known) = known else { return CliError::usage(SearchError::UnknownSearcher).report() };
    match search(known, max_clock) {
        Ok(searched) => {
            print_line!("{}", serde_json::to_string(&searched).expect("numbers are plain data"));
            ExitCode::SUCCESS
        }
        Err(error) => CliError::cannot_run(error).report(),
    }
}

/// Measure how costs grow: with the number of locks, and with the number of members
///
/// Measures an acquire and release at a member inside this process while the given number of other locks is held
/// there; and counts the messages between members per entry in real clusters on loopback, beside the simulator's
/// count and the algorithm's formula.
#[derive(clap::Args)]
#[command(after_help = "\
How to read it:
  one after the other   the next member to request is drawn at random: the low load of the formulas
  all at once           every member requests again right after its release: the high load
  the formula is the paper's, for messages of constant delay; `lockkeeper explain NAME` has it

Examples:
  lockkeeper bench growth
  lockkeeper bench growth --locks 1,1000 --members 3,5 --algorithm ricart-agrawala")]
pub struct Growth {
    /// The numbers of other locks that are held, separated by commas
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,1000,1000000",
          value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    locks: Vec<u64>,
    /// The numbers of members of the clusters, separated by commas
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "3,5,9,15",
          value_parser = clap::value_parser!(u64).range(2..=31))]
    members: Vec<u64>,
    /// The algorithm; `lockkeeper algorithms` lists them
    #[arg(long, value_name = "NAME", default_value = "naimi-trehel")]
    algorithm: String,
    /// The number of entries to count in each cluster
    #[arg(long, value_name = "NUMBER", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    entries: u32,
    /// The duration of each measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = super::seconds)]
    seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Growth {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        if let Err(error) = refuse_unknown(&self.algorithm) {
            return CliError::usage(error).report();
        }
        let spinner = spinner();
        let measured = until_interrupted(self.measure(&spinner));
        spinner.finish_and_clear();
        let (beside, among) = match measured {
            Ok(measured) => measured,
            Err(error) => return error.report(),
        };
        if self.json {
            print_line!(
                "{}",
                serde_json::json!({ "locks": beside, "algorithm": self.algorithm, "members": among })
            );
            return ExitCode::SUCCESS;
        }
        print_line!("one acquire and release at a member inside this process, beside locks that are held:");
        for row in &beside {
            let ratio = row.cost_ns / beside[0].cost_ns;
            print_line!(
                "  {:>9} locks  {:>8.2} µs  {ratio:.2} times the first; median turn {:.2} µs, longest {:.0} µs",
                row.locks,
                row.cost_ns / 1e3,
                row.p50_ns as f64 / 1e3,
                row.max_ns as f64 / 1e3
            );
        }
        print_line!("\nmessages for one entry, {}:", self.algorithm);
        for row in &among {
            let number = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.3}"));
            let (simulated, formula) = (number(row.simulated), number(row.formula));
            print_line!(
                "  {:>2} members, {:<19}  {:.3}; simulated {simulated}, formula {formula}",
                row.members,
                row.load,
                row.messages
            );
        }
        ExitCode::SUCCESS
    }

    async fn measure(
        &self,
        spinner: &ProgressBar,
    ) -> Result<(Vec<growth::AcquireCost>, Vec<growth::MessageCost>), BenchError> {
        let beside =
            growth::acquire_costs(&self.locks, self.seconds, &|what| spinner.set_message(what.to_owned()))
                .await?;
        let mut among = Vec::new();
        for &members in &self.members {
            spinner.set_message(format!("{members} members"));
            among.extend(
                growth::message_costs(&self.algorithm, members as usize, self.entries as usize).await?,
            );
        }
        Ok((beside, among))
    }
}

/// A spinner on a terminal, for work of unknown length.
fn spinner() -> ProgressBar {
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}
