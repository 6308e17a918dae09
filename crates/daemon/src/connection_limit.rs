//! Admission of connections: as many as the limits and the system allow, with a share for each kind of client.

use crate::limits::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// File descriptors reserved for members, for connections that have not yet proved to come from a member, and for the
/// daemon's own files.
const RESERVED_FILES: u64 = 256;
/// Minimum number of connections. A daemon that could serve fewer does not start.
const FEWEST_CONNECTIONS: u64 = 16;
/// Number of idle connections that are closed at once when no permit is left, so that not every new connection has to
/// close one.
const IDLE_CLOSED_AT_ONCE: usize = 8;

/// The limit of open files is too low for a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "only {files} files may be open, of which {RESERVED_FILES} are for members and for the daemon itself: raise the limit (ulimit \
     -n, LimitNOFILE= of systemd) to at least {}",
    RESERVED_FILES + FEWEST_CONNECTIONS
)]
pub struct TooFewFiles {
    /// The limit of open files of the process.
    pub files: u64,
}

/// Raises the soft limit of open files to the hard limit and returns the result; `None` if there is no limit.
fn open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// The number of connections that can be served: `wanted`, or as many as the limit of open files permits.
pub(crate) fn usable_connections(wanted: usize) -> Result<usize, TooFewFiles> {
    let most = usable_with(wanted, open_files())?;
    if most < wanted {
        let needed = wanted as u64 + RESERVED_FILES;
        let message = format!(
            "`connections` = {wanted} does not fit into the limit of open files: {most} connections are served; raise the hard \
             limit (ulimit -Hn, LimitNOFILE= of systemd) to {needed}"
        );
        // The default is more than most daemons need, so this is no reason for a warning.
        if wanted == Limits::default().connections {
            tracing::info!("{message}");
        } else {
            tracing::warn!("{message}");
        }
    }
    Ok(most)
}

fn usable_with(wanted: usize, files: Option<u64>) -> Result<usize, TooFewFiles> {
    let Some(files) = files else { return Ok(wanted) };
    let left = files.saturating_sub(RESERVED_FILES);
    if left < FEWEST_CONNECTIONS {
        return Err(TooFewFiles { files });
    }
    Ok(wanted.min(usize::try_from(left).unwrap_or(usize::MAX)))
}

/// A connection that can be closed while it is idle.
pub(crate) trait Idle: Send + Sync {
    /// The time at which the connection became idle; `None` while it is in use.
    fn idle_since(&self) -> Option<Instant>;
    /// Closes the connection.
    fn close(&self);
}

/// Permits for connections of one kind of client. Where both kinds are served, each can take three quarters of all
/// permits, so that a quarter is always left for the other.
pub struct ConnectionLimit {
    all: Arc<Semaphore>,
    kind: Arc<Semaphore>,
    /// Connections that may be closed while idle if no permit is left.
    idle: Mutex<Vec<Weak<dyn Idle>>>,
}

/// The permit of one connection, freed when dropped.
pub struct ConnectionPermit {
    _permits: [OwnedSemaphorePermit; 2],
}

impl ConnectionLimit {
    /// Limits for the two kinds of clients, with `connections` permits in total.
    pub fn for_two_protocols(connections: usize, both_served: bool) -> [Arc<Self>; 2] {
        let connections = connections.clamp(1, Semaphore::MAX_PERMITS);
        let all = Arc::new(Semaphore::new(connections));
        // Example: 8 connections; each kind has at most 6, so at least 2 are left for the other.
        let share = if both_served { connections - connections / 4 } else { connections };
        [(); 2].map(|()| {
            let kind = Arc::new(Semaphore::new(share));
            Arc::new(Self { all: all.clone(), kind, idle: Mutex::default() })
        })
    }

    /// Waits for a permit. If none is free, the connections that have been idle for longest are closed.
    pub async fn acquire(&self) -> ConnectionPermit {
        let take = async |permits: &Arc<Semaphore>| {
            if let Ok(permit) = permits.clone().try_acquire_owned() {
                return permit;
            }
            self.close_idle();
            permits.clone().acquire_owned().await.expect("the semaphore is never closed")
        };
        let kind = take(&self.kind).await;
        ConnectionPermit { _permits: [kind, take(&self.all).await] }
    }

    /// Registers a connection that may be closed while it is idle.
    pub(crate) fn may_close(&self, connection: Weak<dyn Idle>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // Remove closed connections only when the vector is about to grow: amortized O(1).
        if idle.len() == idle.capacity() {
            idle.retain(|known| known.strong_count() > 0);
        }
        idle.push(connection);
    }

    fn close_idle(&self) {
        let mut known = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|known| known.strong_count() > 0);
        let mut idle: Vec<_> = known
            .iter()
            .filter_map(Weak::upgrade)
            .filter_map(|connection| Some((connection.idle_since()?, connection)))
            .collect();
        idle.sort_by_key(|(since, _)| *since);
        idle.iter().take(IDLE_CLOSED_AT_ONCE).for_each(|(_, connection)| connection.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_leaves_places_for_members() {
        assert_eq!(usable_with(20_000, None), Ok(20_000));
        assert_eq!(usable_with(20_000, Some(1024)), Ok(768));
        assert_eq!(usable_with(500, Some(1024)), Ok(500));
        let error = usable_with(500, Some(260)).unwrap_err();
        assert_eq!(error, TooFewFiles { files: 260 });
        let error = error.to_string();
        assert!(error.contains("only 260 files") && error.contains("at least 272"), "{error}");
        assert!(usable_with(1, Some(3)).is_err());
    }

    #[tokio::test]
    async fn one_kind_of_client_leaves_places_for_the_other() {
        let [http, native] = ConnectionLimit::for_two_protocols(8, true);
        let mut permits = Vec::new();
        for _ in 0..6 {
            permits.push(http.acquire().await);
        }
        assert_eq!(http.kind.available_permits(), 0);
        for _ in 0..2 {
            permits.push(native.acquire().await);
        }
        assert_eq!(native.all.available_permits(), 0);
        permits.clear();
        assert_eq!((http.kind.available_permits(), native.all.available_permits()), (6, 8));
    }
}
