//! [`Credential`]: what a connection, a stream or a waiting request is allowed, for as long as it lasts.

use crate::access::{Denied, Principal};
use crate::rights::Action;
use crate::shared::Shared;
use std::sync::Arc;
use tokio::sync::watch;

/// A principal whose rights are looked up again whenever the tokens change. Everything that lasts longer than one request has one, and
/// ends when its token is removed or expires.
pub(crate) struct Credential {
    shared: Arc<Shared>,
    who: Principal,
    changes: watch::Receiver<usize>,
}

impl Credential {
    pub fn new(shared: Arc<Shared>, who: Principal) -> Self {
        let mut changes = shared.access.changes();
        // The tokens may have changed since the principal was looked up.
        changes.mark_changed();
        Self { shared, who, changes }
    }

    /// The principal, with the rights that it had at the last look.
    pub fn who(&self) -> &Principal {
        &self.who
    }

    /// Resolves when the principal has other rights than before; an error if it has none any more.
    pub async fn changed(&mut self) -> Result<(), Denied> {
        loop {
            if self.changes.changed().await.is_err() {
                // The sender lives as long as `shared`.
                std::future::pending::<()>().await;
            }
            let now = self.shared.access.current(&self.who)?;
            if now != self.who {
                self.who = now;
                return Ok(());
            }
        }
    }

    /// Resolves once the principal may not do this to that lock any more, and tells why.
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
