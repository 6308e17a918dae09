//! A member inside the clients' process.

use super::{Client, Lock};
use crate::job::MemberJob;
use lockkeeper_cluster::{Config, HoldGuard, JoinToken, Member, MemberId};
use prometheus_client::registry::Registry;

/// The member of this process.
pub(super) struct Host {
    member: Member,
    registry: Registry,
}

impl Host {
    /// Starts it; returns when all members are in one view.
    pub async fn start(job: &MemberJob) -> Result<Host, String> {
        let own = job.members.get(job.id as usize - 1).ok_or("the member is not in the list of members")?;
        let mut config = Config::new(MemberId(job.id), *own, &job.data);
        config.join_token = Some(JoinToken::read(&job.join_token).map_err(|error| error.to_string())?);
        let addresses = job.members.iter().map(ToString::to_string);
        config.first_members = (1..).map(MemberId).zip(addresses).collect();
        let member = Member::start(config).await.map_err(|error| error.to_string())?;
        let mut changes = member.status_changes();
        while member.status().view.is_none_or(|view| view.members.len() != job.members.len()) {
            changes.changed().await.map_err(|_| String::from("the member stopped"))?;
        }
        member.ready().await.map_err(|error| error.to_string())?;
        let mut registry = Registry::default();
        member.register_metrics(&mut registry);
        Ok(Host { member, registry })
    }

    /// Number of messages that it has sent to other members for locks.
    pub fn messages(&self) -> f64 {
        let mut text = String::new();
        if prometheus_client::encoding::text::encode(&mut text, &self.registry).is_err() {
            return 0.0;
        }
        crate::metrics::sum(&text, "lockkeeper_messages_total")
    }
}

/// A client in the member's process.
pub(super) struct InProcess {
    member: Member,
    held: Option<HoldGuard>,
}

impl InProcess {
    /// A client with a session of its own.
    pub async fn open(host: Option<&Host>) -> Result<InProcess, String> {
        let host = host.ok_or("there is no member in this process")?;
        Ok(InProcess { member: host.member.new_owner(), held: None })
    }
}

impl Client for InProcess {
    async fn acquire(&mut self, lock: Lock<'_>) -> Result<Option<u64>, String> {
        let guard = self.member.mutex(lock.name).acquire().await.map_err(|error| error.to_string())?;
        let fence = guard.fence();
        self.held = Some(guard);
        Ok(Some(fence))
    }

    async fn release(&mut self) -> Result<(), String> {
        match self.held.take() {
            Some(guard) => guard.release().await.map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }
}
