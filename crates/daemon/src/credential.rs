//! [`Credential`]: the rights of a connection, stream or waiting request, kept current for as long as it lasts.

use crate::access::{Denied, Principal};
use crate::context::DaemonContext;
use crate::rights::Action;
use std::sync::Arc;
use tokio::sync::watch;

/// A principal whose rights are looked up again whenever the tokens change. Everything that outlasts a single request
/// has a credential, and ends when its token is removed or expires.
pub(crate) struct Credential {
    context: Arc<DaemonContext>,
    who: Principal,
    changes: watch::Receiver<usize>,
}

impl Credential {
    pub fn new(context: Arc<DaemonContext>, who: Principal) -> Self {
        let mut changes = context.access.changes();
        // The tokens may have changed since the principal was looked up.
        changes.mark_changed();
        Self { context, who, changes }
    }

    /// The principal, with the rights of the last lookup.
    pub fn who(&self) -> &Principal {
        &self.who
    }

    /// Resolves when the principal's rights have changed; an error if its token is no longer valid.
    pub async fn changed(&mut self) -> Result<(), Denied> {
        loop {
            if self.changes.changed().await.is_err() {
                // The sender lives as long as `shared`.
                std::future::pending::<()>().await;
            }
            let now = self.context.access.current(&self.who)?;
            if now != self.who {
                self.who = now;
                return Ok(());
            }
        }
    }

    /// Resolves with the reason once the principal may no longer perform the action on the lock.
    pub async fn denied(&mut self, action: Action, lock: &str) -> Denied {
        loop {
            if let Err(denied) = action.check(&self.who, lock) {
                return denied;
            }
            if let Err(denied) = self.changed().await {
                return denied;
            }
        }
    }
}
