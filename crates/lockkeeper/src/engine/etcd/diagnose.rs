//! The diagnosis of an etcd cluster: its size and health.

use super::server::Server;
use crate::Result;
use crate::diagnose::{Finding, Severity, majority};
use Severity::{Critical, Note, Warning};
use lockkeeper_etcd_api::etcdserverpb::{AlarmMember, AlarmType, Member};
use std::time::Duration;
use tokio::net::TcpStream;

/// The time limit for a connection to a member.
const CONNECT: Duration = Duration::from_secs(2);

/// The findings about a cluster.
pub(super) async fn cluster(server: &Server) -> Result<Vec<Finding>> {
    let members = match server.members().await {
        Ok(members) => members,
        // A proxy in front of the cluster may pass on only keys and leases.
        Err(error) => {
            let found = format!("the members of the cluster cannot be listed: {error}");
            return Ok(vec![Finding::new(Note, "size", found, "name the members themselves in the URL")]);
        }
    };
    let mut findings = sizes(&members);
    for member in members.iter().filter(|member| !member.name.is_empty()) {
        findings.extend(unreachable(member).await);
    }
    match server.alarms().await {
        Ok(alarms) => findings.extend(alarms.iter().filter_map(alarm)),
        Err(error) => findings.push(Finding::new(
            Note,
            "alarms",
            format!("the alarms of the cluster cannot be read: {error}"),
            "run the diagnosis as a user with the role `root`",
        )),
    }
    Ok(findings)
}

fn sizes(members: &[Member]) -> Vec<Finding> {
    let voters = members.iter().filter(|member| !member.is_learner).count();
    let mut findings: Vec<Finding> = majority("this etcd cluster", voters).into_iter().collect();
    for member in members.iter().filter(|member| member.name.is_empty()) {
        findings.push(Finding::new(
            Warning,
            "health",
            format!("the member {:x} has not been started, and counts for the majority", member.id),
            "start it, or remove it with `etcdctl member remove`",
        ));
    }
    findings
}

/// The finding if no connection to a member can be opened from here.
async fn unreachable(member: &Member) -> Option<Finding> {
    let addresses: Vec<&str> = member.client_ur_ls.iter().filter_map(|url| address(url)).collect();
    for address in &addresses {
        if let Ok(Ok(_)) = tokio::time::timeout(CONNECT, TcpStream::connect(*address)).await {
            return None;
        }
    }
    Some(Finding::new(
        Warning,
        "health",
        format!(
            "the member `{}` cannot be reached from here (it advertises {:?}): fewer crashes are survived without it",
            member.name, member.client_ur_ls
        ),
        "start it, or correct its `--advertise-client-urls`",
    ))
}

/// The `host:port` of a URL.
fn address(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    rest.split('/').next().filter(|address| address.contains(':'))
}

fn alarm(alarm: &AlarmMember) -> Option<Finding> {
    let member = alarm.member_id;
    Some(match AlarmType::try_from(alarm.alarm).ok()? {
        AlarmType::None => return None,
        AlarmType::Nospace => Finding::new(
            Critical,
            "alarms",
            format!("the member {member:x} has reported that its quota is used up: no lock can be acquired"),
            "compact and defragment the store, then run `etcdctl alarm disarm`",
        ),
        AlarmType::Corrupt => Finding::new(
            Critical,
            "alarms",
            format!("the member {member:x} has other data than its peers"),
            "replace the member as etcd's documentation describes",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, is_learner: bool) -> Member {
        Member { id: 7, name: name.into(), is_learner, ..Member::default() }
    }

    #[test]
    fn learners_do_not_count_and_members_that_never_started_do() {
        let checks = |members: &[Member]| -> Vec<&str> {
            sizes(members).iter().map(|finding| finding.check).collect()
        };
        let three = [member("a", false), member("b", false), member("c", false)];
        assert_eq!(checks(&three), [""; 0]);
        assert_eq!(checks(&three[..1]), ["size"]);
        assert_eq!(checks(&[member("a", false), member("b", true)]), ["size"]);
        assert_eq!(checks(&[three[0].clone(), three[1].clone(), member("", false)]), ["health"]);
    }

    #[test]
    fn alarms_are_critical() {
        let severity = |kind: AlarmType| {
            alarm(&AlarmMember { member_id: 7, alarm: kind as i32 }).map(|finding| finding.severity)
        };
        assert_eq!(
            [AlarmType::None, AlarmType::Nospace, AlarmType::Corrupt].map(severity),
            [None, Some(Critical), Some(Critical)]
        );
    }

    #[test]
    fn the_address_of_a_member_is_taken_from_its_url() {
        assert_eq!(address("http://10.0.0.1:2379"), Some("10.0.0.1:2379"));
        assert_eq!(address("https://[::1]:2379/"), Some("[::1]:2379"));
        assert_eq!(address("unix://socket"), None);
        assert_eq!(address("nonsense"), None);
    }
}
