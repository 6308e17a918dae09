//! A real cluster under real faults: members as processes, each on a host of its own (a network namespace), with
//! clients that take turns, while processes are killed and stopped, links cut, disks filled.
//!
//! ```sh
//! cargo test -p lockkeeper-cluster --test processes                     # every fault once
//! cargo test -p lockkeeper-cluster --test processes -- --soak 10        # ten minutes of random faults
//! cargo test -p lockkeeper-cluster --test processes -- --seed 7         # another order of things
//! ```
//!
//! It needs root, for the namespaces, and `ip` and `nft`. What every client did is written down by its process as it
//! happens, and afterwards read as one story: no two holders at once, fences that rise. After every fault everybody
//! must get in again.

mod faults;
mod node;

use faults::{Fault, Run};
use lockkeeper_testbed::hosts;
use lockkeeper_testbed::options::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("node") => return node::main(&arguments[1..]),
        Some("proxy") => return hosts::proxy(&arguments[1..]),
        // What `cargo test` asks every test program.
        Some("--list") => return ExitCode::SUCCESS,
        _ => {}
    }
    if let Err(missing) = hosts::can_make_hosts() {
        println!("SKIPPED: real processes in network namespaces: {missing}");
        return ExitCode::SUCCESS;
    }
    let options = Options::read(&arguments);
    let mut run = Run::start(options.members, options.seed);
    run.everybody_enters("at the start");
    options.go_through(&Fault::ALL, |fault| run.suffer(fault));
    run.finish();
    ExitCode::SUCCESS
}
