//! The diagnosis of a MySQL or MariaDB server: durability, replication and clock.

use super::server::{Server, column};
use crate::Result;
use crate::diagnose::{ClockCheck, Finding, Severity};
use Severity::{Critical, Warning};
use std::sync::Arc;
use std::time::Duration;

/// The findings about a server.
pub(super) async fn server(server: &Arc<Server>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let check = ClockCheck::start();
    let clock = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    if let Some(row) = server.call(clock, Vec::new()).await?.rows.first() {
        let effect =
            "leases end by the server's clock: if it is corrected by a step forward, a lease ends early";
        findings.extend(check.finding(Duration::from_micros(column::<u64>(row, 0)?), Warning, effect));
    }
    let settings = "SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.log_bin, @@GLOBAL.sync_binlog";
    if let Some(row) = server.call(settings, Vec::new()).await?.rows.first() {
        findings.extend(durability(column(row, 0)?, column::<u64>(row, 1)? > 0, column(row, 2)?));
    }
    Ok(findings)
}

fn durability(flush: u64, has_binlog: bool, sync_binlog: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    if flush != 1 {
        findings.push(Finding::new(
            Critical,
            "persistence",
            format!(
                "`innodb_flush_log_at_trx_commit = {flush}`: a crash of the machine loses the grants of the last second, \
                 and other clients are granted these locks"
            ),
            "set `innodb_flush_log_at_trx_commit = 1`",
        ));
    }
    match (has_binlog, sync_binlog) {
        (true, 1) => {}
        (true, _) => findings.push(Finding::new(
            Warning,
            "replication",
            format!(
                "`sync_binlog = {sync_binlog}`: after a crash of the machine, replicas can lack the last grants, and a \
                 failover to them hands these locks out again"
            ),
            "set `sync_binlog = 1`, and let resources check fences",
        )),
        (false, _) => findings.push(Finding::new(
            Warning,
            "replication",
            "this server has no binary log and so no replicas: its crash ends the service until it is back, and the loss of \
             its disk all holds",
            "add a replica, or use a system that decides by majority: lockkeeper, etcd, ZooKeeper",
        )),
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_lose_commits_are_reported() {
        let severities = |flush, has_binlog, sync| -> Vec<Severity> {
            durability(flush, has_binlog, sync).iter().map(|finding| finding.severity).collect()
        };
        assert_eq!(severities(1, true, 1), []);
        assert_eq!(severities(2, true, 1), [Critical]);
        assert_eq!(severities(1, true, 0), [Warning]);
        assert_eq!(severities(0, false, 0), [Critical, Warning]);
    }
}
