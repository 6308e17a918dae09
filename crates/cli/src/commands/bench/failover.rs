//! `lockkeeper bench failover`: what the crash of a server, of a holder, or of both costs.

use super::{program, until_interrupted};
use crate::commands::lab::table::table;
use crate::exit::{self, CliError};
use crate::print_line;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lockkeeper_bench::BenchError;
use lockkeeper_bench::engine::Engine;
use lockkeeper_bench::failover::{self, FailoverPlan, FailoverRun, Fault};
use lockkeeper_bench::machine::Machine;
use lockkeeper_bench::servers;
use std::process::ExitCode;
use std::time::Duration;

/// Measure crashes: kill -9 of a server, of the holder of a lock, and of both
///
/// One client holds a lock through the server that is killed, another one waits for that lock, and eight others acquire
/// and release a lock of their own through the surviving servers. Each run has new servers on loopback, and each repeat
/// kills another one of them.
#[derive(clap::Args)]
#[command(after_help = "\
How to read it:
  others wait   the longest time without an acquire of one of the eight other clients: median and maximum of the runs
  next enters   from the crash until the waiter has the lock of the holder that was killed
  listed        from the crash of its server until the other servers list the holder: they have adopted the hold
  hold lasts    runs in which the holder still has its lock one time to live after the crash of its server

Examples:
  lockkeeper bench failover
  lockkeeper bench failover --engines lockkeeper3 --repeat 9 --ttl 5 --json")]
pub struct Failover {
    /// The engines, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES", default_value = "lockkeeper3,etcd3,zookeeper3")]
    engines: Vec<String>,
    /// The number of repetitions
    #[arg(long, value_name = "TIMES", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    repeat: u16,
    /// The time to live of the holder's lock, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(2..=60))]
    ttl: u16,
    /// Print one JSON object with every single run
    #[arg(long)]
    json: bool,
}

impl Failover {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        exit::code(self.measure().map(|()| ExitCode::SUCCESS))
    }

    fn measure(&self) -> Result<(), CliError> {
        let plan = self.plan()?;
        let program = program().map_err(CliError::cannot_run)?;
        let bar = ProgressBar::with_draw_target(Some(plan.runs() as u64), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:40} {pos} of {len} runs, {eta} left: {msg}");
        bar.set_style(style.expect("the template is tested by every run"));
        bar.enable_steady_tick(Duration::from_millis(200));
        let report = |what: &str| {
            if !bar.message().is_empty() {
                bar.inc(1);
            }
            bar.set_message(what.to_owned());
        };
        let runs = until_interrupted(failover::run(&plan, &program, &report));
        bar.finish_and_clear();
        let (runs, machine) = (runs?, Machine::this());
        if self.json {
            print_line!("{}", serde_json::json!({ "machine": machine, "ttl_s": self.ttl, "runs": runs }));
            return Ok(());
        }
        print_line!(
            "{} cores, {}, {}; time to live {} s\n",
            machine.cores,
            machine.cpu,
            machine.kernel,
            self.ttl
        );
        print_line!("{}", rows(&plan, &runs).trim_fmt());
        Ok(())
    }

    fn plan(&self) -> Result<FailoverPlan, CliError> {
        let mut engines = Vec::new();
        for name in &self.engines {
            let engine = Engine::parse(name).map_err(CliError::usage)?;
            if !failover::can_measure(engine) {
                return Err(CliError::usage(NoFailover { name: name.clone() }));
            }
            engines.push(engine);
        }
        let not_built: Vec<_> = engines.iter().filter_map(|engine| engine.not_built()).collect();
        if !not_built.is_empty() {
            return Err(BenchError::NotBuilt(not_built).into());
        }
        let missing: Vec<_> = engines.iter().flat_map(|engine| servers::missing(engine)).collect();
        if !missing.is_empty() {
            return Err(BenchError::Missing(missing).into());
        }
        let ttl = Duration::from_secs(self.ttl.into());
        Ok(FailoverPlan { engines, repeat: self.repeat.into(), ttl })
    }
}

/// An engine whose servers cannot fail over, or whose clients the bench does not have.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{name}` cannot be measured here: the engines are lockkeeper3, lockkeeper1, etcd3, etcd1, zookeeper3 and zookeeper1"
)]
struct NoFailover {
    name: String,
}

fn rows(plan: &FailoverPlan, runs: &[FailoverRun]) -> comfy_table::Table {
    let columns = [
        "engine",
        "kill -9 of",
        "others wait, ms",
        "(before)",
        "next enters, ms",
        "listed, ms",
        "hold lasts",
    ];
    let mut rows = table(&columns);
    for engine in &plan.engines {
        for fault in Fault::ALL {
            let these = || runs.iter().filter(|run| run.engine == engine.name && run.fault == fault);
            let survived = these().filter_map(|run| run.holder_survives);
            let lasts = match survived.clone().count() {
                0 => String::from("–"),
                all => format!("{} of {all}", survived.filter(|survives| *survives).count()),
            };
            rows.add_row([
                engine.name.to_owned(),
                fault.name().to_owned(),
                spread(these().map(|run| run.gap_ms).collect()),
                spread(these().map(|run| run.calm_gap_ms).collect()),
                spread(these().filter_map(|run| run.regrant_ms).collect()),
                spread(these().filter_map(|run| run.listed_ms).collect()),
                lasts,
            ]);
        }
    }
    rows
}

/// Median and maximum of some times, in milliseconds.
fn spread(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    match times.last() {
        None => String::from("–"),
        Some(most) => format!("{:.0} (≤ {most:.0})", times[times.len() / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_median_and_maximum() {
        assert_eq!(spread(vec![3.0, 100.4, 2.0]), "3 (≤ 100)");
        assert_eq!(spread(Vec::new()), "–");
    }
}
