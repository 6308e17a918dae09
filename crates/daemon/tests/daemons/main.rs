//! Real daemons under real faults, with clients of every kind: three daemons as processes, each on a host of its own
//! (a network namespace), with certificates and tokens; clients of the native protocol, HTTP and etcd's gRPC, on
//! every host and beside them. Daemons are killed, stopped, made to leave and partitioned; clients are killed; an
//! operator changes the algorithm and the times of the cluster.
//!
//! ```sh
//! cargo test -p lockkeeper-daemon --test daemons                     # every fault once
//! cargo test -p lockkeeper-daemon --test daemons -- --soak 10        # ten minutes of random faults
//! cargo test -p lockkeeper-daemon --test daemons -- --seed 7         # another order of faults
//! ```
//!
//! It needs root, for the namespaces, and `ip` and `nft`. Each client process records its actions as they happen. All
//! records are read as one history, which must satisfy mutual exclusion with increasing fences. Every hold must be in
//! the daemons' audit logs. After every fault all clients must make progress again.

mod audit;
mod clients;
mod cluster;
mod daemon;
mod faults;
mod operator;

use faults::{Fault, Run};
use lockkeeper_testbed::hosts;
use lockkeeper_testbed::options::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("daemon") => return daemon::main(&arguments[1..]),
        Some("client") => return clients::main(&arguments[1..]),
        Some("operator") => return operator::main(&arguments[1..]),
        // `cargo test` calls every test program with this option.
        Some("--list") => return ExitCode::SUCCESS,
        _ => {}
    }
    if let Err(missing) = hosts::can_make_hosts() {
        println!("SKIPPED: real daemons in network namespaces: {missing}");
        return ExitCode::SUCCESS;
    }
    let options = Options::read(&arguments);
    let mut run = Run::start(options.members, options.seed);
    run.every_client_enters("at the start");
    run.every_daemon_serves();
    options.go_through(&Fault::ALL, |fault| run.inject(fault));
    run.finish();
    ExitCode::SUCCESS
}
