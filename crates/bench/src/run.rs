//! The figures of one run, and the medians of several.

use crate::engine::Engine;
use crate::job::Figures;
use crate::process::Used;
use crate::servers::Counted;
use crate::workload::Workload;
use serde::Serialize;

/// The resources that the servers have used, and their own counters, at one time.
#[derive(Default)]
pub(crate) struct ServerReading {
    pub used: Used,
    pub counted: Counted,
}

/// The readings of the servers before and after a run.
#[derive(Default)]
pub(crate) struct ServerUse {
    pub before: ServerReading,
    pub after: ServerReading,
}

/// The figures of one run. Costs are per acquire with its release.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The engine's name.
    pub engine: String,
    /// The workload's name.
    pub workload: &'static str,
    /// The number of the repeat, from 1; 0 for medians.
    pub repeat: usize,
    /// Duration of the measurement.
    pub seconds: f64,
    /// Number of turns of each client.
    pub turns: Vec<u64>,
    /// Number of entries checked for exclusivity, warm-up included; 0 only for the baseline.
    pub checked: u64,
    /// Acquires with their releases per second.
    pub per_second: Option<f64>,
    /// The median latency of acquires, in microseconds.
    pub acquire_p50_us: Option<f64>,
    /// The 99th percentile of the latency of acquires.
    pub acquire_p99_us: Option<f64>,
    /// The maximum latency of acquires.
    pub acquire_max_us: Option<f64>,
    /// The median latency of releases.
    pub release_p50_us: Option<f64>,
    /// The maximum number of turns of a client divided by the minimum; `None` if a client had no turn.
    pub fairness: Option<f64>,
    /// Processor time of the clients, in microseconds.
    pub client_cpu_us: Option<f64>,
    /// Processor time of the servers, in microseconds.
    pub server_cpu_us: Option<f64>,
    /// Messages between servers, if known.
    pub messages: Option<f64>,
    /// Syncs of the servers' disks, if known.
    pub syncs: Option<f64>,
    /// Bytes that the servers wrote to disks.
    pub disk_bytes: Option<f64>,
}

/// Accesses one figure of a run.
type Field = fn(&mut Run) -> &mut Option<f64>;

/// The figures of a run of which medians are taken.
const FIELDS: [Field; 11] = [
    |run| &mut run.per_second,
    |run| &mut run.acquire_p50_us,
    |run| &mut run.acquire_p99_us,
    |run| &mut run.acquire_max_us,
    |run| &mut run.release_p50_us,
    |run| &mut run.fairness,
    |run| &mut run.client_cpu_us,
    |run| &mut run.server_cpu_us,
    |run| &mut run.messages,
    |run| &mut run.syncs,
    |run| &mut run.disk_bytes,
];

impl Run {
    /// Merges the figures of all processes of one run.
    pub(crate) fn new(
        engine: &Engine,
        workload: Workload,
        repeat: usize,
        seconds: f64,
        figures: &[Figures],
        servers: &ServerUse,
    ) -> Run {
        let (before, after) = (&servers.before, &servers.after);
        let turns: Vec<u64> = figures.iter().flat_map(|one| one.turns.iter().copied()).collect();
        let count = turns.iter().sum::<u64>() as f64;
        let each = |value: f64| (count > 0.0).then(|| value / count);
        let since = |after: Option<f64>, before: Option<f64>| each(after? - before?);
        let acquire = ValueCounts::of(figures.iter().flat_map(|one| &one.acquire));
        let release = ValueCounts::of(figures.iter().flat_map(|one| &one.release));
        let inside: Option<f64> = figures.iter().map(|one| one.messages).sum();
        let (least, most) = (turns.iter().min().copied(), turns.iter().max().copied());
        Run {
            engine: engine.name.into(),
            workload: workload.name(),
            repeat,
            seconds,
            checked: figures.iter().map(|one| one.checked).sum(),
            per_second: Some(count / seconds),
            acquire_p50_us: acquire.quantile(0.5),
            acquire_p99_us: acquire.quantile(0.99),
            acquire_max_us: acquire.quantile(1.0),
            release_p50_us: release.quantile(0.5),
            fairness: least
                .filter(|least| *least > 0)
                .zip(most)
                .map(|(least, most)| most as f64 / least as f64),
            client_cpu_us: each(figures.iter().map(|one| one.cpu_s).sum::<f64>() * 1e6),
            server_cpu_us: each((after.used.cpu_s - before.used.cpu_s) * 1e6),
            messages: inside
                .and_then(each)
                .or_else(|| since(after.counted.messages, before.counted.messages)),
            syncs: since(after.counted.syncs, before.counted.syncs),
            disk_bytes: since(after.used.disk_bytes, before.used.disk_bytes),
            turns,
        }
    }
}

