//! Speed of the simulator. The benchmark of the same name prints the same figures.

use crate::error::FileError;
use lockkeeper_lab::property::Names;
use lockkeeper_lab::simulator::delay::{Delay, DelayError};
use lockkeeper_lab::trace::UnknownFormat;
use lockkeeper_lab::{Progress, Spec, processes, simulate, trace, trace_run};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Instant;

/// The measured runs: algorithm, sites, delay, entries.
const CASES: [(&str, usize, &str, u64); 6] = [
    ("ricart-agrawala", 32, "constant:1", 100_000),
    ("ricart-agrawala", 32, "exponential:1", 50_000),
    ("lamport", 32, "constant:1", 50_000),
    ("centralized", 32, "constant:1", 1_000_000),
    ("lamport", 1_000, "constant:1", 1_000),
    ("token-ring", 10_000, "constant:1", 1_000_000),
];

/// The run that is repeated with a trace.
const TRACED: &str = "ricart-agrawala";

/// One line of the result.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Speed {
    /// A description of the run.
    pub what: String,
    /// Messages delivered per second, on one core.
    pub messages_per_second: f64,
    /// Bytes of trace per message, if a trace was written.
    pub trace_bytes: Option<f64>,
}

/// The reason why the simulator cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum SpeedError {
    /// No case is of the given algorithm.
    #[error("no case has that name; there are {}", known.join(", "))]
    UnknownCase {
        /// The algorithms of all cases.
        known: Vec<&'static str>,
    },
    /// The thread of the runs cannot be started.
    #[error("{0}")]
    Pool(#[from] rayon::ThreadPoolBuildError),
    /// The delay is invalid.
    #[error(transparent)]
    Delay(#[from] DelayError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] lockkeeper_lab::Error),
    /// A run violated a property.
    #[error("{algorithm} violated a property")]
    Violated {
        /// The name of the algorithm.
        algorithm: String,
    },
    /// The trace has no known format.
    #[error(transparent)]
    TraceFormat(#[from] UnknownFormat),
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] FileError),
}

/// Measures all cases, or those of the algorithm `only`, each as the median of three runs. One more case writes a trace
/// and is run once. `part` scales the number of entries.
pub fn speeds(
    part: f64,
    only: Option<&str>,
    report: &(dyn Fn(&str) + Sync),
) -> Result<Vec<Speed>, SpeedError> {
    // One core, for comparable results on every machine.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    pool.install(|| {
        let mut speeds = Vec::new();
        let wanted = |algorithm: &str| only.is_none_or(|only| only == algorithm);
        for (algorithm, sites, delay, entries) in CASES.into_iter().filter(|case| wanted(case.0)) {
            let what = format!("{algorithm}, {sites} sites, delay {delay}");
            report(&what);
            let spec = spec(algorithm, sites, delay, (entries as f64 * part).max(10.0) as u64)?;
            speeds.push(Speed { what, messages_per_second: rate(&spec)?, trace_bytes: None });
        }
        if wanted(TRACED) {
            report("with a trace");
            speeds.push(traced((20_000.0 * part).max(10.0) as u64)?);
        }
        if speeds.is_empty() {
            let mut known = CASES.map(|case| case.0).to_vec();
            known.dedup();
            return Err(SpeedError::UnknownCase { known });
        }
        Ok(speeds)
    })
}

/// A run with high load.
pub fn spec(algorithm: &str, sites: usize, delay: &str, entries: u64) -> Result<Spec, SpeedError> {
    let mut spec = Spec::new(algorithm, sites);
    spec.entries = entries;
    spec.network.delay = Delay::parse(delay)?;
    Ok(spec)
}

/// The median of three runs.
fn rate(spec: &Spec) -> Result<f64, SpeedError> {
    let mut rates = Vec::new();
    for seed in 0..3 {
        let started = Instant::now();
        let report = simulate(spec, seed, 1, &Progress::default())?;
        if !report.held() {
            return Err(SpeedError::Violated { algorithm: spec.algorithm.clone() });
        }
        // The messages of the window, scaled to the whole run that was timed.
        let whole = (report.entries + spec.warmup()) as f64 / report.entries as f64;
        rates.push(report.messages as f64 * whole / started.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[1])
}

fn traced(entries: u64) -> Result<Speed, SpeedError> {
    let spec = spec(TRACED, 32, "constant:1", entries)?;
    let path = std::env::temp_dir().join(format!("lockkeeper-bench-{}.jsonl", std::process::id()));
    let started = Instant::now();
    let file = File::create(&path).map_err(FileError::write(&path))?;
    let out = Box::new(BufWriter::with_capacity(1 << 20, file));
    let names = Names { sites: spec.sites };
    let mut sink = trace::sink_for(Path::new("t.jsonl"), "", names, processes(&spec)?, out)?;
    let report = trace_run(&spec, 1, sink.as_mut(), &Progress::default());
    let seconds = started.elapsed().as_secs_f64();
    let bytes = std::fs::metadata(&path).map(|file| file.len()).unwrap_or(0);
    let _ = std::fs::remove_file(&path);
    let messages = report?.messages as f64;
    Ok(Speed {
        what: format!("{TRACED}, 32 sites, JSON lines to a file"),
        messages_per_second: messages / seconds,
        trace_bytes: Some(bytes as f64 / messages),
    })
}
