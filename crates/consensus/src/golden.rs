//! The bytes of consensus: queries between members, and values on disk.
//!
//! A change of `tests/golden/consensus.txt` raises the version of the queries in `wire`. A change of the entries, votes or the state
//! also raises the format of the store. Some of the types belong to the Raft library: a new version of it may change them, too.

use super::state::State;
use super::types::{Entry, LogId, Membership, Proposal, SnapshotMeta, StoreName, StoreNode, Types, Vote};
use super::wire::{
    self, ConsensusQuery, ConsensusReply, MemberIdentity, QueryMessage, ReplyMessage, Rpc, StoreStamp,
};
use lockkeeper_member::{
    Acquisition, ClusterSettings, Fence, HoldRecord, HoldTable, Inherited, LockMode, LockName, MemberId,
    Node, Proof, RecordChange, RecordOutcome, RecordWrite, SessionId, Tag, View,
};
use lockkeeper_testbed::every_variant;
use lockkeeper_testbed::golden::Golden;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{CommittedLeaderId, EntryPayload};
use std::collections::BTreeMap;

fn settings() -> ClusterSettings {
    ClusterSettings {
        algorithm: vec![("algorithm".into(), "raymond".into())],
        lease_ns: 11,
        longest_lease_ns: 12,
        shortest_ttl_ns: 1_012,
        longest_ttl_ns: 1_013,
        renewal_ns: 13,
        silence_ns: 14,
        settle_ns: 15,
        drift_ppm: 16,
    }
}

fn view() -> View {
    let node = |number| Node { id: MemberId(number), incarnation: 1000 + u64::from(number) };
    View {
        epoch: 7,
        members: vec![node(1), node(2)],
        since: vec![3, 6],
        coordinator: node(1),
        term: 4,
        missing: vec![node(3)],
        settings: settings(),
        inherited: Inherited { lease_ns: 17, silence_ns: 18, drift_ppm: 19 },
        founding: true,
    }
}

fn place() -> StoreNode {
    StoreNode { member: MemberId(1), address: "a:7420".into(), epoch_above: 21, since: 22 }
}

fn disk() -> StoreStamp {
    StoreStamp { store: 31, start: 32, opened: 33, commits: 34 }
}

fn log_id(index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(41, 42), index)
}

fn vote() -> Vote {
    let mut vote = Vote::new(43, 44);
    vote.committed = true;
    vote
}

fn membership() -> openraft::Membership<StoreName, StoreNode> {
    openraft::Membership::new(vec![[51].into()], BTreeMap::from([(51, place()), (52, StoreNode::default())]))
}

fn entries() -> Vec<(&'static str, EntryPayload<Types>)> {
    every_variant!(EntryPayload<Types> {
        "blank": EntryPayload::Blank => EntryPayload::Blank,
        "view": EntryPayload::Normal(_) => EntryPayload::Normal(Proposal::View(view())),
        "membership": EntryPayload::Membership(_) => EntryPayload::Membership(membership()),
    })
}

fn state() -> State {
    State {
        applied: Some(log_id(61)),
        membership: Membership::new(Some(log_id(62)), membership()),
        newest: view(),
        epoch_above: 63,
        holds: table(),
    }
}

fn write() -> RecordWrite {
    let acquisition = |number| Acquisition { session: SessionId { client: 91, number: 92 }, number };
    let record = HoldRecord {
        acquisition: acquisition(93),
        hold: 94,
        lock: LockName::new("nightly"),
        mode: LockMode::Exclusive,
        fence: Fence::new(7, 95),
        ttl_ns: 96,
        longest_until_ms: Some(97),
        since_ms: 98,
        tag: Tag { owner: "web-3".into(), purpose: "backup".into() },
        proof: Proof([99; 16]),
        payload: vec![100, 101],
        home: Node { id: MemberId(1), incarnation: 1001 },
        epoch: 7,
        adopted: true,
    };
    let changes = vec![RecordChange::Record(record), RecordChange::End(acquisition(101))];
    RecordWrite { home: Node { id: MemberId(1), incarnation: 1001 }, epoch: 7, sequence: 102, changes }
}

fn table() -> HoldTable {
    let mut table = HoldTable::default();
    table.apply(&write(), &view());
    table
}

fn rpcs() -> Vec<(&'static str, Rpc)> {
    every_variant!(Rpc {
        "append": Rpc::Append(_) => Rpc::Append(AppendEntriesRequest {
            vote: vote(),
            prev_log_id: Some(log_id(71)),
            entries: vec![Entry { log_id: log_id(72), payload: EntryPayload::Blank }],
            leader_commit: Some(log_id(73)),
        }),
        "vote": Rpc::Vote(_) => Rpc::Vote(VoteRequest { vote: vote(), last_log_id: Some(log_id(74)) }),
        "snapshot": Rpc::Snapshot { .. } => {
            let last_membership = Membership::new(Some(log_id(76)), membership());
            let meta =
                SnapshotMeta { last_log_id: Some(log_id(75)), last_membership, snapshot_id: "s".into() };
            Rpc::Snapshot { vote: vote(), meta, state: vec![77, 78] }
        },
    })
}

