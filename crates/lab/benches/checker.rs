//! Speed and memory of the checker, compared with stateright on the same model in the same run.
//!
//! `cargo bench -p lockkeeper-lab --bench checker`

#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

use lockkeeper_checker_models::lamport_mutex::LamportMutex;
use lockkeeper_checker_models::stateright_model;
use lockkeeper_lab::checker::explore::{Search, SearchLimits};
use lockkeeper_lab::checker::mutual_exclusion::net::Net;
use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};
use stateright::{Checker, Model};
use std::time::Instant;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Number of rounds. The minimum of the processor time counts, since other load on the machine only increases
/// it.
const ROUNDS: usize = 5;
/// The published size: 724,274 distinct states.
const SPEC: LamportMutex = LamportMutex { processes: 3, max_clock: 6 };

struct Measured {
    seconds: f64,
    /// Processor time in seconds, which is meaningful while the machine has other work.
    cpu_seconds: f64,
    states: u64,
    bytes: f64,
}

fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9
}

fn measured(run: impl FnOnce() -> u64) -> Measured {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let (start, cpu_start) = (Instant::now(), cpu_seconds());
    let states = run();
    let (seconds, cpu_seconds) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu_start);
    Measured { seconds, cpu_seconds, states, bytes: (MEMORY.peak_usage() - before) as f64 }
}

fn lockkeeper() -> u64 {
    let net = Net::new(SPEC);
    let mut search = Search::new(&net, 1);
    let _ = search.run(SearchLimits::NONE, |_| true);
    search.progress().distinct
}

fn stateright() -> u64 {
    stateright_model::Spec(SPEC).checker().threads(1).spawn_bfs().join().unique_state_count() as u64
}

fn main() {
    let rounds: Vec<(Measured, Measured)> =
        (0..ROUNDS).map(|_| (measured(lockkeeper), measured(stateright))).collect();
    let best = |pick: fn(&(Measured, Measured)) -> &Measured| {
        rounds
            .iter()
            .map(pick)
            .min_by(|a, b| a.cpu_seconds.total_cmp(&b.cpu_seconds))
            .expect("there are rounds")
    };
    let (ours, theirs) = (best(|round| &round.0), best(|round| &round.1));
    assert_eq!(ours.states, theirs.states);
    println!(
        "Lamport's algorithm as specified in TLA+, 3 processes, clocks up to 6, one thread, best of {ROUNDS}"
    );
    for (name, of) in [("lockkeeper", ours), ("stateright", theirs)] {
        println!(
            "{name:<12} {:>10.0} distinct states per second of processor time ({:.0} per second), \
             at most {:.1} bytes allocated for each",
            of.states as f64 / of.cpu_seconds,
            of.states as f64 / of.seconds,
            of.bytes / of.states as f64
        );
    }
    println!(
        "ratios       {:>10.1} times as fast, {:.2} of the memory",
        theirs.cpu_seconds / ours.cpu_seconds,
        ours.bytes / theirs.bytes
    );
}
