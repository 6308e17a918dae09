//! How fast the simulator is: delivered messages per second on one core.
//!
//! `cargo bench -p lockkeeper-lab --bench simulator`
//!
//! A program of its own, without a harness: what counts is messages per second over runs of seconds, with and
//! without a trace, and the memory that a run takes as it gets longer.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use lockkeeper_lab::delay::Delay;
use lockkeeper_lab::property::Names;
use lockkeeper_lab::{Progress, Spec, processes, simulate, trace, trace_run};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Instant;

fn main() {
    // One core, whatever the machine has.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread can be had");
    pool.install(|| {
        memory();
        println!("\nmessages delivered per second, one core, all metrics on; median of three runs");
        line("ricart-agrawala, 32 sites, constant delay", "ricart-agrawala", 32, "constant:1", 100_000);
        line("ricart-agrawala, 32 sites, exponential delay", "ricart-agrawala", 32, "exponential:1", 50_000);
        line("lamport, 32 sites, constant delay", "lamport", 32, "constant:1", 50_000);
        line("centralized, 32 sites, constant delay", "centralized", 32, "constant:1", 1_000_000);
        line("lamport, 1,000 sites, constant delay", "lamport", 1_000, "constant:1", 1_000);
        line("token-ring, 10,000 sites, constant delay", "token-ring", 10_000, "constant:1", 1_000_000);
        traced();
    });
}

fn spec(algorithm: &str, sites: usize, delay: &str, entries: u64) -> Spec {
    let mut spec = Spec::new(algorithm, sites);
    spec.entries = entries;
    spec.network.delay = Delay::parse(delay).expect("a delay");
    spec
}

fn line(what: &str, algorithm: &str, sites: usize, delay: &str, entries: u64) {
    let spec = spec(algorithm, sites, delay, entries);
    let mut rates: Vec<f64> = (0..3)
        .map(|seed| {
            let started = Instant::now();
            let report = simulate(&spec, seed, 1, &Progress::default()).expect("a run");
            assert!(report.held());
            // The window's messages, scaled to the whole run that was timed.
            let whole = (report.entries + spec.warmup()) as f64 / report.entries as f64;
            report.messages as f64 * whole / started.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("  {what:48} {:6.2} million/s", rates[1] / 1e6);
}

fn traced() {
    let spec = spec("ricart-agrawala", 32, "constant:1", 20_000);
    let path = std::env::temp_dir().join(format!("lockkeeper-bench-{}.jsonl", std::process::id()));
    let started = Instant::now();
    let out = Box::new(BufWriter::with_capacity(1 << 20, File::create(&path).expect("a temporary file")));
    let names = Names { sites: spec.sites };
    let mut sink = trace::sink_for(Path::new("t.jsonl"), "", names, processes(&spec).expect("a spec"), out)
        .expect("a sink");
    let report = trace_run(&spec, 1, sink.as_mut(), &Progress::default()).expect("a run");
    let rate = report.messages as f64 / started.elapsed().as_secs_f64();
    let bytes = std::fs::metadata(&path).map(|file| file.len()).unwrap_or(0);
    let _ = std::fs::remove_file(&path);
    let what = "ricart-agrawala, 32 sites, JSON lines to a file";
    println!("  {what:48} {:6.2} million/s, {} bytes a message", rate / 1e6, bytes / report.messages);
}

/// The largest memory that this process has taken so far, in KiB; only Linux tells.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok())
}

fn memory() {
    println!("peak memory of this process after runs of ricart-agrawala, 32 sites");
    for entries in [10_000, 100_000, 1_000_000] {
        simulate(&spec("ricart-agrawala", 32, "constant:1", entries), 1, 1, &Progress::default())
            .expect("a run");
        match peak_kib() {
            Some(peak) => println!("  {entries:>9} entries  {peak} KiB"),
            None => println!("  {entries:>9} entries  (not told on this system)"),
        }
    }
}
