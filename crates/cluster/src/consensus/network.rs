//! The Raft library's network to other stores.

use super::disks::Disks;
use super::locked;
use super::types::{Place, StoreName, Types, Vote};
use super::wire::{self, Answer, Answered, Asked, Disk, Question, Rpc};
use crate::store::Store;
use lockkeeper_member::MemberId;
use openraft::error::{
    Fatal, PayloadTooLarge, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable as Gone,
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
pub(crate) struct Unreachable(pub String);

/// A pending answer.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Vec<u8>, Unreachable>> + Send>>;

/// The transport of consensus queries to other members.
pub(crate) trait Ask: Send + Sync + 'static {
    /// Sends a query to a member, which should be at this address.
    fn ask(&self, to: MemberId, address: &str, question: Vec<u8>, within: Duration) -> Answering;
    /// Sends a query to the member that listens at this address.
    fn ask_address(&self, address: &str, question: Vec<u8>, within: Duration) -> Answering;
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
    pub disks: Arc<Disks>,
    /// Whether another member has detected that this store is older than its earlier messages.
    pub restored: Arc<AtomicBool>,
    pub ask: Arc<dyn Ask>,
    /// The cluster's id; 0 before there is one.
    pub cluster: Arc<AtomicU64>,
    /// The time of the last answer of each store.
    pub heard: Arc<Mutex<BTreeMap<StoreName, Instant>>>,
    /// Delay before the library tries again.
    pub pause: Duration,
}

impl Network {
    /// Sends a query to a member, or to the one that listens at the address.
    pub async fn question(
        &self,
        to: Option<MemberId>,
        address: &str,
        question: Question,
        within: Duration,
    ) -> Result<Answer, Unreachable> {
        let asked = Asked { member: self.member, disk: self.disk(), question };
        let bytes = wire::write(&asked).map_err(|error| Unreachable(error.to_string()))?;
        let answering = match to {
            Some(member) => self.ask.ask(member, address, bytes, within),
            None => self.ask.ask_address(address, bytes, within),
        };
        let late = |_| Unreachable(format!("no answer from {address} within {within:?}"));
        let answer = tokio::time::timeout(within, answering).await.map_err(late)??;
        let answered: Answered = wire::read(&answer)
            .map_err(|error| Unreachable(format!("{address} gave an answer, but {error}")))?;
        if !self.disks.accept(&answered.disk) {
            return Err(Unreachable(format!(
                "the disk of the member at {address} was restored from a backup"
            )));
        }
        if matches!(answered.answer, Answer::Restored) {
            self.restored.store(true, Ordering::SeqCst);
            return Err(Unreachable(String::from("this member's disk was restored from a backup")));
        }
        Ok(answered.answer)
    }

    /// This store's name and number of commits, which go with every message.
    pub fn disk(&self) -> Disk {
        let (start, opened) = (self.start, self.opened);
        Disk { store: self.store.name(), start, opened, commits: self.store.commits() }
    }

    /// The stores that have answered within this time.
    pub fn heard_within(&self, lately: Duration) -> Vec<StoreName> {
        let heard = locked(&self.heard);
        heard.iter().filter(|(_, at)| at.elapsed() <= lately).map(|(&store, _)| store).collect()
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: StoreName, node: &Place) -> Peer {
        Peer { network: self.clone(), store: target, place: node.clone() }
    }
}

/// The connection to one store.
pub(crate) struct Peer {
    network: Network,
    store: StoreName,
    place: Place,
}

type RpcError = RPCError<StoreName, Place, RaftError<StoreName>>;

impl Peer {
    async fn say(&self, rpc: Rpc, within: Duration) -> Result<Answer, Gone> {
        let cluster = self.network.cluster.load(Ordering::SeqCst);
        let question = Question::Raft { cluster, to: self.store, rpc };
        let asking = self.network.question(Some(self.place.member), &self.place.address, question, within);
        let answer = asking.await.map_err(|error| Gone::new(&error))?;
        if let Answer::Refused(why) = answer {
            return Err(Gone::new(&Unreachable(why)));
        }
        let mut heard = locked(&self.network.heard);
        heard.insert(self.store, Instant::now());
        Ok(answer)
    }
}

/// Error: the answer does not fit the query.
fn beside_the_point() -> Gone {
    Gone::new(&Unreachable("an answer to another question".to_string()))
}

impl RaftNetwork<Types> for Peer {
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
        match self.say(rpc, option.hard_ttl()).await? {
            Answer::Append(answer) => Ok(answer),
            _ => Err(beside_the_point().into()),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<StoreName>,
        option: RPCOption,
    ) -> Result<VoteResponse<StoreName>, RpcError> {
        match self.say(Rpc::Vote(rpc), option.hard_ttl()).await? {
            Answer::Vote(answer) => Ok(answer),
            _ => Err(beside_the_point().into()),
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
        match self.say(rpc, option.hard_ttl()).await? {
            Answer::Snapshot(answer) => Ok(answer),
            _ => Err(beside_the_point().into()),
        }
    }

    /// Snapshots are small and are sent as a whole, by `full_snapshot`.
    async fn install_snapshot(
        &mut self,
        _rpc: InstallSnapshotRequest<Types>,
        _option: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<StoreName>,
        RPCError<StoreName, Place, RaftError<StoreName, openraft::error::InstallSnapshotError>>,
    > {
        Err(RPCError::Unreachable(beside_the_point()))
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.network.pause))
    }
}
