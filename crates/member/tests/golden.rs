//! The bytes of the messages between members, and between a client and its member.
//!
//! Members send frames over the connections of `lockkeeper-cluster`; a change of `frames.txt` raises the version of the greeting
//! between members. Clients send [`ToMember`] within the native protocol; a change of `clients.txt` raises the version of
//! `lockkeeper_session::protocol`. The messages of the algorithms are pinned in `crates/core/tests/golden`.

use lockkeeper_core::SiteId;
use lockkeeper_core::algorithms::gate_messages::{Content, Entry, Message, Register};
use lockkeeper_member::{
    Acquisition, Body, Chunk, ClusterSettings, Ended, Fence, Frame, Generation, HoldRecord, Inherited,
    LockContent, LockMessage, LockMode, LockName, LockRequest, LockStatus, MemberId, Node, Packet,
    Participant, Proof, Query, Renewal, ReportedHold, SessionId, StartHold, Tag, ToClient, ToMember, View,
};
use lockkeeper_testbed::every_variant;
use lockkeeper_testbed::golden::Golden;

/// A placeholder for the message of an algorithm.
type Inner = u8;

fn node(number: u32) -> Node {
    Node { id: MemberId(number), incarnation: 1000 + u64::from(number) }
}

fn lock() -> LockName {
    LockName::new("nightly")
}

fn session() -> SessionId {
    SessionId { client: 21, number: 22 }
}

fn record() -> HoldRecord {
    HoldRecord {
        acquisition: Acquisition { session: session(), number: 91 },
        hold: 90,
        lock: lock(),
        mode: LockMode::Exclusive,
        fence: fence(),
        ttl_ns: 92,
        longest_until_ms: Some(93),
        since_ms: 94,
        tag: tag(),
        proof: Proof([95; 16]),
        payload: vec![96, 97],
        home: node(2),
        epoch: 7,
        adopted: true,
    }
}

fn fence() -> Option<Fence> {
    Fence::new(5, 9)
}

fn tag() -> Tag {
    Tag { owner: "web-3".into(), purpose: "backup".into() }
}

fn generation() -> Generation {
    Generation { epoch: 5, incarnation: 300, number: 2 }
}

fn view() -> View {
    View {
        epoch: 7,
        members: vec![node(1), node(2)],
        since: vec![3, 6],
        coordinator: node(1),
        term: 4,
        missing: vec![node(3)],
        settings: ClusterSettings {
            algorithm: vec![("algorithm".into(), "raymond".into()), ("tree".into(), "line".into())],
            lease_ns: 11,
            longest_lease_ns: 12,
            shortest_ttl_ns: 1_012,
            longest_ttl_ns: 1_013,
            renewal_ns: 13,
            silence_ns: 14,
            settle_ns: 15,
            drift_ppm: 16,
        },
        inherited: Inherited { lease_ns: 17, silence_ns: 18, drift_ppm: 19 },
        founding: true,
    }
}

fn status() -> LockStatus {
    let who = |number, fence| Participant {
        acquisition: Acquisition { session: SessionId { client: 21, number: 22 }, number },
        mode: LockMode::Exclusive,
        tag: tag(),
        fence,
        for_ns: 24,
        since_ms: 25,
        detached_until_ms: Some(28),
        in_jeopardy: true,
    };
    let (holders, waiters) = (vec![who(23, fence())], vec![who(26, None)]);
    LockStatus { lock: lock(), holders, waiters, left_out: 27 }
}

fn modes() -> Vec<(&'static str, LockMode)> {
    every_variant!(LockMode {
        "exclusive": LockMode::Exclusive => LockMode::Exclusive,
        "shared": LockMode::Shared => LockMode::Shared,
        "permit": LockMode::Permit { .. } => LockMode::Permit { of: 3 },
    })
}

fn bodies() -> Vec<(&'static str, Body<Inner>)> {
    every_variant!(Body<Inner> {
        "renew": Body::Renew(_) => Body::Renew(Renewal {
            epoch: 31,
            sent_ns: 32,
            installed: 33,
            unreachable: vec![node(4)],
            joiners: vec![node(5)],
            clock_full: true,
            table_full: false,
            drained: true,
        }),
        "renewed": Body::Renewed { .. } => Body::Renewed { sent_ns: 32, duration_ns: 34 },
        "excluded": Body::Excluded { .. } => Body::Excluded { epoch: 35 },
        "join": Body::Join => Body::Join,
        "freeze": Body::Freeze { .. } => Body::Freeze { view: view(), chunk: 36 },
        "report": Body::Report { .. } => {
            let holding = ReportedHold { lock: lock(), mode: LockMode::Shared, units: 40 };
            Body::Report { epoch: 37, installed: 38, chunk: Chunk { number: 1, of: 2, items: [holding].into() } }
        },
        "start": Body::Start { .. } => {
            let held = StartHold { lock: lock(), node: node(2), mode: LockMode::Permit { of: 3 }, units: 41, adopted: None };
            let adopted = StartHold { adopted: Some(Box::new(record())), ..held.clone() };
            Body::Start { epoch: 42, chunk: Chunk { number: 1, of: 2, items: [held, adopted].into() } }
        },
        "more": Body::More { .. } => Body::More { epoch: 43, chunk: 44 },
        "link": Body::Link { packet: Packet { payload: Some(_), .. }, .. } => {
            let message = LockMessage { lock: lock(), clock: 45, content: LockContent::Wake };
            Body::Link { epoch: 46, packet: Packet { acknowledged: 47, payload: Some((48, message)) } }
        },
        "acknowledgement": Body::Link { packet: Packet { payload: None, .. }, .. } => {
            Body::Link { epoch: 46, packet: Packet { acknowledged: 47, payload: None } }
        },
        "query": Body::Query { .. } => Body::Query { number: 49, query: Query::ALL },
        "reply": Body::Reply { .. } => Body::Reply { number: 49, locks: vec![status()], left_out: 50 },
        "relay": Body::Relay { .. } => {
            let message = ToMember::Release { number: 51 };
            Body::Relay { session: session(), proof: Proof([52; 16]), message }
        },
        "relayed": Body::Relayed { .. } =>
            Body::Relayed { session: session(), message: ToClient::Recall { number: 53 } },
        "not-home": Body::NotHome { .. } => Body::NotHome { session: session(), epoch: 54 },
    })
}

