//! Speed of the simulator. The benchmark of the same name prints the same figures.

use lockkeeper_lab::property::Names;
use lockkeeper_lab::simulator::delay::Delay;
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

/// Measures all cases, or those of one algorithm, each as the median of three runs; and one with a trace.
/// `part` scales the number of entries.
pub fn speeds(part: f64, only: Option<&str>, tell: &(dyn Fn(&str) + Sync)) -> Result<Vec<Speed>, String> {
    // One core, for comparable results on every machine.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(|error| error.to_string())?;
    pool.install(|| {
        let mut speeds = Vec::new();
        let wanted = |algorithm: &str| only.is_none_or(|only| only == algorithm);
        for (algorithm, sites, delay, entries) in CASES.into_iter().filter(|case| wanted(case.0)) {
            let what = format!("{algorithm}, {sites} sites, delay {delay}");
            tell(&what);
            let spec = spec(algorithm, sites, delay, (entries as f64 * part).max(10.0) as u64)?;
            speeds.push(Speed { what, messages_per_second: rate(&spec)?, trace_bytes: None });
        }
        if wanted(TRACED) {
            tell("with a trace");
            speeds.push(traced((20_000.0 * part).max(10.0) as u64)?);
        }
        if speeds.is_empty() {
            let mut all = CASES.map(|case| case.0).to_vec();
            all.dedup();
            return Err(format!("no case has that name; there are {}", all.join(", ")));
        }
        Ok(speeds)
    })
}

/// A run with high load.
pub fn spec(algorithm: &str, sites: usize, delay: &str, entries: u64) -> Result<Spec, String> {
    let mut spec = Spec::new(algorithm, sites);
    spec.entries = entries;
    spec.network.delay = Delay::parse(delay).map_err(|error| error.to_string())?;
    Ok(spec)
}

/// The median of three runs.
fn rate(spec: &Spec) -> Result<f64, String> {
    let mut rates = Vec::new();
    for seed in 0..3 {
        let started = Instant::now();
        let report = simulate(spec, seed, 1, &Progress::default()).map_err(|error| error.to_string())?;
        if !report.held() {
            return Err(format!("{} violated a property", spec.algorithm));
        }
        // The messages of the window, scaled to the whole run that was timed.
        let whole = (report.entries + spec.warmup()) as f64 / report.entries as f64;
        rates.push(report.messages as f64 * whole / started.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[1])
}

fn traced(entries: u64) -> Result<Speed, String> {
    let spec = spec(TRACED, 32, "constant:1", entries)?;
    let path = std::env::temp_dir().join(format!("lockkeeper-bench-{}.jsonl", std::process::id()));
    let started = Instant::now();
    let file = File::create(&path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    let out = Box::new(BufWriter::with_capacity(1 << 20, file));
    let names = Names { sites: spec.sites };
    let told = processes(&spec).map_err(|error| error.to_string())?;
    let mut sink =
        trace::sink_for(Path::new("t.jsonl"), "", names, told, out).map_err(|error| error.to_string())?;
    let report = trace_run(&spec, 1, sink.as_mut(), &Progress::default()).map_err(|error| error.to_string());
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
