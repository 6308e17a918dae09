//! The diagnosis of a ZooKeeper ensemble: its size and clock.

use super::ensemble::Ensemble;
use crate::Result;
use crate::diagnose::{ClockCheck, Finding, Severity, majority};
use Severity::Note;
use std::time::Duration;
use tokio::time::timeout;
use zookeeper_client::CreateMode;

/// The time limit for each step of the trial: a server may answer reads while writes hang.
const TRIAL: Duration = Duration::from_secs(10);

/// The findings about an ensemble.
pub(super) async fn ensemble(ensemble: &Ensemble) -> Result<Vec<Finding>> {
    let session = ensemble.query_session().await?;
    let mut findings = Vec::new();
    match ensemble.ask(|| session.client.get_config()).await? {
        Ok((config, _)) => findings.extend(majority("this ensemble", voters(&config))),
        Err(error) => findings.push(Finding::new(
            Note,
            "size",
            format!("the configuration of the ensemble cannot be read: {error}"),
            "run the diagnosis as a user who may read /zookeeper/config",
        )),
    }
    // A new node has the time of the leader's clock.
    let node = ensemble.root.child(&format!("lockkeeper-doctor-{:016x}", random()));
    let options = ensemble.options(CreateMode::Ephemeral);
    let check = ClockCheck::start();
    let created = timeout(TRIAL, session.client.create(node.path(), b"", &options)).await;
    if let Ok(Ok((stat, _))) = created {
        let time = Duration::from_millis(u64::try_from(stat.ctime).unwrap_or(0));
        let effect = "holds do not depend on clocks; the times that are shown, and the deadlines of detached holds in \
                      lists, are wrong";
        findings.extend(check.finding(time, Note, effect));
        let _ = timeout(TRIAL, session.client.delete(node.path(), None)).await;
    }
    Ok(findings)
}

/// The number of servers that vote, by the lines `server.1=host:2888:3888:participant;2181` of a configuration. A
/// server that runs alone has none.
fn voters(config: &[u8]) -> usize {
    let text = String::from_utf8_lossy(config);
    let servers = text.lines().filter(|line| line.starts_with("server.") && !line.contains(":observer"));
    servers.count().max(1)
}

/// A number that no other diagnosis has at the same time.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observers_do_not_vote_and_a_server_without_configuration_is_alone() {
        assert_eq!(voters(b""), 1);
        assert_eq!(voters(b"version=0"), 1);
        let three = b"server.1=a:2888:3888:participant;2181\nserver.2=b:2888:3888:participant\n\
                      server.3=c:2888:3888:observer\nserver.4=d:2888:3888\nversion=0";
        assert_eq!(voters(three), 3);
    }
}
