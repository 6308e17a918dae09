//! Speed of the simulator (delivered messages per second on one core), and the memory of a run as it gets
//! longer.
//!
//! `cargo bench -p lockkeeper-bench --bench simulator`; `lockkeeper bench sim` measures the same speeds.
//!
//! This is a program without a harness: it measures messages per second over runs of several seconds, with
//! and without a trace.

use lockkeeper_bench::simulator;
use lockkeeper_lab::{Progress, simulate};

fn main() {
    memory();
    println!("\nmessages delivered per second, one core, all metrics on; median of three runs");
    for speed in simulator::speeds(1.0, None, &|_| ()).expect("all runs end well") {
        let bytes = speed.trace_bytes.map_or(String::new(), |bytes| format!(", {bytes:.0} bytes a message"));
        println!("  {:48} {:6.2} million/s{bytes}", speed.what, speed.messages_per_second / 1e6);
    }
}

/// The peak memory of this process so far, in KiB; only available on Linux.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse().ok())
}

fn memory() {
    println!("peak memory of this process after runs of ricart-agrawala, 32 sites");
    for entries in [10_000, 100_000, 1_000_000] {
        let spec = simulator::spec("ricart-agrawala", 32, "constant:1", entries).expect("a delay");
        simulate(&spec, 1, 1, &Progress::default()).expect("a run");
        match peak_kib() {
            Some(peak) => println!("  {entries:>9} entries  {peak} KiB"),
            None => println!("  {entries:>9} entries  (not told on this system)"),
        }
    }
}
