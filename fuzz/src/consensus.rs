//! What members ask each other about consensus, and what an answer may be.

#[path = "../../crates/cluster/src/consensus/state.rs"]
mod state;
#[path = "../../crates/cluster/src/consensus/types.rs"]
mod types;
#[path = "../../crates/cluster/src/consensus/wire.rs"]
mod wire;

use wire::{ConsensusQuery, QueryMessage, ReplyMessage, Rpc, StoreStamp, read, write};

/// Reads the bytes as a member would. Whatever can be read is written and read again; whatever a voter could have said is
/// applied, since the library would do so.
pub fn attack(bytes: &[u8]) {
    if let Ok(reply) = read::<ReplyMessage>(bytes) {
        let written = write(&reply).expect("it was read from no more bytes");
        assert!(read::<ReplyMessage>(&written).is_ok());
    }
    let Ok(message) = read::<QueryMessage>(bytes) else { return };
    let written = write(&message).expect("it was read from no more bytes");
    assert!(read::<QueryMessage>(&written).is_ok());
    if let ConsensusQuery::Raft { rpc, .. } = message.query
        && rpc.is_valid()
        && let Rpc::Append(append) = rpc
    {
        let mut state = state::State::default();
        for entry in append.entries {
            let _ = state.apply(entry);
        }
        let bytes = postcard::to_stdvec(&state).expect("a state is plain data");
        assert_eq!(state::State::received(&state.meta(), &bytes), Some(state));
    }
}

/// A question of each kind, as bytes.
pub fn examples() -> Vec<Vec<u8>> {
    use lockkeeper_member::{MemberId, View};
    let node =
        types::StoreNode { member: MemberId(2), address: "10.0.0.2:7420".into(), ..Default::default() };
    let leader = |term| openraft::CommittedLeaderId::new(term, 5);
    let entry = |index, payload| types::Entry { log_id: types::LogId::new(leader(1), index), payload };
    let nodes = std::collections::BTreeMap::from([(5, node.clone())]);
    let entries = vec![
        entry(0, openraft::EntryPayload::Membership(openraft::Membership::new(vec![[5].into()], nodes))),
        entry(1, openraft::EntryPayload::Blank),
        entry(2, openraft::EntryPayload::Normal(View { epoch: 1, term: 1, ..View::none() })),
    ];
    let append = openraft::raft::AppendEntriesRequest {
        vote: types::Vote::new_committed(1, 5),
        prev_log_id: None,
        entries,
        leader_commit: None,
    };
    let vote = openraft::raft::VoteRequest { vote: types::Vote::new(2, 5), last_log_id: None };
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
