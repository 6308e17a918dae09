//! A real cluster under real faults: members as processes, each on a host of its own (a network namespace), with clients that take
//! turns, while processes are killed and stopped, links cut, disks filled.
//!
//! ```sh
//! cargo test -p lockkeeper-cluster --test processes                     # every fault once
//! cargo test -p lockkeeper-cluster --test processes -- --soak 10        # ten minutes of random faults
//! cargo test -p lockkeeper-cluster --test processes -- --seed 7         # another order of things
//! ```
//!
//! It needs root, for the namespaces, and `ip` and `nft`. What every client did is written down by its process as it happens, and
//! afterwards read as one story: no two holders at once, fences that rise. After every fault everybody must get in again.

mod faults;
mod hosts;
mod node;
mod story;

use faults::{Fault, Run};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What the command line says.
struct Options {
    soak: Option<Duration>,
    seed: u64,
    members: u32,
}

fn options(arguments: &[String]) -> Options {
    let after = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        let value = arguments.get(at + 1).and_then(|value| value.parse::<u64>().ok());
        Some(value.unwrap_or_else(|| panic!("{flag} wants a number")))
    };
    Options {
        soak: after("--soak").map(|minutes| Duration::from_secs(60 * minutes)),
        seed: after("--seed").unwrap_or(1),
        members: u32::try_from(after("--members").unwrap_or(3)).expect("a small number of members"),
    }
}

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
    let options = options(&arguments);
    let mut run = Run::start(options.members, options.seed);
    run.everybody_enters("at the start");
    match options.soak {
        None => {
            for fault in Fault::ALL {
                run.suffer(fault);
            }
        }
        Some(soak) => {
            let began = Instant::now();
            while began.elapsed() < soak {
                let fault = run.any_fault();
                run.suffer(fault);
                run.judge();
                println!("   {} of {} minutes", began.elapsed().as_secs() / 60, soak.as_secs() / 60);
            }
        }
    }
    run.finish();
    ExitCode::SUCCESS
}
