//! A member inside the clients' process.

use super::{Client, ClientError, Lock};
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
    pub async fn start(job: &MemberJob) -> Result<Host, ClientError> {
        let own = job.members.get(job.id as usize - 1).ok_or(ClientError::UnknownMember)?;
        let mut config = Config::new(MemberId(job.id), *own, &job.data);
        let join_token = JoinToken::read(&job.join_token);
        config.join_token = Some(join_token.map_err(|error| ClientError::JoinToken(error.into()))?);
        let addresses = job.members.iter().map(ToString::to_string);
        config.first_members = (1..).map(MemberId).zip(addresses).collect();
        let member = Member::start(config).await?;
        let mut changes = member.status_changes();
        while member.status().view.is_none_or(|view| view.members.len() != job.members.len()) {
            changes.changed().await.map_err(|_| ClientError::MemberStopped)?;
        }
        member.ready().await?;
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
    pub async fn open(host: Option<&Host>) -> Result<InProcess, ClientError> {
        let host = host.ok_or(ClientError::NoMember)?;
        Ok(InProcess { member: host.member.new_owner(), held: None })
    }
}

impl Client for InProcess {
    async fn acquire(&mut self, lock: Lock<'_>) -> Result<Option<u64>, ClientError> {
        let guard = self.member.mutex(lock.name).acquire().await?;
        let fence = guard.fence();
        self.held = Some(guard);
        Ok(Some(fence))
    }

    async fn release(&mut self) -> Result<(), ClientError> {
        match self.held.take() {
            Some(guard) => Ok(guard.release().await?),
            None => Ok(()),
        }
    }
}
