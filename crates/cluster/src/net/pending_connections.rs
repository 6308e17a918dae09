//! Incoming connections that have not yet proved that they come from a member. Their number is limited, and they cannot
//! keep a member from connecting.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The incoming connections that have not yet proved that they come from a member.
///
/// When there are too many, the oldest connection of the address with the most connections is closed. So silent
/// connections make room for those that send a greeting, and one address cannot occupy the slots of the others.
pub(super) struct PendingConnections {
    limit: usize,
    state: Mutex<PendingState>,
}

#[derive(Default)]
struct PendingState {
    arrived: u64,
    /// In the order of arrival. A connection must close when its sender is dropped.
    connections: BTreeMap<u64, (IpAddr, oneshot::Sender<()>)>,
}

/// One such connection. Dropping it frees the slot: the connection has been authenticated or has ended.
pub(super) struct PendingConnection {
    all: Arc<PendingConnections>,
    number: u64,
}

impl PendingConnections {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, PendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a new connection, and closes an older one if there are too many. The returned receiver resolves when
    /// the new one has to close itself.
    pub fn register(self: &Arc<Self>, from: IpAddr) -> (PendingConnection, oneshot::Receiver<()>) {
        let (eviction, evicted) = oneshot::channel();
        let mut state = self.state();
        while state.connections.len() >= self.limit {
            let Some(oldest) = state.most_crowded() else { break };
            state.connections.remove(&oldest);
        }
        state.arrived += 1;
        let number = state.arrived;
        state.connections.insert(number, (from, eviction));
        (PendingConnection { all: self.clone(), number }, evicted)
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.state().connections.len()
    }
}

impl PendingState {
    /// The oldest connection of the address with the most connections. Among addresses with equally many, the one with
    /// the oldest connection.
    fn most_crowded(&self) -> Option<u64> {
        // Number of connections and oldest connection of each address.
        let mut addresses: BTreeMap<IpAddr, (usize, u64)> = BTreeMap::new();
        for (&number, (from, _)) in &self.connections {
            addresses.entry(*from).or_insert((0, number)).0 += 1;
        }
        let crowd = |&(count, oldest): &(usize, u64)| (count, std::cmp::Reverse(oldest));
        addresses.into_values().max_by_key(crowd).map(|(_, oldest)| oldest)
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        self.all.state().connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_connection_of_the_most_crowded_address_goes_first() {
        let connections = PendingConnections::new(4);
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let (_member, mut member_goes) = connections.register(address(1));
        let mut crowd: Vec<_> = (0..3).map(|_| connections.register(address(2))).collect();
        let gone = |evicted: &mut oneshot::Receiver<()>| {
            evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed)
        };
        for round in 0..10 {
            crowd.push(connections.register(address(2)));
            assert_eq!(connections.count(), 4);
            assert!(gone(&mut crowd[round].1), "{round}: the oldest of the crowd");
            assert!(!gone(&mut crowd[round + 1].1), "{round}: and no other");
        }
        assert!(!gone(&mut member_goes), "another address keeps its place");
        drop(crowd);
        assert_eq!(connections.count(), 1);
        let _others: Vec<_> = (3..=6).map(|last| connections.register(address(last))).collect();
        assert!(gone(&mut member_goes), "among equals the oldest goes");
    }
}
