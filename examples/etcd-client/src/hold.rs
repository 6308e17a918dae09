//! A lock that is held under a lease for as long as a file is missing, whatever happens to single servers.

use crate::Flow;
use etcd_client::{Client, Error, LockOptions};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The interval of keep-alives.
const INTERVAL: Duration = Duration::from_millis(500);
/// The time after which a keep-alive without an answer is repeated, through another server.
const ANSWER: Duration = Duration::from_secs(2);

/// Acquires the lock, prints its key and revision, and keeps the lease alive until the file exists. Fails if the lease is lost.
pub async fn run(name: &str, ttl_s: i64, end: &Path, addresses: &[String]) -> Flow<ExitCode> {
    let mut client = Client::connect(addresses, None).await?;
    let lease = client.lease_grant(ttl_s, None).await?.id();
    let held = client.lock(name, Some(LockOptions::new().with_lease(lease))).await?;
    let revision = held.header().map_or(0, |header| header.revision());
    println!("holds {} {revision}", String::from_utf8_lossy(held.key()));
    let ttl = Duration::from_secs(ttl_s.unsigned_abs());
    let mut renewed = Instant::now();
    while !end.exists() {
        let sent = Instant::now();
        match tokio::time::timeout(ANSWER, client.lease_keep_alive(lease)).await {
            Ok(Ok(_)) => renewed = sent,
            Ok(Err(Error::LeaseKeepAliveError(why))) => {
                eprintln!("the lease is lost: {why}");
                return Ok(ExitCode::from(1));
            }
            // The client connects to each server by itself; this server does not answer now.
            Ok(Err(error)) => eprintln!("a keep-alive failed: {error}"),
            Err(_) => eprintln!("a keep-alive was not answered"),
        }
        if renewed.elapsed() > ttl {
            eprintln!("no server has answered for the time to live");
            return Ok(ExitCode::from(1));
        }
        tokio::time::sleep(INTERVAL).await;
    }
    client.unlock(held.key()).await?;
    client.lease_revoke(lease).await?;
    println!("released");
    Ok(ExitCode::SUCCESS)
}
