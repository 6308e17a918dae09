//! Dispatches incoming messages to the member or to consensus, and gives consensus access to its peers.

use crate::engine::Engine;
use crate::net::{self, BoxFuture, Net, Refused};
use lockkeeper_consensus::{Consensus, PendingReply, QueryFailed, QueryTransport};
use lockkeeper_member::{Acquisition, ClusterSettings, LockName, MemberId};
use serde::{Deserialize, Serialize};
use std::pin::Pin;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

/// A query between members, besides the frames of the algorithms.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum MemberQuery {
    /// A message between the consensus instances of two members.
    Consensus(Vec<u8>),
    /// Revokes this acquisition's hold on this lock, on behalf of the operator of this name. The receiver is the member
    /// of the client.
    Revoke(LockName, Acquisition, String),
    /// A query between the applications that embed the members. Its bytes are opaque here.
    User(Vec<u8>),
    /// Requests the leader to decide these settings. The answer is an error text, empty on success.
    Change(ClusterSettings),
}

impl MemberQuery {
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("a query can be encoded into memory")
    }
}

/// Answers queries of the application that embeds another member of the cluster.
pub trait QueryHandler: Send + Sync {
    /// Answers a query from that member's application.
    fn handle_query(&self, from: MemberId, query: Vec<u8>) -> Pin<Box<dyn Future<Output = Vec<u8>> + Send>>;
}

/// The receiver of everything that arrives over the network.
pub(crate) struct Dispatcher {
    pub engine: Weak<dyn Engine>,
    pub consensus: OnceLock<Consensus>,
    pub user: OnceLock<Weak<dyn QueryHandler>>,
}

impl net::Handler for Dispatcher {
    fn frame(&self, from: MemberId, bytes: &[u8]) -> Result<(), Refused> {
        match self.engine.upgrade() {
            Some(engine) => engine.receive_frame(from, bytes).map_err(|error| Refused(error.into())),
            None => Ok(()),
        }
    }

    fn batch_done(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.flush();
        }
    }

    fn handle_query(&self, from: MemberId, bytes: Vec<u8>) -> BoxFuture<Vec<u8>> {
        let consensus = self.consensus.get().cloned();
        let engine = self.engine.upgrade();
        let user = self.user.get().and_then(Weak::upgrade);
        Box::pin(async move {
            match postcard::from_bytes(&bytes) {
                Ok(MemberQuery::Consensus(query)) => match consensus {
                    Some(consensus) => consensus.handle_query(from, &query).await,
                    None => Vec::new(),
                },
                Ok(MemberQuery::Revoke(lock, acquisition, by)) => {
                    if let Some(engine) = engine {
                        engine.revoke(lock, acquisition, by);
                    }
                    Vec::new()
                }
                Ok(MemberQuery::Change(settings)) => match engine {
                    Some(engine) => match engine.propose_settings(settings) {
                        Ok(()) => Vec::new(),
                        Err(why) => why.to_string().into_bytes(),
                    },
                    None => b"this member has stopped; try again".to_vec(),
                },
                Ok(MemberQuery::User(query)) => match user {
                    Some(user) => user.handle_query(from, query).await,
                    None => Vec::new(),
                },
                Err(error) => {
                    tracing::warn!(%from, %error, "a query cannot be read");
                    Vec::new()
                }
            }
        })
    }

    fn connected(&self, peer: MemberId) {
        if let Some(engine) = self.engine.upgrade() {
            engine.peer_connected(peer);
        }
    }
}

/// Sends the queries of consensus over the network. The network dispatches incoming queries to consensus, so this
/// reference is weak: neither keeps the other alive.
pub(crate) struct ConsensusTransport(pub Weak<Net>);

fn stopped() -> QueryFailed {
    QueryFailed(String::from("the network has stopped"))
}

impl QueryTransport for ConsensusTransport {
    fn send_query(&self, to: MemberId, address: &str, query: Vec<u8>, within: Duration) -> PendingReply {
        let (net, address) = (self.0.upgrade(), String::from(address));
        let query = MemberQuery::Consensus(query).encode();
        Box::pin(async move {
            let net = net.ok_or_else(stopped)?;
            net.query(to, &address, query, within).await.map_err(|error| QueryFailed(error.0))
        })
    }

    fn send_query_to_address(&self, address: &str, query: Vec<u8>, within: Duration) -> PendingReply {
        let (net, address) = (self.0.upgrade(), String::from(address));
        let query = MemberQuery::Consensus(query).encode();
        Box::pin(async move {
            let net = net.ok_or_else(stopped)?;
            net.query_address(&address, query, within).await.map_err(|error| QueryFailed(error.0))
        })
    }
}
