//! The Raft library's network to other stores.

use super::locked;
use super::store_stamps::StoreStamps;
use super::types::{StoreName, StoreNode, Types, Vote};
use super::wire::{self, ConsensusQuery, ConsensusReply, QueryMessage, ReplyMessage, Rpc, StoreStamp};
use crate::store::Store;
use lockkeeper_member::MemberId;
use openraft::error::{
    Fatal, PayloadTooLarge, RPCError, RaftError, ReplicationClosed, StreamingError,
    Unreachable as RaftUnreachable,
};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetwork, RaftNetworkFactory, Snapshot};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QueryFailed(pub String);

/// A pending answer.
pub type PendingReply = Pin<Box<dyn Future<Output = Result<Vec<u8>, QueryFailed>> + Send>>;

/// The transport of consensus queries to other members.
pub trait QueryTransport: Send + Sync + 'static {
    /// Sends a query to a member, which should be at this address.
    fn send_query(&self, to: MemberId, address: &str, query: Vec<u8>, within: Duration) -> PendingReply;
    /// Sends a query to the member that listens at this address.
    fn send_query_to_address(&self, address: &str, query: Vec<u8>, within: Duration) -> PendingReply;
}

/// The connections of this store to the others. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Network {
    pub member: MemberId,
    pub store: Store,
    /// The random number of this process, and the store's number of commits at its start.
    pub start: u64,
    pub opened: u64,
    /// The highest number of commits seen of each other store.
    pub stamps: Arc<StoreStamps>,
    /// Whether another member has rejected this store because its number of commits is lower than before: its disk was
    /// restored from a backup.
    pub restored: Arc<AtomicBool>,
    pub transport: Arc<dyn QueryTransport>,
    /// The cluster's id; 0 before there is one.
    pub cluster: Arc<AtomicU64>,
    /// The time of the last answer of each store.
    pub last_replies: Arc<Mutex<BTreeMap<StoreName, Instant>>>,
    /// Delay before the library sends a failed message again.
    pub pause: Duration,
}

impl Network {
    /// Sends a query to a member, or to the one that listens at the address.
    pub async fn query(
        &self,
        to: Option<MemberId>,
        address: &str,
        query: ConsensusQuery,
        within: Duration,
    ) -> Result<ConsensusReply, QueryFailed> {
        let message = QueryMessage { member: self.member, stamp: self.stamp(), query };
        let bytes = wire::write(&message).map_err(|error| QueryFailed(error.to_string()))?;
        let pending = match to {
            Some(member) => self.transport.send_query(member, address, bytes, within),
            None => self.transport.send_query_to_address(address, bytes, within),
        };
        let late = |_| QueryFailed(format!("no answer from {address} within {within:?}"));
        let reply = tokio::time::timeout(within, pending).await.map_err(late)??;
        let message: ReplyMessage = wire::read(&reply)
            .map_err(|error| QueryFailed(format!("{address} gave an answer, but {error}")))?;
        if !self.stamps.accept(&message.stamp) {
            return Err(QueryFailed(format!(
                "the disk of the member at {address} was restored from a backup"
            )));
        }
        if matches!(message.reply, ConsensusReply::Restored) {
            self.restored.store(true, Ordering::SeqCst);
            return Err(QueryFailed(String::from("this member's disk was restored from a backup")));
        }
        Ok(message.reply)
    }

    /// This store's name and number of commits, which go with every message.
    pub fn stamp(&self) -> StoreStamp {
        let (start, opened) = (self.start, self.opened);
        StoreStamp { store: self.store.name(), start, opened, commits: self.store.commits() }
    }

    /// The stores that have answered within this time.
    pub fn replied_within(&self, silence_limit: Duration) -> Vec<StoreName> {
        let last_replies = locked(&self.last_replies);
        last_replies.iter().filter(|(_, at)| at.elapsed() <= silence_limit).map(|(&store, _)| store).collect()
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = RaftPeer;

    async fn new_client(&mut self, target: StoreName, node: &StoreNode) -> RaftPeer {
        RaftPeer { network: self.clone(), store: target, node: node.clone() }
    }
}

/// The connection to one store.
pub(crate) struct RaftPeer {
    network: Network,
    store: StoreName,
    node: StoreNode,
}

type RpcError = RPCError<StoreName, StoreNode, RaftError<StoreName>>;

impl RaftPeer {
    async fn send(&self, rpc: Rpc, within: Duration) -> Result<ConsensusReply, RaftUnreachable> {
        let cluster = self.network.cluster.load(Ordering::SeqCst);
        let query = ConsensusQuery::Raft { cluster, to: self.store, rpc };
        let pending = self.network.query(Some(self.node.member), &self.node.address, query, within);
        let reply = pending.await.map_err(|error| RaftUnreachable::new(&error))?;
        if let ConsensusReply::Refused(why) = reply {
            return Err(RaftUnreachable::new(&QueryFailed(why)));
        }
        let mut last_replies = locked(&self.network.last_replies);
        last_replies.insert(self.store, Instant::now());
        Ok(reply)
    }
}

/// Error: the answer does not fit the query.
fn unexpected_reply() -> RaftUnreachable {
    RaftUnreachable::new(&QueryFailed("an answer to another query".to_string()))
}

impl RaftNetwork<Types> for RaftPeer {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<StoreName>, RpcError> {
        let entries = rpc.entries.len() as u64;
        let rpc = Rpc::Append(rpc);
        let bytes = postcard::experimental::serialized_size(&rpc).unwrap_or(usize::MAX);
        if entries > 1 && bytes > wire::MOST_BYTES / 2 {
            return Err(RPCError::PayloadTooLarge(PayloadTooLarge::new_entries_hint(entries / 2)));
        }
        match self.send(rpc, option.hard_ttl()).await? {
            ConsensusReply::Append(reply) => Ok(reply),
            _ => Err(unexpected_reply().into()),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<StoreName>,
        option: RPCOption,
    ) -> Result<VoteResponse<StoreName>, RpcError> {
        match self.send(Rpc::Vote(rpc), option.hard_ttl()).await? {
            ConsensusReply::Vote(reply) => Ok(reply),
            _ => Err(unexpected_reply().into()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<Types>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<StoreName>, StreamingError<Types, Fatal<StoreName>>> {
        let rpc = Rpc::Snapshot { vote, meta: snapshot.meta, state: snapshot.snapshot.into_inner() };
        match self.send(rpc, option.hard_ttl()).await? {
            ConsensusReply::Snapshot(reply) => Ok(reply),
            _ => Err(unexpected_reply().into()),
        }
    }

    /// Snapshots are small and are sent as a whole, by `full_snapshot`.
    async fn install_snapshot(
        &mut self,
        _rpc: InstallSnapshotRequest<Types>,
        _option: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<StoreName>,
        RPCError<StoreName, StoreNode, RaftError<StoreName, openraft::error::InstallSnapshotError>>,
    > {
        Err(RPCError::Unreachable(unexpected_reply()))
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.network.pause))
    }
}
