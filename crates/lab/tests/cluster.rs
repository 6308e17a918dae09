//! Whole clusters with everything that can go wrong. `LOCKKEEPER_RUNS=10000` runs more of them.

use lockkeeper_lab::Progress;
use lockkeeper_lab::cluster::{ClusterSpec, Fault, run};

#[test]
fn explore() {
    let var = |name: &str, default: &str| std::env::var(name).unwrap_or(default.into());
    let mut spec = ClusterSpec::new(&var("ALG", "naimi-trehel"), var("MEMBERS", "5").parse().unwrap());
    spec.faults = Fault::parse(&var("FAULTS", "none")).unwrap().into_iter().collect();
    let seeds = var("RUNS", "10").parse().unwrap();
    let start = std::time::Instant::now();
    let report = run(&spec, var("SEED", "1").parse().unwrap(), seeds, &Progress::default()).unwrap();
    eprintln!(
        "{} {:?} runs {} entries {} views {} lost {} frames {} found {} in {:?}",
        report.algorithm,
        report.faults,
        report.runs,
        report.entries,
        report.views,
        report.lost,
        report.frames,
        report.found.len(),
        start.elapsed()
    );
    for found in report.found.iter().take(8) {
        eprintln!("  {} @{} {:?}: {}", found.seed, found.at_ms, found.promise, found.how);
    }
}
