//! `lockkeeper threads`: the bank's ATMs as threads, without a lock and with each kind of lock.

use super::progress;
use crate::exit::CliError;
use crate::print_line;
use clap::Args;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table, presets};
use lockkeeper_shared_memory::ALL;
use lockkeeper_shared_memory::bank::{self, BOTH_READ_FIRST, Plan, Run, STD, Step, dollars};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// Let threads deposit into one account: lose money without a lock, keep it with one, and measure the cost
///
/// First two ATMs whose steps are in a fixed order, then real threads without a lock, then with each selected lock,
/// and with std::sync::Mutex for comparison. Times depend on this machine and its present load.
#[derive(Args)]
#[command(after_help = "\
How to read it:
  lost          deposits that are not in the account
  Jain          1 if all threads made the same number of deposits, 1/N if one made them all
  fewest, most  deposits made by one thread
  per second    deposits; in the run without a lock, threads sometimes yield between their read and their write
  overlap       the share of the run in which all threads were at work, between the last start and the first end;
                all start at the same moment, once the last of them is ready
  longest       the longest wait: the most deposits by others between a thread's request and its entry. First come, first served
                keeps it near N-1; a thread that the system preempted on its way to the lock counts as waiting

Locks here wait by spinning a little and then yielding. With more threads than cores, a lock that serves in order must
wait until the system runs the next thread in order; a lock without an order need not.

Examples:
  lockkeeper threads
  lockkeeper threads --algorithm bakery --threads 4 --deposits 100000
  lockkeeper threads --algorithm dijkstra,black-white-bakery --threads 2 --deposits 1000000 --json

Exit codes: 0 every lock kept every deposit; 2 one lost some; 64 wrong usage.")]
pub struct Threads {
    /// The locks, separated by commas: dijkstra, eisenberg-mcguire, bakery, peterson, filter, szymanski,
    /// black-white-bakery, test-and-set, semaphore, ticket, mcs, clh, or all.
    #[arg(long, short, value_delimiter = ',', default_value = "all")]
    algorithm: Vec<String>,
    /// The number of threads, from 1 to 256.
    #[arg(long, short, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// The total number of deposits of $1, up to a thousand million. By default, as many as fit into half a second,
    /// and 100,000 at least.
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    deposits: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The least duration of a run without `--deposits`. In less time, one thread may be done before the system runs another.
const AT_LEAST: Duration = Duration::from_millis(500);
/// The least number of deposits of a run without `--deposits`.
const DEPOSITS: u64 = 100_000;

/// The output of `--json`.
#[derive(Serialize)]
struct Measured {
    threads: usize,
    /// The number of deposits of each run; `null` if the runs had a duration in place of a number.
    deposits: Option<u64>,
    /// The fixed schedule of two ATMs, step by step.
    fixed_schedule: Vec<Step>,
    without_lock: Run,
    locks: Vec<Run>,
}

impl Threads {
    pub fn run(self) -> ExitCode {
        let locks = match locks(&self.algorithm) {
            Ok(locks) => locks,
            Err(error) => return CliError::usage(error).report(),
        };
        let measured = self.measure(&locks);
        if self.json {
            print_line!("{}", serde_json::to_string(&measured).expect("numbers are plain data"));
        } else {
            print(&measured);
        }
        match measured.locks.iter().find(|run| !run.right()) {
            None => ExitCode::SUCCESS,
            Some(run) => {
                let lock = run.lock.unwrap_or("the lock");
                CliError::Violated(ThreadsError::DepositsLost { lock }.into()).report()
            }
        }
    }

