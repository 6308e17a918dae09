//! The bytes of connections between members: greeting, proofs, records and queries. A change of `tests/golden/net.txt` raises
//! [`hello::VERSIONS`].

use super::hello::{self, Confirm, Hello, HelloRejection, HelloReply, MAGIC, Purpose, VERSIONS};
use super::proof::{Side, Transcript};
use super::records::{RecordHeader, append};
use crate::dispatch::MemberQuery;
use crate::join_token::JoinToken;
use lockkeeper_member::{Acquisition, ClusterSettings, LockName, MemberId, SessionId};
use lockkeeper_testbed::every_variant;
use lockkeeper_testbed::golden::Golden;

fn hello(purpose: Purpose) -> Hello {
    let (from, to) = (Some(MemberId(1)), Some(MemberId(2)));
    Hello { oldest: 3, newest: 4, cluster: "canal".into(), from, to, purpose }
}

fn hellos() -> Vec<(&'static str, Hello)> {
    every_variant!(Hello {
        "link": Hello { purpose: Purpose::Link, .. } => hello(Purpose::Link),
        "queries": Hello { purpose: Purpose::Queries, .. } =>
            Hello { from: None, to: None, ..hello(Purpose::Queries) },
    })
}

fn reasons() -> Vec<(&'static str, HelloRejection)> {
    every_variant!(HelloRejection {
        "version": HelloRejection::Version { .. } => HelloRejection::Version { oldest: 3, newest: 4 },
        "cluster": HelloRejection::Cluster(_) => HelloRejection::Cluster("canal".into()),
        "member": HelloRejection::Member(_) => HelloRejection::Member(MemberId(5)),
        "certificate": HelloRejection::Certificate => HelloRejection::Certificate,
        "sender": HelloRejection::Sender => HelloRejection::Sender,
        "busy": HelloRejection::Busy => HelloRejection::Busy,
        "token": HelloRejection::Token => HelloRejection::Token,
    })
}

fn queries() -> Vec<(&'static str, MemberQuery)> {
    let settings = ClusterSettings {
        algorithm: vec![("algorithm".into(), "raymond".into())],
        lease_ns: 11,
        longest_lease_ns: 12,
        shortest_ttl_ns: 1_012,
        longest_ttl_ns: 1_013,
        renewal_ns: 13,
        silence_ns: 14,
        settle_ns: 15,
        drift_ppm: 16,
    };
    every_variant!(MemberQuery {
        "consensus": MemberQuery::Consensus(_) => MemberQuery::Consensus(vec![1, 2]),
        "revoke": MemberQuery::Revoke(..) => {
            let acquisition = Acquisition { session: SessionId { client: 21, number: 22 }, number: 23 };
            MemberQuery::Revoke(LockName::new("nightly"), acquisition, "root".into())
        },
        "application": MemberQuery::User(_) => MemberQuery::User(vec![3, 4]),
        "settings": MemberQuery::Change(_) => MemberQuery::Change(settings),
    })
}

fn records() -> Vec<(&'static str, RecordHeader)> {
    every_variant!(RecordHeader {
        "ping": RecordHeader::Ping => RecordHeader::Ping,
        "frame": RecordHeader::Frame => RecordHeader::Frame,
        "query": RecordHeader::Query(_) => RecordHeader::Query(0x0102),
        "answer": RecordHeader::Reply(_) => RecordHeader::Reply(0x0304),
        "declined": RecordHeader::Declined(_) => RecordHeader::Declined(0x0506),
    })
}

#[test]
fn bytes_of_connections_between_members_do_not_change() {
    let mut golden = Golden::default();
    golden.text("versions", &format!("{} to {}", VERSIONS.start(), VERSIONS.end()));
    golden.bytes("magic", MAGIC);
    golden.bytes("greeting", &hello::encode(&hello(Purpose::Link)));
    golden.values("hello", &hellos());
    let replies = every_variant!(HelloReply {
        "welcome": HelloReply::Welcome { .. } => HelloReply::Welcome { version: 3, member: MemberId(2) },
        "refused": HelloReply::Refused(_) => HelloReply::Refused(HelloRejection::Busy),
    });
    golden.values("reply", &replies);
    let confirmations = every_variant!(Confirm {
        "proof": Confirm::Proof(_) => Confirm::Proof([0xab; 32]),
        "refused": Confirm::Refused(_) => Confirm::Refused(HelloRejection::Token),
    });
    golden.values("confirm", &confirmations);
    golden.values("reason", &reasons());
    let token = JoinToken::parse(&format!("lkjoin_{}", "07".repeat(32))).unwrap();
    let transcript = Transcript { hello: vec![1, 2, 3], welcome: vec![4, 5] };
    let sides = every_variant!(Side {
        "dialler": Side::Dialler => Side::Dialler,
        "listener": Side::Listener => Side::Listener,
    });
    for (name, side) in sides {
        golden.bytes(&format!("proof {name}"), &transcript.prove(&token, side));
    }
    for (name, kind) in records() {
        let payload: &[u8] =
            if matches!(kind, RecordHeader::Ping | RecordHeader::Declined(_)) { &[] } else { &[7, 8, 9] };
        let mut bytes = Vec::new();
        append(&mut bytes, kind, 100, |out| out.extend(payload)).unwrap();
        golden.bytes(&format!("record {name}"), &bytes);
    }
    golden.values("query", &queries());
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/net.txt");
}
