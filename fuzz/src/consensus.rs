//! What members ask each other about consensus, and what an answer may be.

#[path = "../../crates/cluster/src/consensus/state.rs"]
mod state;
#[path = "../../crates/cluster/src/consensus/types.rs"]
mod types;
#[path = "../../crates/cluster/src/consensus/wire.rs"]
mod wire;

use wire::{Answered, Asked, Disk, Question, Rpc, read, write};

/// Reads the bytes as a member would. Whatever can be read is written and read again; whatever a voter could have said is
/// applied, since the library would do so.
pub fn attack(bytes: &[u8]) {
    if let Ok(answer) = read::<Answered>(bytes) {
        let written = write(&answer).expect("it was read from no more bytes");
        assert!(read::<Answered>(&written).is_ok());
    }
    let Ok(asked) = read::<Asked>(bytes) else { return };
    let written = write(&asked).expect("it was read from no more bytes");
    assert!(read::<Asked>(&written).is_ok());
    if let Question::Raft { rpc, .. } = asked.question
        && rpc.makes_sense()
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
    let place = types::Place { member: MemberId(2), address: "10.0.0.2:7420".into(), ..Default::default() };
    let leader = |term| openraft::CommittedLeaderId::new(term, 5);
    let entry = |index, payload| types::Entry { log_id: types::LogId::new(leader(1), index), payload };
    let nodes = std::collections::BTreeMap::from([(5, place.clone())]);
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
    let raft = |rpc| Question::Raft { cluster: 9, to: 7, rpc };
    let questions = [
        Question::Hello,
        Question::Found { cluster: 9 },
        Question::Join { place },
        Question::Remove { member: MemberId(3) },
        raft(Rpc::Append(append)),
        raft(Rpc::Vote(vote)),
    ];
    let disk = Disk { store: 5, start: 1, opened: 1, commits: 1 };
    let asked = |question| Asked { member: MemberId(1), disk, question };
    questions.into_iter().map(|question| write(&asked(question)).expect("it is short")).collect()
}
