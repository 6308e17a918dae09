//! What every way of asking needs: the member, and who may do what.

use crate::access::{Access, Denied, Permission, Principal};
use crate::audit::{Audit, Entry};
use crate::limits::Limits;
use lockkeeper_cluster::Member;

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
}

impl Shared {
    /// Whether somebody may do this to that lock. A refusal is logged.
    pub fn check(
        &self,
        by: &'static str,
        who: &Principal,
        permission: Permission,
        lock: &str,
    ) -> Result<(), Denied> {
        let checked = who.check(permission, lock);
        if let Err(denied) = &checked {
            let why = denied.to_string();
            self.audit.write(&Entry { lock, why: &why, ..Entry::new("refuse", by, who.name()) });
        }
        checked
    }

    /// Who shows this token. A refusal is logged.
    pub fn who(&self, by: &'static str, token: Option<&str>) -> Result<Principal, Denied> {
        let who = self.access.who(token);
        if who.is_err() {
            let why = if token.is_some() { "the token is unknown or has expired" } else { "no token" };
            self.audit.write(&Entry { why, ..Entry::new("refuse", by, "") });
        }
        who
    }
}