fn query_examples() -> Vec<(&'static str, ConsensusQuery)> {
    every_variant!(ConsensusQuery {
        "hello": ConsensusQuery::Identity => ConsensusQuery::Identity,
        "found": ConsensusQuery::Found { .. } => ConsensusQuery::Found { cluster: 81 },
        "join": ConsensusQuery::Join { .. } => ConsensusQuery::Join { node: place() },
        "remove": ConsensusQuery::Remove { .. } => ConsensusQuery::Remove { member: MemberId(82) },
        "write": ConsensusQuery::Write { .. } => ConsensusQuery::Write { write: write() },
        "raft": ConsensusQuery::Raft { .. } => {
            let rpc = Rpc::Vote(VoteRequest { vote: vote(), last_log_id: None });
            ConsensusQuery::Raft { cluster: 83, to: 84, rpc }
        },
    })
}

fn responses_to_append() -> Vec<(&'static str, AppendEntriesResponse<StoreName>)> {
    every_variant!(AppendEntriesResponse<StoreName> {
        "success": AppendEntriesResponse::Success => AppendEntriesResponse::Success,
        "partial": AppendEntriesResponse::PartialSuccess(_) =>
            AppendEntriesResponse::PartialSuccess(Some(log_id(85))),
        "conflict": AppendEntriesResponse::Conflict => AppendEntriesResponse::Conflict,
        "higher-vote": AppendEntriesResponse::HigherVote(_) => AppendEntriesResponse::HigherVote(vote()),
    })
}

fn answers() -> Vec<(&'static str, ConsensusReply)> {
    let hello = MemberIdentity {
        member: MemberId(91),
        store: 92,
        cluster: Some(93),
        first_members: vec![MemberId(94)],
        epoch_above: 95,
        settings: settings(),
        leader: Some((MemberId(96), "b:7420".into())),
    };
    every_variant!(ConsensusReply {
        "hello": ConsensusReply::Identity(_) => ConsensusReply::Identity(hello),
        "yes": ConsensusReply::Accepted { .. } => ConsensusReply::Accepted { cluster: 97 },
        "ask-leader": ConsensusReply::NotLeader(_) => ConsensusReply::NotLeader(Some((MemberId(98), "b:7420".into()))),
        "written": ConsensusReply::Written(_) =>
            ConsensusReply::Written(vec![RecordOutcome::Recorded, RecordOutcome::Ended, RecordOutcome::Refused, RecordOutcome::Full]),
        "append": ConsensusReply::Append(_) => ConsensusReply::Append(AppendEntriesResponse::Conflict),
        "vote": ConsensusReply::Vote(_) => ConsensusReply::Vote(VoteResponse {
            vote: vote(),
            vote_granted: false,
            last_log_id: Some(log_id(99)),
        }),
        "snapshot": ConsensusReply::Snapshot(_) => ConsensusReply::Snapshot(SnapshotResponse { vote: vote() }),
        "refused": ConsensusReply::Refused(_) => ConsensusReply::Refused("no".into()),
        "restored": ConsensusReply::Restored => ConsensusReply::Restored,
    })
}

#[test]
fn bytes_of_consensus_queries_do_not_change() {
    let mut golden = Golden::default();
    let asked = |query| QueryMessage { member: MemberId(1), stamp: disk(), query };
    golden.bytes("query-with-version", &wire::write(&asked(ConsensusQuery::Identity)).unwrap());
    let answered = |answer| ReplyMessage { stamp: disk(), reply: answer };
    golden.bytes("answer-with-version", &wire::write(&answered(ConsensusReply::Restored)).unwrap());
    let queries: Vec<_> = query_examples().into_iter().map(|(name, query)| (name, asked(query))).collect();
    golden.values("query", &queries);
    golden.values("raft", &rpcs());
    let answers: Vec<_> = answers().into_iter().map(|(name, answer)| (name, answered(answer))).collect();
    golden.values("answer", &answers);
    golden.values("append-response", &responses_to_append());
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/consensus.txt");
}

#[test]
fn bytes_of_consensus_values_on_disk_do_not_change() {
    let mut golden = Golden::default();
    let entry = |payload| Entry { log_id: log_id(64), payload };
    let entries: Vec<_> = entries().into_iter().map(|(name, payload)| (name, entry(payload))).collect();
    golden.values("entry", &entries);
    let write = entry(EntryPayload::Normal(Proposal::Write(write())));
    golden.values("entry", &[("write", write)]);
    golden.values("vote", &[("of-a-leader", vote()), ("none", Vote::default())]);
    golden.values("committed", &[("entry", log_id(65))]);
    golden.values("purged", &[("entry", log_id(66))]);
    golden.values("cluster", &[("name", 0x0102_0304_u64)]);
    golden.values("snapshot", &[("filled", state()), ("new", State { applied: None, ..state() })]);
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/consensus-disk.txt");
}
