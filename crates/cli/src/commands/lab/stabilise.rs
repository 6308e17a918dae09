//! `lockkeeper stabilise`: measures how fast a self-stabilising ring recovers from arbitrary states.

use super::table::table;
use crate::exit::CliError;
use crate::print_line;
use clap::Args;
use lockkeeper_lab::comparison::table::number;
use lockkeeper_lab::stabilisation::exhaustive::{MOST_STATES, Verdict, explore};
use lockkeeper_lab::stabilisation::simulation::{Stabilisation, simulate};
use lockkeeper_lab::stabilisation::{Daemon, KState};
use serde::Serialize;
use std::process::ExitCode;

/// The limit on machines.
const MOST_MACHINES: usize = 1_000;
/// The limit on the steps of a run, as a multiple of the bound for enough numbers.
const LIMIT_FACTOR: u64 = 100;

/// Measure how fast Dijkstra's self-stabilising ring recovers from arbitrary states
///
/// N machines on a ring have numbers from 0 to K−1. S1 may move if its number equals that of its left neighbour SN, and
/// then adds 1 modulo K; each other machine may move if its number differs, and then copies it. The runs start from
/// random numbers and end when exactly one machine may move.
#[derive(Args)]
#[command(after_help = "\
Examples:
  lockkeeper stabilise --sites 16
  lockkeeper stabilise --sites 5 --every-state                     all states, and the worst choices of the daemon
  lockkeeper stabilise --sites 5 --states 3 --every-state          too few numbers: a cycle without an end
  lockkeeper stabilise --sites 9 --daemon synchronous --json

Exit codes: 0 every run and every state stabilises; 2 one does not; 64 wrong usage.")]
pub struct Stabilise {
    /// The number of machines, N.
    #[arg(long, short = 'n', value_name = "N")]
    sites: usize,
    /// The number of states of a machine, K; by default N.
    #[arg(long, short = 'k', value_name = "K")]
    states: Option<u32>,
    /// The choice of the machines that move: one of those that may (central), any of them (distributed), or all
    /// (synchronous).
    #[arg(long, default_value_t)]
    daemon: Daemon,
    /// The seed of the first run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of runs, with successive seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// Also explore all K^N states, and the worst choices of the daemon.
    #[arg(long)]
    every_state: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Report {
    sites: usize,
    states: u32,
    daemon: Daemon,
    seed: u64,
    /// The bound on moves; `None` if there are fewer numbers than machines.
    bound: Option<u64>,
    runs: Stabilisation,
    every_state: Option<Verdict>,
}

/// The reason why a ring cannot be run.
#[derive(Debug, thiserror::Error)]
enum RingError {
    /// The number of machines is out of bounds.
    #[error("a ring has 2 to {MOST_MACHINES} machines, not {sites}")]
    Machines {
        /// The number of machines.
        sites: usize,
    },
    /// A machine has fewer than two states.
    #[error("a machine needs at least 2 states, not {states}")]
    States {
        /// The number of states.
        states: u32,
    },
    /// There are no runs.
    #[error("say how many runs to make, as in --seeds 1000")]
    NoRuns,
    /// There are too many states to explore.
    #[error("{states}^{sites} states are too many: --every-state explores at most {MOST_STATES}")]
    TooMany {
        /// The number of machines.
        sites: usize,
        /// The number of states of a machine.
        states: u32,
    },
}

impl Stabilise {
    pub fn run(self) -> ExitCode {
        match self.report() {
            Err(error) => CliError::usage(error).report(),
            Ok(report) => {
                if self.json {
                    print_line!("{}", serde_json::to_string(&report).expect("a report is plain data"));
                } else {
                    report.print();
                }
                report.verdict()
            }
        }
    }

    fn report(&self) -> Result<Report, RingError> {
        let Self { sites, daemon, seed, seeds, .. } = *self;
        if !(2..=MOST_MACHINES).contains(&sites) {
            return Err(RingError::Machines { sites });
        }
        let states = self.states.unwrap_or(sites as u32);
        if states < 2 {
            return Err(RingError::States { states });
        }
        if seeds == 0 {
            return Err(RingError::NoRuns);
        }
        let ring = KState { machines: sites, states };
        let every_state = match self.every_state.then(|| explore(&ring, daemon)) {
            Some(None) => return Err(RingError::TooMany { sites, states }),
            found => found.flatten(),
        };
        // Enough for every run with enough numbers. With fewer, most runs of a random daemon stabilise, too.
        let limit = LIMIT_FACTOR * (sites * sites) as u64;
        let runs = simulate(&ring, daemon, seed, seeds, limit);
        Ok(Report { sites, states, daemon, seed, bound: ring.most_moves(), runs, every_state })
    }
}

impl Report {
    /// The exit code, after a report of what does not stabilise.
    fn verdict(&self) -> ExitCode {
        let Stabilisation { runs, stabilised, violation, .. } = &self.runs;
        let wrong = if let Some(violation) = violation {
            violation.clone()
        } else if stabilised < runs {
            format!("{} of {runs} runs did not stabilise", runs - stabilised)
        } else if self.every_state.as_ref().is_some_and(|verdict| !verdict.stabilises()) {
            "the ring does not stabilise from every state".into()
        } else {
            return ExitCode::SUCCESS;
        };
        CliError::Violated(wrong.into()).report()
    }

    fn print(&self) {
        let Self { sites, states, daemon, seed, bound, runs, every_state } = self;
        print_line!(
            "Dijkstra's ring, {sites} machines, {states} states each, {daemon} daemon, seeds {seed} to {}\n",
            seed + runs.runs - 1
        );
        let mut table = table(&["moves until one privilege is left", "mean", "most"]);
        let whole = |moves: Option<u64>| number(moves.map(|moves| moves as f64), 4);
        table.add_row(["random states".into(), number(runs.mean_moves, 4), whole(Some(runs.most_moves))]);
        if let Some(verdict) = every_state {
            table.add_row(["every state, worst choices".into(), number(None, 4), whole(verdict.most_moves)]);
        }
        table.add_row(["the bound 3N(N−1)/2, for K ≥ N".into(), number(None, 4), whole(*bound)]);
        print_line!("{}\n", table.trim_fmt());
        print_line!(
            "{} of {} runs stabilised, in at most {} steps",
            runs.stabilised,
            runs.runs,
            runs.most_steps
        );
        if let Some(verdict) = every_state {
            verdict_in_words(verdict);
        }
    }
}

fn verdict_in_words(verdict: &Verdict) {
    let of = |numbers: &[u32]| {
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        numbers.join(" ")
    };
    let Verdict { states, legitimate, worst, cycle, dead, not_closed, not_fair, .. } = verdict;
    print_line!("{states} states, {legitimate} of them with one privilege");
    if cycle.is_empty() {
        print_line!("the worst start: {}", of(worst));
    } else {
        print_line!("the daemon can repeat these {} states for ever:", cycle.len());
        for numbers in cycle {
            print_line!("  {}", of(numbers));
        }
    }
    let wrong = [
        (dead, "no machine may move"),
        (not_closed, "one privilege becomes several"),
        (not_fair, "the privilege does not visit every machine"),
    ];
    for (numbers, what) in wrong {
        if let Some(numbers) = numbers {
            print_line!("{what}: {}", of(numbers));
        }
    }
}
