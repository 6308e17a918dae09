//! State that all protocols use: the member, access control, the audit log and the limits.

use crate::access::{Access, Denied, Principal};
use crate::audit::{Audit, AuditEntry, AuditEvent, RefusalReason};
use crate::limits::Limits;
use crate::listing;
use crate::rights::Action;
use lockkeeper_cluster::{Acquisition, Error, Member, Result};
use tokio::sync::Notify;

/// State that all protocols use.
pub struct DaemonContext {
    /// The member of the cluster.
    pub member: Member,
    /// The tokens and their permissions.
    pub access: Access,
    /// The audit log.
    pub audit: Audit,
    /// The limits of the daemon.
    pub limits: Limits,
    /// Notified when an operator requests that the daemon leave its cluster and end.
    pub leave: Notify,
}

impl DaemonContext {
    /// Shared state of a daemon with this member.
    pub fn new(member: Member, access: Access, audit: Audit, limits: Limits) -> Self {
        Self { member, access, audit, limits, leave: Notify::new() }
    }

    /// Checks whether a principal may perform an action on a lock. A refusal is written to the audit log.
    pub fn check(
        &self,
        by: &'static str,
        who: &Principal,
        action: Action,
        lock: &str,
    ) -> std::result::Result<(), Denied> {
        let checked = action.check(who, lock);
        if let Err(denied) = &checked {
            let why = denied.to_string();
            let entry = AuditEntry { lock, why: &why, ..AuditEntry::new(AuditEvent::Refuse, by, who.name()) };
            self.audit.refuse(RefusalReason::Permission(action.permission()), &entry);
        }
        checked
    }

    /// The principal of a token. A refusal is written to the audit log.
    pub fn authenticate(
        &self,
        by: &'static str,
        token: Option<&str>,
    ) -> std::result::Result<Principal, Denied> {
        let who = self.access.authenticate(token);
        if who.is_err() {
            let why = if token.is_some() { "the token is unknown or has expired" } else { "no token" };
            self.audit.refuse(
                RefusalReason::Token,
                &AuditEntry { why, ..AuditEntry::new(AuditEvent::Refuse, by, "") },
            );
        }
        who
    }

    /// Releases a lock by force, for all holders or for one of them, and returns the acquisitions that were released.
    pub async fn release_by_force(
        &self,
        by: &'static str,
        who: &Principal,
        lock: &str,
        only: Option<Acquisition>,
    ) -> Result<Vec<Acquisition>> {
        let (view, silent) = listing::read_lock_with_missing(&self.member, lock).await?;
        let mut released = Vec::new();
        for party in view.holders.iter().filter(|party| only.is_none_or(|only| only == party.who.acquisition))
        {
            let holder = &party.who;
            self.member.release_by_force_at(party.node.id, lock, holder.acquisition, who.name()).await?;
            let (acquisition, fence) =
                (Some(holder.acquisition.to_string()), holder.fence.map(|fence| fence.number()));
            let line = AuditEntry::new(AuditEvent::ForceRelease, by, who.name());
            self.audit.write(&AuditEntry { lock, acquisition, fence, ..line });
            released.push(holder.acquisition);
        }
        if let (true, Some(silent)) = (released.is_empty(), silent.first()) {
            return Err(Error::Unavailable(format!(
                "no member that answered holds `{lock}`, but member {} did not answer: try again",
                silent.0
            )));
        }
        Ok(released)
    }
}
