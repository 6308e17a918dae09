//! How fast the checker is, beside stateright on the same model in the same run.
//!
//! `cargo bench -p lockkeeper-lab --bench checker`

#![expect(clippy::disallowed_methods, reason = "a benchmark measures time")]

#[path = "../tests/checker/lamport_mutex.rs"]
mod lamport_mutex;
#[path = "../tests/checker/stateright_model.rs"]
mod stateright_model;

use lamport_mutex::LamportMutex;
use lockkeeper_lab::check::net::Net;
use lockkeeper_lab::check::search::Search;
use stateright::{Checker, Model};
use std::time::Instant;

fn main() {
    let ours = || {
        let net = Net::new(LamportMutex { processes: 3, max_clock: 6 });
        let mut search = Search::new(&net, 1);
        let start = Instant::now();
        let _ = search.run(u64::MAX, |_| true);
        (start.elapsed().as_secs_f64(), search.sofar())
    };
    let theirs = || {
        let start = Instant::now();
        let checker = stateright_model::Spec(LamportMutex { processes: 3, max_clock: 6 })
            .checker()
            .threads(1)
            .spawn_bfs()
            .join();
        (start.elapsed().as_secs_f64(), checker.unique_state_count())
    };
    for _ in 0..5 {
        let (seconds, sofar) = ours();
        println!(
            "lockkeeper {:.3} s, {:.0} distinct/s, {} bytes per state",
            seconds,
            sofar.distinct as f64 / seconds,
            sofar.bytes as u64 / sofar.distinct
        );
        let (seconds, distinct) = theirs();
        println!("stateright {:.3} s, {:.0} distinct/s ({distinct})", seconds, distinct as f64 / seconds);
    }
}
