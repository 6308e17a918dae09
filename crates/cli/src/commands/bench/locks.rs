//! `lockkeeper bench locks`: engines side by side.

use super::{program, seconds, until_interrupted};
use crate::commands::lab::table;
use crate::exit::CliError;
use crate::{exit, print_line};
use comfy_table::Table;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lockkeeper_bench::engine::{ENGINES, Engine};
use lockkeeper_bench::locks::{self, Plan};
use lockkeeper_bench::report::Report;
use lockkeeper_bench::run::Run;
use lockkeeper_bench::servers;
use lockkeeper_bench::workload::Workload;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure locks: engines side by side, with the same clients and the same workload
///
/// Servers are started on free ports of loopback with their default durability, and stopped, with their data, when
/// the bench ends. Clients run in separate processes, which connect, warm up, and start at the same moment. While
/// they measure, they check mutual exclusion and that fences rise: a violation ends the bench with exit code 2.
#[derive(clap::Args)]
#[command(after_help = "\
Engines:
  lockkeeper3, lockkeeper1   a cluster of three daemons, or one, with the native client
  lockkeeper3-ack            the same three without delegations; every release waits for the daemon's reply
  lockkeeper3-async          the same, but a release does not wait for the reply
  lockkeeper3-etcd           the same three through etcd's lock API, with the same client code as etcd3
  member3, member1           members inside the clients' processes
  file                       this machine alone, no server
  etcd3, etcd1, zookeeper3, zookeeper1, redis1, redlock5, postgres
  floor                      no lock: a bare request and reply over loopback, as the reference

Workloads:
  w1   one client, one lock                 w3   eight clients, a lock each
  w2   eight clients, one lock              w4   64 clients, 1,000 locks by Zipf's law, 1 ms inside

How to read it:
  per second       acquires, each with its release
  × etcd3, redis1  the ratio to that engine in the same run
  p50 / floor      the median acquire, divided by that of a bare request and reply in the same run
  fair             the most acquires of one client divided by the fewest; – if a client had none
  CPU              processor time for one acquire and release, of clients and of servers
  messages, syncs  messages between servers, and syncs of their disks, per acquire; – if unknown

Examples:
  lockkeeper bench locks --engines lockkeeper3,etcd3,redis1,floor
  lockkeeper bench locks --engines lockkeeper3,redis1 --workloads w2 --seconds 10 --repeat 5
  lockkeeper bench locks --json figures.json --report report      all engines whose servers are installed

Exit codes: 0 measured; 2 mutual exclusion was violated, or fences did not rise; 64 wrong usage; 69 a server is missing,
or some runs failed (the other results are printed).")]
pub struct Locks {
    /// The engines, separated by commas [default: all in this build whose servers are installed]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    engines: Vec<String>,
    /// The workloads, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES", default_value = "w1,w2,w3,w4")]
    workloads: Vec<String>,
    /// The duration of each measurement, from 0.05 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// The number of repetitions; the tables show medians, and engines take turns
    #[arg(long, value_name = "TIMES", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    repeat: u16,
    /// The pause of waiters on Redis, which has no queue, before they try again; 0 for none
    #[arg(long, value_name = "MS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=1000))]
    redis_pause_ms: u64,
    /// Write every single run to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with plots, and the figures, to this folder
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
}

impl Locks {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        exit::code(self.compare())
    }

    fn compare(self) -> Result<ExitCode, CliError> {
        let plan = self.plan()?;
        plan.check()?;
        let report = measure(&plan)?;
        print(&report, &plan);
        let written = self.json.iter().map(|file| report.write_json(file));
        match written.chain(self.report.iter().map(|folder| report.write_page(folder))).find_map(Result::err)
        {
            Some(error) => Err(CliError::io(error)),
            None if report.failures.is_empty() => Ok(ExitCode::SUCCESS),
            None => Err(CliError::cannot_run(NotMeasured { failures: report.failures })),
        }
    }

    fn plan(&self) -> Result<Plan, CliError> {
        let engines: Vec<&'static Engine> = if self.engines.is_empty() {
            available()
        } else {
            let engines = self.engines.iter().map(|name| Engine::parse(name));
            engines.collect::<Result<_, _>>().map_err(CliError::usage)?
        };
        let workloads = self.workloads.iter().map(|name| Workload::parse(name));
        let workloads = workloads.collect::<Result<_, _>>().map_err(CliError::usage)?;
        Ok(Plan {
            engines,
            workloads,
            seconds: self.seconds,
            repeat: self.repeat.into(),
            pause_ms: self.redis_pause_ms,
        })
    }
}