/// Values, each with its count.
struct ValueCounts(Vec<(u64, u64)>);

impl ValueCounts {
    fn of<'a>(parts: impl Iterator<Item = &'a (u64, u64)>) -> ValueCounts {
        let mut all: Vec<(u64, u64)> = parts.copied().collect();
        all.sort_unstable();
        ValueCounts(all)
    }

    /// The smallest value that at least this share of all values does not exceed, in microseconds.
    fn quantile(&self, part: f64) -> Option<f64> {
        let total: u64 = self.0.iter().map(|(_, count)| count).sum();
        let needed = (total as f64 * part).ceil().max(1.0) as u64;
        let mut seen = 0;
        let reached = self.0.iter().find(|(_, count)| {
            seen += count;
            seen >= needed
        });
        reached.map(|(nanoseconds, _)| *nanoseconds as f64 / 1e3)
    }
}

/// For each engine and workload, the median of each figure over the repeats.
pub fn medians(runs: &[Run]) -> Vec<Run> {
    let mut medians: Vec<Run> = Vec::new();
    for run in runs {
        let same = |other: &&Run| other.engine == run.engine && other.workload == run.workload;
        if medians.iter().any(|median| same(&median)) {
            continue;
        }
        let mut repeats: Vec<Run> = runs.iter().filter(same).cloned().collect();
        let mut median =
            Run { repeat: 0, checked: repeats.iter().map(|run| run.checked).sum(), ..run.clone() };
        median.turns.clear();
        for field in FIELDS {
            *field(&mut median) = middle(repeats.iter_mut().filter_map(|run| *field(run)).collect());
        }
        medians.push(median);
    }
    medians
}

/// The median; of an even number of values, the mean of the two in the middle.
fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[half]),
        _ => Some(f64::midpoint(values[half - 1], values[half])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(turns: Vec<u64>, acquire: Vec<(u64, u64)>) -> Figures {
        Figures { turns, acquire, cpu_s: 0.5, checked: 7, ..Figures::default() }
    }

    fn run(repeat: usize, turns: [u64; 2]) -> Run {
        let engine = Engine::parse("lockkeeper3").unwrap();
        let [one, other] = turns;
        let parts = [figures(vec![one], vec![(2000, 98), (9000, 1)]), figures(vec![other], vec![(1000, 1)])];
        let counted = |messages| Counted { messages: Some(messages), syncs: None };
        let servers = ServerUse {
            before: ServerReading { used: Used::default(), counted: counted(10.0) },
            after: ServerReading { used: Used { cpu_s: 2.0, disk_bytes: None }, counted: counted(310.0) },
        };
        Run::new(engine, Workload::W2, repeat, 2.0, &parts, &servers)
    }

    #[test]
    fn figures_of_processes_are_merged() {
        let run = run(1, [100, 50]);
        assert_eq!((run.per_second, run.fairness, run.checked), (Some(75.0), Some(2.0), 14));
        assert_eq!(
            (run.acquire_p50_us, run.acquire_p99_us, run.acquire_max_us),
            (Some(2.0), Some(2.0), Some(9.0))
        );
        assert_eq!((run.messages, run.syncs), (Some(2.0), None));
        assert_eq!(run.server_cpu_us.map(f64::round), Some(13333.0));
        assert_eq!(super::Run { ..run }.release_p50_us, None, "nothing was released");
    }

    #[test]
    fn client_without_a_turn_leaves_no_ratio() {
        assert_eq!(run(1, [100, 0]).fairness, None);
    }

    #[test]
    fn median_of_the_repeats_is_reported() {
        let runs = [run(1, [10, 10]), run(2, [1000, 1000]), run(3, [20, 20])];
        let medians = medians(&runs);
        assert_eq!(medians.len(), 1);
        assert_eq!((medians[0].per_second, medians[0].checked), (Some(20.0), 42));
        assert_eq!(middle(vec![1.0, 3.0]), Some(2.0));
        assert_eq!(middle(vec![]), None);
    }
}
