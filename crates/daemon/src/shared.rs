//! What every way of asking needs: the member, and who may do what.

use crate::access::{Access, Denied, Principal};
use crate::audit::{Audit, Entry, Refused};
use crate::limits::Limits;
use crate::listing;
use crate::rights::Action;
use lockkeeper_cluster::{Acquisition, Error, Member, Result};
use tokio::sync::Notify;

/// What every way of asking needs.
pub struct Shared {
    /// The member of the cluster.
    pub member: Member,
    /// Who may do what.
    pub access: Access,
    /// What happened.
    pub audit: Audit,
    /// How much may be asked for.
    pub limits: Limits,
    /// Somebody wants the daemon to leave its cluster and to end.
    pub leave: Notify,
}

impl Shared {
    /// A member, and who may do what by way of it.
    pub fn new(member: Member, access: Access, audit: Audit, limits: Limits) -> Self {
        Self { member, access, audit, limits, leave: Notify::new() }
    }

    /// Whether a principal may do this to that lock. A refusal is logged.
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
            let entry = Entry { lock, why: &why, ..Entry::new("refuse", by, who.name()) };
            self.audit.refuse(Refused::Permission(action.permission()), &entry);
        }
        checked
    }

    /// Who shows this token. A refusal is logged.
    pub fn who(&self, by: &'static str, token: Option<&str>) -> std::result::Result<Principal, Denied> {
        let who = self.access.who(token);
        if who.is_err() {
            let why = if token.is_some() { "the token is unknown or has expired" } else { "no token" };
            self.audit.refuse(Refused::Token, &Entry { why, ..Entry::new("refuse", by, "") });
        }
        who
    }

    /// Takes a lock away from all who hold it, or from one of them. Says from whom.
    pub async fn release_by_force(
        &self,
        by: &'static str,
        who: &Principal,
        lock: &str,
        only: Option<Acquisition>,
    ) -> Result<Vec<Acquisition>> {
        let (view, silent) = listing::one_of(&self.member, lock).await?;
        let mut released = Vec::new();
        for party in view.holders.iter().filter(|party| only.is_none_or(|only| only == party.who.acquisition))
        {
            let holder = &party.who;
            self.member.release_by_force_at(party.node.id, lock, holder.acquisition).await?;
            let (acquisition, fence) =
                (Some(holder.acquisition.to_string()), holder.fence.map(|fence| fence.number()));
            let line = Entry::new("force-release", by, who.name());
            self.audit.write(&Entry { lock, acquisition, fence, ..line });
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