/// Some runs failed.
#[derive(Debug, thiserror::Error)]
#[error("not measured: {}", failures.join("; "))]
struct NotMeasured {
    /// The failed runs, each with the reason.
    failures: Vec<String>,
}

/// All engines that can be measured here. Prints the others with the reason.
fn available() -> Vec<&'static Engine> {
    let can = |engine: &&Engine| {
        let missing = servers::missing(engine).iter().map(ToString::to_string).collect::<Vec<_>>();
        let not_built = engine.not_built().map(|not_built| not_built.to_string());
        let why = not_built.or_else(|| (!missing.is_empty()).then(|| missing.join("; ")));
        if let Some(why) = &why {
            eprintln!("lockkeeper: left out: {why}");
        }
        why.is_none()
    };
    ENGINES.iter().filter(can).collect()
}

fn measure(plan: &Plan) -> Result<Report, CliError> {
    let program = program().map_err(CliError::cannot_run)?;
    let bar = ProgressBar::with_draw_target(Some(plan.runs() as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} runs, {eta} left: {msg}");
    bar.set_style(style.expect("the template is tested by every run"));
    let mut begun = false;
    let report = std::cell::RefCell::new(|what: &str| {
        if std::mem::replace(&mut begun, true) {
            bar.inc(1);
        }
        bar.set_message(what.to_owned());
    });
    let measured = until_interrupted(locks::run(plan, &program, &|what| (report.borrow_mut())(what)));
    bar.finish_and_clear();
    Ok(Report::new(plan, measured?, std::env::args().collect()))
}

fn print(report: &Report, plan: &Plan) {
    let machine = &report.machine;
    print_line!("{} cores, {}, {}; {}", machine.cores, machine.cpu, machine.kernel, report.date);
    for workload in &plan.workloads {
        print_line!("\n{}: {}; medians of {}\n", workload.name(), workload.what(), plan.repeat);
        let rows: Vec<&Run> = report.medians.iter().filter(|run| run.workload == workload.name()).collect();
        print_line!("{}", table(&rows).trim_fmt());
    }
    print_line!("");
    for engine in &report.engines {
        print_line!("{}: {}; {}", engine.name, engine.version, engine.durability);
    }
}

/// The engines with which the throughput of the others is compared.
const PEERS: [&str; 2] = ["etcd3", "redis1"];

/// The engine with which the median acquires of the others are compared.
const FLOOR: &str = "floor";

fn table(rows: &[&Run]) -> Table {
    let peers: Vec<(&str, f64)> = PEERS
        .iter()
        .filter_map(|peer| Some((*peer, rows.iter().find(|run| run.engine == *peer)?.per_second?)))
        .collect();
    let floor = rows.iter().find(|run| run.engine == FLOOR).and_then(|run| run.acquire_p50_us);
    let mut header = vec![String::new(), "per second".into()];
    header.extend(peers.iter().map(|(peer, _)| format!("× {peer}")));
    header.extend(floor.map(|_| format!("p50 / {FLOOR}")));
    header.extend(
        ["acquire p50", "p99", "max", "release p50", "fair", "client CPU", "server CPU", "messages", "syncs"]
            .map(String::from),
    );
    let mut table = table::table(&header);
    for run in rows {
        let mut cells = vec![run.engine.clone(), number(run.per_second, 0)];
        cells.extend(peers.iter().map(|(_, peer)| number(run.per_second.map(|own| own / peer), 2)));
        cells.extend(floor.map(|floor| number(run.acquire_p50_us.map(|own| own / floor), 2)));
        cells.extend(
            [run.acquire_p50_us, run.acquire_p99_us, run.acquire_max_us, run.release_p50_us].map(time),
        );
        cells.push(number(run.fairness, 2));
        cells.extend([run.client_cpu_us, run.server_cpu_us].map(time));
        cells.extend([run.messages, run.syncs].map(|count| number(count, 2)));
        table.add_row(cells);
    }
    table
}

/// Microseconds, or milliseconds where that is shorter.
fn time(us: Option<f64>) -> String {
    match us {
        None => "–".into(),
        Some(us) if us < 10.0 => format!("{us:.1} µs"),
        Some(us) if us < 10_000.0 => format!("{us:.0} µs"),
        Some(us) => format!("{:.0} ms", us / 1000.0),
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".into(), |value| format!("{value:.digits$}"))
}
