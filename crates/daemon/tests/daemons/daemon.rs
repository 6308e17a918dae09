//! One daemon, as a process.

use lockkeeper_cluster::Times;
use lockkeeper_daemon::{Config, Daemon};
use std::path::Path;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Longer than the defaults, since many processes share few cores here.
pub fn times() -> Times {
    slower(2)
}

/// Times for a slower network: all of them are multiplied by `factor`, and leases by twice as much, because a leave takes
/// a large part of a lease on a slow machine.
pub fn slower(factor: u32) -> Times {
    let mut times = Times::default().times(factor);
    times.lease *= 2;
    times.longest_lease *= 2;
    times
}

/// `daemon CONFIGURATION`: runs until it is killed or receives SIGTERM, which makes it leave.
pub fn main(arguments: &[String]) -> ExitCode {
    let [file] = arguments else { return ExitCode::FAILURE };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let served = runtime.expect("a runtime").block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut config = Config::read(Path::new(file))?;
        config.member.times = times();
        let daemon = Daemon::start(config).await?;
        tokio::select! {
            why = daemon.ends() => return Err(format!("{why:?}").into()),
            _ = terminate.recv() => {}
        }
        daemon.leave().await;
        Ok::<_, Box<dyn std::error::Error>>(())
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("the daemon of {file} ends: {why}");
            ExitCode::from(3)
        }
    }
}
