//! The diagnosis of a PostgreSQL server: durability, replication and clock.

use super::session::Session;
use crate::Result;
use crate::diagnose::{ClockCheck, Finding, Severity};
use Severity::{Critical, Note, Warning};
use std::collections::HashMap;
use std::time::Duration;
use tokio_postgres::Row;

/// The settings that decide what a crash loses. `synchronous_commit` is that of new sessions: the engine sets its own to
/// `on`.
const SETTINGS: &str = "SELECT name, setting FROM pg_settings WHERE name IN \
    ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', 'wal_level')";

/// The findings about a server.
pub(super) async fn server(session: &Session) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let check = ClockCheck::start();
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS ms";
    if let Some(ms) = number(&session.call(sql, &[]).await?) {
        let effect =
            "leases end by the server's clock: if it is corrected by a step forward, a lease ends early";
        findings.extend(check.finding(Duration::from_millis(ms), Warning, effect));
    }
    let rows = session.call(SETTINGS, &[]).await?;
    let pair = |row: &Row| Some((row.try_get::<_, String>(0).ok()?, row.try_get::<_, String>(1).ok()?));
    let settings: HashMap<String, String> = rows.iter().filter_map(pair).collect();
    findings.extend(durability(&settings));
    // Rows of other users are visible, without their details.
    let standbys = number(&session.call("SELECT count(*) FROM pg_stat_replication", &[]).await?);
    findings.extend(replication(&settings, standbys.unwrap_or(0)));
    Ok(findings)
}

fn number(rows: &[Row]) -> Option<u64> {
    u64::try_from(rows.first()?.try_get::<_, i64>(0).ok()?).ok()
}

fn durability(settings: &HashMap<String, String>) -> Vec<Finding> {
    let is_off = |name: &str| settings.get(name).is_some_and(|value| value == "off");
    let mut findings = Vec::new();
    if is_off("fsync") {
        findings.push(Finding::new(
            Critical,
            "persistence",
            "`fsync = off`: a crash of the machine can damage the database, or set fences back",
            "set `fsync = on`",
        ));
    }
    if is_off("full_page_writes") {
        findings.push(Finding::new(
            Warning,
            "persistence",
            "`full_page_writes = off`: a crash of the machine can damage pages, unless the file system writes them whole",
            "set `full_page_writes = on`",
        ));
    }
    if is_off("synchronous_commit") {
        findings.push(Finding::new(
            Note,
            "persistence",
            "`synchronous_commit = off` is the server's default; the sessions of locks set it to `on`",
            "",
        ));
    }
    findings
}

fn replication(settings: &HashMap<String, String>, standbys: u64) -> Option<Finding> {
    let set = |name: &str| settings.get(name).filter(|value| !value.is_empty());
    let minimal = set("wal_level").is_some_and(|level| level == "minimal");
    match (standbys, set("synchronous_standby_names")) {
        (0, None) => Some(Finding::new(
            Warning,
            "replication",
            format!(
                "this is one server without standbys{}: its crash ends the service and all holds, and the loss of its \
                 disk the fences",
                if minimal { ", and with `wal_level = minimal` it cannot have any" } else { "" }
            ),
            "add a synchronous standby, or use a system that decides by majority: lockkeeper, etcd, ZooKeeper",
        )),
        (0, Some(_)) => Some(Finding::new(
            Critical,
            "replication",
            "`synchronous_standby_names` names standbys, and none is connected: commits, and so requests for locks, wait",
            "start a standby, or clear `synchronous_standby_names`",
        )),
        (standbys, None) => Some(Finding::new(
            Warning,
            "replication",
            format!(
                "{standbys} standbys follow asynchronously: after a promotion, the last changes of detached holds can be lost"
            ),
            "name the standbys in `synchronous_standby_names`",
        )),
        (_, Some(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn settings_that_lose_commits_are_reported() {
        let severities = |pairs: &[(&str, &str)]| -> Vec<Severity> {
            durability(&settings(pairs)).iter().map(|finding| finding.severity).collect()
        };
        let safe = [("fsync", "on"), ("full_page_writes", "on"), ("synchronous_commit", "on")];
        assert_eq!(severities(&safe), []);
        assert_eq!(severities(&[("fsync", "off"), ("full_page_writes", "off")]), [Critical, Warning]);
        assert_eq!(severities(&[("synchronous_commit", "off")]), [Note]);
    }

    #[test]
    fn standbys_are_judged_by_what_a_promotion_loses() {
        let severity = |names: &str, standbys| {
            let settings = settings(&[("synchronous_standby_names", names), ("wal_level", "replica")]);
            replication(&settings, standbys).map(|finding| finding.severity)
        };
        assert_eq!(severity("", 0), Some(Warning));
        assert_eq!(severity("", 1), Some(Warning));
        assert_eq!(severity("any 1 (a, b)", 0), Some(Critical));
        assert_eq!(severity("any 1 (a, b)", 2), None);
        let minimal = replication(&settings(&[("wal_level", "minimal")]), 0).unwrap();
        assert!(minimal.found.contains("wal_level = minimal"), "{minimal:?}");
    }
}
