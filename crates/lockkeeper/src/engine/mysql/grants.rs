//! One query for the grants of all waiters of a process.

use super::server::{Server, column, value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// The interval between two queries.
const INTERVAL: Duration = Duration::from_millis(25);

/// The waiters of this process.
#[derive(Default)]
pub(super) struct Grants {
    state: Mutex<State>,
    /// Ends the pause before the next query.
    now: Notify,
}

#[derive(Default)]
struct State {
    /// The waiters to wake, by holder.
    waiting: HashMap<String, Arc<Notify>>,
    /// Whether the task that queries runs.
    queried: bool,
}

impl Grants {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Registers a waiter, which is woken when its request is granted, until it is dropped.
    pub fn waiter(&self, server: &Arc<Server>, holder: &str) -> Waiter {
        let woken = Arc::new(Notify::new());
        let mut state = self.state();
        state.waiting.insert(holder.into(), woken.clone());
        if !std::mem::replace(&mut state.queried, true) {
            tokio::spawn(query(Arc::downgrade(server)));
        }
        Waiter { server: server.clone(), holder: holder.into(), woken }
    }

    /// Queries at once: a hold of this process has ended, and another request of this process may be next.
    pub fn check_now(&self) {
        self.now.notify_one();
    }
}

/// Queries while there are waiters.
async fn query(server: Weak<Server>) {
    loop {
        let Some(server) = server.upgrade() else { return };
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = server.grants.now.notified() => {}
        }
        {
            let mut state = server.grants.state();
            if state.waiting.is_empty() {
                state.queried = false;
                return;
            }
        }
        let sql =
            "SELECT holder FROM lockkeeper_queue WHERE client = ? AND NOT claimed AND fence IS NOT NULL";
        // A failure is reported by the waiters' own calls.
        let Ok(reply) = server.call(sql, vec![value(server.client.as_str())]).await else { continue };
        let state = server.grants.state();
        for row in &reply.rows {
            let woken = column::<String>(row, 0).ok().and_then(|holder| state.waiting.get(&holder));
            woken.inspect(|woken| woken.notify_one());
        }
    }
}

pub(super) struct Waiter {
    server: Arc<Server>,
    holder: String,
    woken: Arc<Notify>,
}

impl Waiter {
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.server.grants.state().waiting.remove(&self.holder);
    }
}
