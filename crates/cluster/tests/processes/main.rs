//! A real cluster under real faults: members are processes, each on a host of its own (a network namespace), with
//! clients that contend for locks, while processes are killed and stopped, links are cut and disks are filled.
//!
//! ```sh
//! cargo test -p lockkeeper-cluster --test processes                     # every fault once
//! cargo test -p lockkeeper-cluster --test processes -- --soak 10        # ten minutes of random faults
//! cargo test -p lockkeeper-cluster --test processes -- --seed 7         # another random order
//! ```
//!
//! It needs root, for the namespaces, and `ip` and `nft`. Each process records the actions of its clients as they
//! happen. The records are checked together afterwards: there are never two holders at once, and fences rise. After
//! every fault, the clients of every member must be granted locks again.

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
        // `cargo test` passes this flag to every test program.
        Some("--list") => return ExitCode::SUCCESS,
        _ => {}
    }
    if let Err(missing) = hosts::can_make_hosts() {
        println!("SKIPPED: real processes in network namespaces: {missing}");
        return ExitCode::SUCCESS;
    }
    let options = Options::read(&arguments);
    let mut run = Run::start(options.members, options.seed);
    run.every_client_enters("at the start");
    options.go_through(&Fault::ALL, |fault| run.inject(fault));
    run.finish();
    ExitCode::SUCCESS
}
