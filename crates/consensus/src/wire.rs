//! Encoding of the consensus queries between members.

use super::state::State;
use super::types::{SnapshotMeta, StoreName, StoreNode, Types, Vote};
use lockkeeper_member::{ClusterSettings, MemberId, RecordOutcome, RecordWrite};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of this encoding, the first byte of each query and answer. Version 5 answers that the table is full.
const VERSION: u8 = 5;

/// Maximum size of a query or answer, in bytes: a snapshot contains the table of recorded holds.
pub(crate) const MOST_BYTES: usize = 12 << 20;

/// Maximum size of a proposed view, in bytes. A few of them fit into one query.
pub(crate) const MOST_VIEW_BYTES: usize = 1 << 17;

/// The name and age of a store, which its process sends with every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreStamp {
    /// The store's name.
    pub store: StoreName,
    /// A random number that the process drew when it opened the store.
    pub start: u64,
    /// Number of commits when it was opened.
    pub opened: u64,
    /// Number of commits now.
    pub commits: u64,
}

/// A query and its sender.
#[derive(Serialize, Deserialize)]
pub(crate) struct QueryMessage {
    pub member: MemberId,
    /// The sender's store and its number of commits.
    pub stamp: StoreStamp,
    pub query: ConsensusQuery,
}

/// An answer, and the store of the member that sends it.
#[derive(Serialize, Deserialize)]
pub(crate) struct ReplyMessage {
    pub stamp: StoreStamp,
    pub reply: ConsensusReply,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum ConsensusQuery {
    /// Requests the member's identity and the cluster that it knows.
    Identity,
    /// Requests the member to become part of this new cluster.
    Found { cluster: u64 },
    /// Requests the leader to admit the sender.
    Join { node: StoreNode },
    /// Requests the leader to remove this member permanently.
    Remove { member: MemberId },
    /// Requests the leader to apply a write of the sender to the table of recorded holds.
    Write { write: RecordWrite },
    /// A Raft message from one store of a cluster to another one.
    Raft { cluster: u64, to: StoreName, rpc: Rpc },
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Rpc {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<StoreName>),
    Snapshot { vote: Vote, meta: SnapshotMeta, state: Vec<u8> },
}

#[derive(Serialize, Deserialize)]
pub(crate) enum ConsensusReply {
    Identity(MemberIdentity),
    /// Success: the store is part of the new cluster, was admitted to this one, or was removed from it.
    Accepted {
        cluster: u64,
    },
    /// Only the leader can do that. Contains its address, if known.
    NotLeader(Option<(MemberId, String)>),
    /// The outcomes of a write.
    Written(Vec<RecordOutcome>),
    Append(AppendEntriesResponse<StoreName>),
    Vote(VoteResponse<StoreName>),
    Snapshot(SnapshotResponse<StoreName>),
    /// Rejected, with the reason.
    Refused(String),
    /// The sender's disk was restored from a backup; it must not take part.
    Restored,
}

/// The identity of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberIdentity {
    pub member: MemberId,
    pub store: StoreName,
    /// The cluster that it is part of. Set once there is an entry in its log.
    pub cluster: Option<u64>,
    /// The first members in its configuration.
    pub first_members: Vec<MemberId>,
    pub epoch_above: u64,
    /// The settings with which it would found a cluster.
    pub settings: ClusterSettings,
    /// The leader and its address, as far as it knows.
    pub leader: Option<(MemberId, String)>,
}

/// The reason why bytes are not a query or an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("it has {0} bytes, more than {MOST_BYTES}")]
    TooLong(usize),
    #[error(
        "it has version {0}, and this member speaks version {VERSION}: run the same version of lockkeeper everywhere"
    )]
    Version(u8),
    #[error("it cannot be decoded")]
    Malformed,
}

pub(crate) fn write<T: Serialize>(what: &T) -> Result<Vec<u8>, Unreadable> {
    let bytes = postcard::to_extend(what, vec![VERSION]).map_err(|_| Unreadable::Malformed)?;
    if bytes.len() > MOST_BYTES { Err(Unreadable::TooLong(bytes.len())) } else { Ok(bytes) }
}

pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    if bytes.len() > MOST_BYTES {
        return Err(Unreadable::TooLong(bytes.len()));
    }
    match bytes.split_first() {
        Some((&VERSION, rest)) => match postcard::take_from_bytes(rest) {
            Ok((what, [])) => Ok(what),
            _ => Err(Unreadable::Malformed),
        },
        Some((&version, _)) => Err(Unreadable::Version(version)),
        None => Err(Unreadable::Malformed),
    }
}

impl Rpc {
    /// Whether a correct Raft implementation could have sent this. The library assumes it without checking.
    pub fn is_valid(&self) -> bool {
        match self {
            Self::Append(append) => {
                let mut last = append.prev_log_id;
                append.vote.committed
                    && append.entries.iter().all(|entry| {
                        let follows = last.map_or(entry.log_id.index == 0, |last| {
                            entry.log_id.index.checked_sub(1) == Some(last.index)
                                && entry.log_id.leader_id >= last.leader_id
                        });
                        last = Some(entry.log_id);
                        follows && entry.log_id.leader_id.term <= append.vote.leader_id.term
                    })
            }
            Self::Vote(message) => !message.vote.committed && message.vote.leader_id.voted_for.is_some(),
            Self::Snapshot { vote, meta, state } => vote.committed && State::received(meta, state).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_errors_are_distinguished() {
        let stamp = StoreStamp { store: 5, start: 1, opened: 2, commits: 3 };
        let message =
            QueryMessage { member: MemberId(1), stamp, query: ConsensusQuery::Found { cluster: 9 } };
        let bytes = write(&message).unwrap();
        assert!(matches!(read::<QueryMessage>(&bytes).unwrap().query, ConsensusQuery::Found { cluster: 9 }));
        let mut other = bytes.clone();
        other[0] = 9;
        assert_eq!(read::<QueryMessage>(&other).err(), Some(Unreadable::Version(9)));
        assert_eq!(read::<QueryMessage>(&bytes[..2]).err(), Some(Unreadable::Malformed));
        assert_eq!(
            read::<QueryMessage>(&[bytes.as_slice(), &[0]].concat()).err(),
            Some(Unreadable::Malformed)
        );
        assert_eq!(read::<QueryMessage>(&[]).err(), Some(Unreadable::Malformed));
        assert_eq!(
            read::<QueryMessage>(&vec![VERSION; MOST_BYTES + 1]).err(),
            Some(Unreadable::TooLong(MOST_BYTES + 1))
        );
        assert!(write(&vec![0_u8; MOST_BYTES]).is_err());
    }

    #[test]
    fn random_bytes_never_panic_the_decoder() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        for _ in 0..20_000 {
            let mut bytes = vec![VERSION];
            for _ in 0..state % 40 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                bytes.push((state >> 56) as u8);
            }
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if let Ok(QueryMessage { query: ConsensusQuery::Raft { rpc, .. }, .. }) =
                read::<QueryMessage>(&bytes)
            {
                rpc.is_valid();
            }
            let _ = read::<ReplyMessage>(&bytes);
        }
    }
}
