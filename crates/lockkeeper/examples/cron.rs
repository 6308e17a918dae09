//! A job that several machines start at the same time, and that runs once.
//!
//! ```sh
//! cargo run -p lockkeeper --example cron                                      # three "machines" in this process
//! cargo run -p lockkeeper --features etcd --example cron etcd://127.0.0.1:2379     # a lock service of your own
//! ```
//!
//! Each machine tries the lock once. The winner keeps it for at least the time by which the machines' clocks may differ,
//! so that a machine that starts late finds it held, even if the job was short. In a crontab, without a program:
//! `lockkeeper run --at-least 10m --skip nightly -- ./backup.sh`.

use lockkeeper::Lockkeeper;
use std::error::Error;
use std::time::Duration;

/// The clocks of the machines differ by less than this.
const CLOCKS_DIFFER: Duration = Duration::from_secs(30);

/// One machine at the scheduled time. Returns whether it ran the job.
async fn scheduled(locks: Lockkeeper, machine: u32) -> lockkeeper::Result<bool> {
    // A machine starts a little later than the one before.
    tokio::time::sleep(Duration::from_millis(u64::from(machine) * 50)).await;
    let request = locks.mutex("nightly").at_least(CLOCKS_DIFFER).metadata("machine", machine.to_string());
    let Some(guard) = request.try_acquire().await? else {
        println!("machine {machine}: another machine has the job");
        return Ok(false);
    };
    println!("machine {machine}: runs the job");
    // The lock stays held for the rest of CLOCKS_DIFFER.
    guard.release().await?;
    Ok(true)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let url = std::env::args().nth(1).unwrap_or_else(|| format!("file://{}", directory.path().display()));
    let mut machines = tokio::task::JoinSet::new();
    for machine in 1..=3 {
        machines.spawn(scheduled(Lockkeeper::open(url.as_str()).await?, machine));
    }
    let mut runs = 0;
    while let Some(machine) = machines.join_next().await {
        runs += u32::from(machine??);
    }
    println!("the job ran {runs} time(s)");
    Ok(())
}
