//! Locks, leases and elections as an application uses them with the `etcd-client` crate. Nothing here knows which server answers.
//!
//! ```sh
//! etcd-flows 127.0.0.1:2379                    # one server
//! etcd-flows 127.0.0.1:7422 127.0.0.1:7432     # two of one cluster: a lease or lock of one works at the other
//! etcd-flows hold job 10 FILE 127.0.0.1:7422 127.0.0.1:7432    # holds the lock `job` under a lease of 10 s until FILE exists
//! ```

mod elections;
mod hold;
mod leases;
mod locks;

use etcd_client::{Client, Error};
use std::process::ExitCode;
use std::time::Duration;
use tokio::task::JoinHandle;

type Flow<T = ()> = Result<T, Error>;

/// Far longer than any call takes: only a call that never returns fails.
const LONG: Duration = Duration::from_secs(120);
/// Long enough to see that a call waits. If it is too short, nothing fails.
const MOMENT: Duration = Duration::from_millis(300);

/// Two clients, of one server or of two, and names that no other run uses.
#[derive(Clone)]
struct TwoClients {
    one: Client,
    other: Client,
    run: i64,
}

impl TwoClients {
    /// A name of this run.
    fn name(&self, what: &str) -> String {
        format!("flows/{:x}/{what}", self.run)
    }
}

/// The result of a call, which must return at some time.
async fn soon<T>(what: &str, task: JoinHandle<Flow<T>>) -> Flow<T> {
    match tokio::time::timeout(LONG, task).await {
        Ok(done) => done.expect("no panic"),
        Err(_) => panic!("{what}: nothing after {LONG:?}"),
    }
}

/// Whether the call still waits.
async fn waits<T>(task: &JoinHandle<Flow<T>>) -> bool {
    tokio::time::sleep(MOMENT).await;
    !task.is_finished()
}

/// The status with which a call was refused.
#[track_caller]
fn refused<T>(answer: Flow<T>) -> (i32, String) {
    match answer {
        Err(Error::GRpcStatus(status)) => (status.code().into(), status.message().to_owned()),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[tokio::main]
async fn main() -> Flow<ExitCode> {
    let addresses: Vec<String> = std::env::args().skip(1).collect();
    if let [command, name, ttl_s, end, addresses @ ..] = &addresses[..]
        && command == "hold"
        && let Ok(ttl_s) = ttl_s.parse()
    {
        return hold::run(name, ttl_s, end.as_ref(), addresses).await;
    }
    let (Some(one), Some(other)) = (addresses.first(), addresses.last()) else {
        eprintln!("usage: etcd-flows ADDRESS [ADDRESS], or etcd-flows hold LOCK TTL_S FILE ADDRESS...");
        return Ok(ExitCode::from(64));
    };
    let mut one = Client::connect([one], None).await?;
    let other = Client::connect([other], None).await?;
    let run = one.lease_grant(60, None).await?.id();
    let both = TwoClients { one, other, run };
    locks::run(both.clone()).await?;
    leases::run(both.clone()).await?;
    elections::run(both).await?;
    println!("locks, leases and elections: all as expected");
    Ok(ExitCode::SUCCESS)
}
