//! Fuzzing of the queries about consensus, and of their answers.

use super::state::State;
use super::types::{Entry, LogId, Proposal, StoreNode, Vote};
use super::wire::{ConsensusQuery, QueryMessage, ReplyMessage, Rpc, StoreStamp, read, write};
use lockkeeper_member::{MemberId, View};
use openraft::raft::{AppendEntriesRequest, VoteRequest};
use openraft::{CommittedLeaderId, EntryPayload, Membership};
use std::collections::BTreeMap;

/// Decodes a query or an answer as a member does. A message that can be decoded survives another encoding, and the
/// entries of a valid Raft message are applied, as the library would do.
pub fn message(bytes: &[u8]) {
    if let Ok(reply) = read::<ReplyMessage>(bytes) {
        let written = write(&reply).expect("it was decoded from no more bytes");
        assert!(read::<ReplyMessage>(&written).is_ok());
    }
    let Ok(message) = read::<QueryMessage>(bytes) else { return };
    let written = write(&message).expect("it was decoded from no more bytes");
    assert!(read::<QueryMessage>(&written).is_ok());
    if let ConsensusQuery::Raft { rpc, .. } = message.query
        && rpc.is_valid()
        && let Rpc::Append(append) = rpc
    {
        let mut state = State::default();
        for entry in append.entries {
            let _ = state.apply(entry);
        }
        let bytes = postcard::to_stdvec(&state).expect("a state is plain data");
        assert_eq!(State::received(&state.meta(), &bytes), Some(state));
    }
}

/// A query of each kind, encoded.
pub fn seeds() -> Vec<Vec<u8>> {
    let node = StoreNode { member: MemberId(2), address: "10.0.0.2:7420".into(), ..Default::default() };
    let entry = |index, payload| Entry { log_id: LogId::new(CommittedLeaderId::new(1, 5), index), payload };
    let nodes = BTreeMap::from([(5, node.clone())]);
    let entries = vec![
        entry(0, EntryPayload::Membership(Membership::new(vec![[5].into()], nodes))),
        entry(1, EntryPayload::Blank),
        entry(2, EntryPayload::Normal(Proposal::View(View { epoch: 1, term: 1, ..View::none() }))),
    ];
    let vote = Vote::new_committed(1, 5);
    let append = AppendEntriesRequest { vote, prev_log_id: None, entries, leader_commit: None };
    let vote = VoteRequest { vote: Vote::new(2, 5), last_log_id: None };
    let raft = |rpc| ConsensusQuery::Raft { cluster: 9, to: 7, rpc };
    let queries = [
        ConsensusQuery::Identity,
        ConsensusQuery::Found { cluster: 9 },
        ConsensusQuery::Join { node },
        ConsensusQuery::Remove { member: MemberId(3) },
        raft(Rpc::Append(append)),
        raft(Rpc::Vote(vote)),
    ];
    let stamp = StoreStamp { store: 5, start: 1, opened: 1, commits: 1 };
    let message = |query| QueryMessage { member: MemberId(1), stamp, query };
    queries.into_iter().map(|query| write(&message(query)).expect("it is short")).collect()
}

#[cfg(test)]
mod tests {
    use lockkeeper_testbed::mutation;

    #[test]
    fn queries_about_consensus_never_panic() {
        mutation::run(&super::seeds(), super::message);
    }
}
