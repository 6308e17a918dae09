//! The diagnosis of a cluster of lockkeeper's daemons: its size, its health, and its lease.

use super::ClusterEngine;
use crate::Result;
use crate::diagnose::{Finding, Severity, majority};
use Severity::{Critical, Note, Warning};
use lockkeeper_session::protocol::{ClusterLine, DaemonQuery, DaemonReply};
use std::time::{Duration, Instant};

/// The findings about a cluster, as the client's daemon sees it.
pub(super) async fn cluster(engine: &ClusterEngine) -> Result<Vec<Finding>> {
    let asked = Instant::now();
    let line = match engine.query(DaemonQuery::Cluster).await {
        Ok(DaemonReply::Cluster(line)) => line,
        Ok(other) => return Err(super::unexpected(&other)),
        // The token of a client need not permit this query.
        Err(error) => {
            let found = format!("the members of the cluster cannot be listed: {error}");
            return Ok(vec![Finding::new(
                Note,
                "size",
                found,
                "run the diagnosis with a token for operators",
            )]);
        }
    };
    Ok(judge(&line, asked.elapsed()))
}

fn judge(line: &ClusterLine, round_trip: Duration) -> Vec<Finding> {
    let voters = line.members.iter().filter(|member| member.votes).count();
    let mut findings: Vec<Finding> = majority("this cluster", voters).into_iter().collect();
    if !line.serves {
        let why = line.trouble.as_deref().unwrap_or("it has no view");
        findings.push(Finding::new(
            Critical,
            "health",
            format!("member {} grants no locks: {why}", line.member),
            "see `lockkeeper status`, and start the other members",
        ));
    }
    if line.leader.is_none() {
        findings.push(Finding::new(
            Warning,
            "health",
            "no leader is known: the view cannot change, so that the crash of a member is not repaired",
            "a majority of the voters must reach each other: see `lockkeeper members`",
        ));
    }
    for member in line.members.iter().filter(|member| member.id != line.member) {
        let (id, address) = (member.id, &member.address);
        let state = match (member.in_view, member.connected) {
            (true, true) => continue,
            (false, _) => "is not in the view",
            (_, false) => "has no connection to this daemon",
        };
        findings.push(Finding::new(
            Warning,
            "health",
            format!("member {id} at {address} {state}: fewer crashes are survived without it"),
            format!("start it; if it will not come back, `lockkeeper leave --dead {id}`"),
        ));
    }
    if let Some(lease) = setting(line, "lease").and_then(milliseconds)
        && round_trip * 4 > lease
    {
        findings.push(Finding::new(
            Warning,
            "lease",
            format!(
                "an answer took {} ms, and the lease is {} ms: holds younger than the time after which they are \
                 recorded are lost to short delays",
                round_trip.as_millis(),
                lease.as_millis()
            ),
            "use a daemon nearby, or raise the lease: `lockkeeper cluster set lease=…`",
        ));
    }
    findings
}

fn setting<'a>(line: &'a ClusterLine, name: &str) -> Option<&'a str> {
    line.settings.iter().find(|(setting, _)| setting == name).map(|(_, value)| value.as_str())
}

/// Parses `1200ms` or `2s`, as settings are printed.
fn milliseconds(text: &str) -> Option<Duration> {
    match text.strip_suffix("ms") {
        Some(number) => number.parse().ok().map(Duration::from_millis),
        None => text.strip_suffix('s')?.parse().ok().map(Duration::from_secs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_session::protocol::MemberLine;

    fn cluster(members: u32) -> ClusterLine {
        let member =
            |id| MemberLine { id, address: "a:7420".into(), votes: true, in_view: true, connected: true };
        ClusterLine {
            cluster: "c".into(),
            algorithm: "naimi-trehel".into(),
            member: 1,
            serves: true,
            trouble: None,
            epoch: 1,
            lease_ms: 1000,
            leader: Some(1),
            members: (1..=members).map(member).collect(),
            settings: vec![("lease".into(), "1200ms".into())],
        }
    }

    fn found(line: &ClusterLine, round_trip_ms: u64) -> Vec<(Severity, &'static str)> {
        let findings = judge(line, Duration::from_millis(round_trip_ms));
        findings.iter().map(|finding| (finding.severity, finding.check)).collect()
    }

    #[test]
    fn a_healthy_cluster_of_three_has_no_findings() {
        assert_eq!(found(&cluster(3), 5), []);
    }

    #[test]
    fn size_health_and_lease_are_judged() {
        assert_eq!(found(&cluster(1), 5), [(Warning, "size")]);
        let cut = ClusterLine { serves: false, leader: None, ..cluster(3) };
        assert_eq!(found(&cut, 5), [(Critical, "health"), (Warning, "health")]);
        let mut dead = cluster(3);
        dead.members[2].connected = false;
        assert_eq!(found(&dead, 5), [(Warning, "health")]);
        assert_eq!(found(&cluster(3), 400), [(Warning, "lease")]);
    }
}