#[test]
fn bytes_of_frames_between_members_do_not_change() {
    let mut golden = Golden::default();
    let frame = |body| Frame { from: node(1), to: MemberId(2), incarnation: Some(1002), body };
    let frames: Vec<_> = bodies().into_iter().map(|(name, body)| (name, frame(body))).collect();
    golden.values("frame", &frames);
    golden.values("frame", &[("to-any-incarnation", Frame { incarnation: None, ..frame(Body::Join) })]);
    golden.values("mode", &modes());
    let queries = every_variant!(Query {
        "first-page": Query::Page(None) => Query::Page(None),
        "page": Query::Page(Some(_)) => Query::Page(Some(lock())),
        "one": Query::One(_) => Query::One(lock()),
    });
    golden.values("query", &queries);
    let mut register = Register::default();
    register.note(Entry { site: SiteId(1), mode: LockMode::Permit { of: 3 }, version: 52, units: 2 });
    let message = |content| Message { register: register.clone(), content };
    let about_a_lock = every_variant!(LockContent<Inner> {
        "algorithm": LockContent::Algorithm(Message { content: Content::Inner(_), .. }) =>
            LockContent::Algorithm(message(Content::Inner(51))),
        "recall": LockContent::Algorithm(Message { content: Content::Recall { .. }, .. }) =>
            LockContent::Algorithm(message(Content::Recall { all: true })),
        "cleared": LockContent::Algorithm(Message { content: Content::Cleared, .. }) =>
            LockContent::Algorithm(message(Content::Cleared)),
        "wake": LockContent::Wake => LockContent::Wake,
    });
    golden.values("lock-message", &about_a_lock);
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/frames.txt");
}

fn to_member() -> Vec<(&'static str, ToMember)> {
    every_variant!(ToMember {
        "keep-alive": ToMember::KeepAlive { .. } =>
            ToMember::KeepAlive { sent_ns: 61, first: true, settled: 62, generation: Some(generation()) },
        "acquire": ToMember::Acquire { .. } => {
            let request = LockRequest {
                lock: lock(),
                mode: LockMode::Permit { of: 3 },
                timeout_ns: Some(65),
                longest_hold_ns: Some(66),
                reentrant: true,
                delegated_entries: 67,
                ttl_ns: 1_064,
                tag: tag(),
            };
            ToMember::Acquire { number: 63, settled: 64, request }
        },
        "release": ToMember::Release { .. } => ToMember::Release { number: 68 },
        "in-use": ToMember::InUse { .. } => ToMember::InUse { number: 69, fence: fence(), tag: tag() },
        "close": ToMember::Close => ToMember::Close,
    })
}

fn to_client() -> Vec<(&'static str, ToClient)> {
    every_variant!(ToClient {
        "alive": ToClient::Alive { .. } =>
            ToClient::Alive { generation: generation(), sent_ns: 71, duration_ns: 72, revoked: vec![73, 74], recorded: Some(75) },
        "recorded": ToClient::Recorded { .. } =>
            ToClient::Recorded { generation: generation(), number: 80, index: 81, ttl_ns: 82, sent_ns: Some(83) },
        "resumed": ToClient::Resumed { .. } =>
            ToClient::Resumed { generation: generation(), held: vec![(84, 85), (86, 87)] },
        "granted": ToClient::Granted { .. } =>
            ToClient::Granted { generation: generation(), number: 75, fence: fence(), delegated_entries: 76, contended: true },
        "wanted": ToClient::Recall { .. } => ToClient::Recall { number: 77 },
        "ended": ToClient::Ended { .. } => ToClient::Ended { number: 78, outcome: Ended::Busy },
        "no-session": ToClient::NoSession => ToClient::NoSession,
        "revoked-by": ToClient::RevokedBy { .. } => ToClient::RevokedBy { number: 88, by: "root".into() },
    })
}

#[test]
fn bytes_of_messages_between_client_and_member_do_not_change() {
    let mut golden = Golden::default();
    golden.values("to-member", &to_member());
    golden.values("to-client", &to_client());
    let ended = every_variant!(Ended {
        "released": Ended::Released => Ended::Released,
        "cancelled": Ended::Cancelled => Ended::Cancelled,
        "timed-out": Ended::TimedOut => Ended::TimedOut,
        "busy": Ended::Busy => Ended::Busy,
        "revoked": Ended::Revoked => Ended::Revoked,
        "refused": Ended::Refused => Ended::Refused,
        "leaving": Ended::Leaving => Ended::Leaving,
        "full": Ended::Full { .. } => Ended::Full { limit: 79 },
    });
    golden.values("outcome", &ended);
    golden.values("mode", &modes());
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/clients.txt");
}