    fn measure(&self, locks: &[&'static str]) -> Measured {
        let at_least = if self.deposits.is_some() { Duration::ZERO } else { AT_LEAST };
        let deposits = self.deposits.unwrap_or(DEPOSITS);
        let plan = Plan { atms: self.threads as usize, deposits, at_least };
        let total = deposits.saturating_mul(locks.len() as u64 + 1);
        progress::bar(total, |progress| Measured {
            threads: plan.atms,
            deposits: self.deposits,
            fixed_schedule: bank::interleave(&BOTH_READ_FIRST),
            without_lock: bank::without_lock(plan, &progress.entries),
            locks: locks.iter().filter_map(|lock| bank::with_lock(lock, plan, &progress.entries)).collect(),
        })
    }
}

/// A wrong name of a lock, or a lock that is wrong.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ThreadsError {
    /// There is no lock of this name.
    #[error("there is no lock '{name}' for threads: there are {}, or all", slugs().join(", "))]
    UnknownLock {
        /// The name.
        name: String,
    },
    /// A lock violated mutual exclusion.
    #[error("{lock} violated mutual exclusion: deposits are lost")]
    DepositsLost {
        /// The lock.
        lock: &'static str,
    },
}

/// The names of all locks for threads.
fn slugs() -> Vec<&'static str> {
    ALL.iter().map(|about| about.slug).collect()
}

/// The locks that a list names, without repetitions, and the standard library's at the end.
fn locks(names: &[String]) -> Result<Vec<&'static str>, ThreadsError> {
    let mut locks: Vec<&'static str> = Vec::new();
    for name in names {
        let named: Vec<&'static str> =
            slugs().into_iter().filter(|slug| name == "all" || slug == name).collect();
        if named.is_empty() && name != STD {
            return Err(ThreadsError::UnknownLock { name: name.clone() });
        }
        locks.extend(named.into_iter().filter(|slug| !locks.contains(slug)).collect::<Vec<_>>());
    }
    locks.push(STD);
    Ok(locks)
}

fn print(measured: &Measured) {
    print_line!("two ATMs, each with ${}, and both read before either writes:\n", dollars(bank::DEPOSIT));
    for (index, step) in measured.fixed_schedule.iter().enumerate() {
        print_line!("  {}. ATM {} {}", index + 1, step.atm, step.what);
    }
    let balance = measured.fixed_schedule.last().map_or(bank::START, |step| step.balance);
    let right = bank::START + 2 * bank::DEPOSIT;
    print_line!(
        "\n  the account holds ${}; ${} would be right, and ${} are lost\n",
        dollars(balance),
        dollars(right),
        dollars(right - balance)
    );
    let threads =
        if measured.threads == 1 { "1 thread".into() } else { format!("{} threads", measured.threads) };
    let deposits = match measured.deposits {
        Some(deposits) => dollars(deposits),
        None => format!("half a second of deposits, at least {}", dollars(DEPOSITS)),
    };
    let unit = if measured.deposits.is_some() { " deposits of $1" } else { ", of $1 each" };
    print_line!("{threads}, {deposits}{unit}, ${} at first\n", dollars(bank::START));
    let mut table =
        table(&["", "account", "lost", "per second", "overlap", "Jain", "fewest", "most", "longest"]);
    table.add_row(row(&measured.without_lock));
    for run in &measured.locks {
        table.add_row(row(run));
    }
    print_line!("{}", table.trim_fmt());
    if measured.without_lock.right() && measured.threads > 1 {
        print_line!(
            "\nwithout a lock nothing was lost this time: luck, which more deposits or threads may end"
        );
    }
    if measured.locks.iter().any(|run| run.by_atm.contains(&0)) {
        print_line!("\na thread that made no deposit came too late: with more deposits, all take part");
    }
}

fn row(run: &Run) -> [String; 9] {
    let waited = |number: u64| if run.lock.is_some() { dollars(number) } else { "–".into() };
    let count = |count: Option<&u64>| dollars(count.copied().unwrap_or(0));
    [
        run.lock.unwrap_or("no lock").into(),
        format!("${}", dollars(run.balance)),
        dollars(run.expected.saturating_sub(run.balance)),
        dollars(run.per_second.round() as u64),
        format!("{:.0} %", run.overlap * 100.0),
        format!("{:.3}", run.jain),
        count(run.by_atm.iter().min()),
        count(run.by_atm.iter().max()),
        waited(run.longest_wait),
    ]
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|text| Cell::new(text).add_attribute(Attribute::Bold)));
    for index in 1..header.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
