//! The bytes of the messages between daemons. A change of `tests/golden/leases.txt` raises [`VERSION`].

use super::adoption::HoldPayload;
use super::detached::DetachedPayload;
use super::id::LeaseId;
use super::messages::{
    ChunkKind, DaemonReply, DaemonRequest, Disposition, LeasePresence, TableChunk, TableRange, VERSION,
    WaitId,
};
use super::operations::{
    CallerIdentity, DetachedHold, DetachedOperation, DetachedReply, Enqueued, Hold, HoldLoss, HoldRef,
    HoldRequest, LeaseError, LeaseOperation, LeaseState, LeaseSummary, LeaseTerms, OperationReply, Protocol,
    Slot, Turn,
};
use super::peers::encode;
use lockkeeper_cluster::{
    Acquisition, LockMode, LockName, LockStatus, MemberId, Node, Participant, SessionId,
};
use lockkeeper_session::Tag;
use lockkeeper_testbed::every_variant;
use lockkeeper_testbed::golden::Golden;
use std::time::Duration;

const SESSION: SessionId = SessionId { client: 1, number: 2 };

fn text(text: &str) -> String {
    text.into()
}

fn lease() -> LeaseId {
    LeaseId::new(0x1234).unwrap()
}

fn identity(protocol: Protocol) -> CallerIdentity {
    CallerIdentity { protocol, token_name: text("ci"), admin: true, account: text("ci@10.0.0.1") }
}

fn hold() -> Hold {
    Hold {
        lease: lease(),
        number: 3,
        lock: text("nightly"),
        fence: 4,
        valid_for: Duration::new(5, 6),
        ttl: Duration::new(7, 8),
        value: vec![9],
        version: 10,
        revision: 11,
        bare: true,
    }
}

fn request() -> HoldRequest {
    HoldRequest {
        lock: text("nightly"),
        slot: Slot::Only,
        mode: LockMode::Shared,
        timeout: Some(Duration::new(12, 13)),
        purpose: text("backup"),
        value: vec![14],
        trace: text("0af7"),
        lasts: Some(Duration::new(58, 59)),
    }
}

fn state() -> LeaseState {
    LeaseState {
        lease: lease(),
        left: Duration::new(15, 16),
        ttl: Duration::new(17, 18),
        valid_for: Some(Duration::new(19, 20)),
        holds: vec![hold()],
        locks: vec![text("weekly")],
        lost: vec![HoldLoss { number: 21, lock: text("monthly"), why: text("revoked") }],
        session: Some(SESSION),
    }
}

fn detached() -> DetachedReply {
    let (mode, owner, left) = (LockMode::Shared, text("web-3"), Duration::new(62, 63));
    let hold = Some(DetachedHold { hold: hold(), mode, owner, left, until_ms: 64 });
    DetachedReply { hold, released: true, lost: Some(text("forced release by root")) }
}

fn detached_operations() -> Vec<(&'static str, DetachedOperation)> {
    every_variant!(DetachedOperation {
        "find": DetachedOperation::Find { .. } => DetachedOperation::Find { lasts: Some(Duration::new(65, 66)) },
        "release": DetachedOperation::Release => DetachedOperation::Release,
        "keep-alive": DetachedOperation::KeepAlive => DetachedOperation::KeepAlive,
        "leave": DetachedOperation::Leave => DetachedOperation::Leave,
        "discard": DetachedOperation::Discard => DetachedOperation::Discard,
        "withdraw": DetachedOperation::Withdraw => DetachedOperation::Withdraw,
    })
}

fn operations() -> Vec<(&'static str, LeaseOperation)> {
    every_variant!(LeaseOperation {
        "keep-alive": LeaseOperation::KeepAlive => LeaseOperation::KeepAlive,
        "revoke": LeaseOperation::Revoke => LeaseOperation::Revoke,
        "time-to-live": LeaseOperation::TimeToLive => LeaseOperation::TimeToLive,
        "release-by-number": LeaseOperation::Release(HoldRef::Number(_), _) => LeaseOperation::Release(HoldRef::Number(22), Some(23)),
        "release-by-lock": LeaseOperation::Release(HoldRef::OnlyOn(_), _) =>
            LeaseOperation::Release(HoldRef::OnlyOn(text("nightly")), None),
        "set-value": LeaseOperation::SetValue { .. } =>
            LeaseOperation::SetValue { which: HoldRef::Number(24), fence: 25, value: vec![26] },
        "abandon": LeaseOperation::Abandon(_) => LeaseOperation::Abandon(27),
        "detached": LeaseOperation::Detached(_) => LeaseOperation::Detached(DetachedOperation::Release),
    })
}

fn requests() -> Vec<(&'static str, DaemonRequest)> {
    let wait = WaitId { incarnation: 28, ticket: 29 };
    every_variant!(DaemonRequest {
        "do": DaemonRequest::Perform(..) => DaemonRequest::Perform(identity(Protocol::Etcd), lease(), LeaseOperation::Revoke),
        "has": DaemonRequest::Has(_) => DaemonRequest::Has(lease()),
        "list": DaemonRequest::List => DaemonRequest::List,
        "holders": DaemonRequest::Holders(_) => DaemonRequest::Holders(text("nightly")),
        "acquire": DaemonRequest::Acquire { .. } =>
            DaemonRequest::Acquire { wait, identity: identity(Protocol::Http), lease: lease(), request: request() },
        "settle": DaemonRequest::Dispose { .. } => {
            let dispositions = every_variant!(Disposition {
                "delivered": Disposition::Delivered => Disposition::Delivered,
                "unwanted": Disposition::Unwanted => Disposition::Unwanted,
            });
            let dispositions = dispositions.into_iter().enumerate().map(|(ticket, (_, disposition))| (ticket as u64, disposition));
            DaemonRequest::Dispose { incarnation: 30, dispositions: dispositions.collect() }
        },
        "outcomes": DaemonRequest::Outcomes { .. } => DaemonRequest::Outcomes { incarnation: 31, received: 32 },
        "look-at-a-page": DaemonRequest::ReadTable { range: TableRange::Page(_), .. } =>
            DaemonRequest::ReadTable { range: TableRange::Page(Some(text("a"))), prefixes: vec![text("b")] },
        "look-at-changes": DaemonRequest::ReadTable { range: TableRange::Changes(_), .. } =>
            DaemonRequest::ReadTable { range: TableRange::Changes((33, 34)), prefixes: Vec::new() },
        "enqueue": DaemonRequest::Enqueue { .. } =>
            DaemonRequest::Enqueue { identity: identity(Protocol::Etcd), lease: lease(), request: request() },
        "turn": DaemonRequest::Turn { .. } => DaemonRequest::Turn { lease: lease(), lock: text("nightly") },
        "join": DaemonRequest::Join { .. } =>
            DaemonRequest::Join { wait, identity: identity(Protocol::Etcd), lease: lease(), lock: text("nightly") },
    })
}

fn chunk(kind: ChunkKind) -> TableChunk {
    let who = Participant {
        acquisition: Acquisition { session: SESSION, number: 35 },
        mode: LockMode::Permit { of: 36 },
        tag: Tag { owner: text("web-3"), purpose: text("backup") },
        fence: None,
        for_ns: 37,
        since_ms: 38,
        detached_until_ms: Some(67),
        in_jeopardy: true,
    };
    let status =
        LockStatus { lock: LockName::new("nightly"), holders: vec![who], waiters: Vec::new(), left_out: 39 };
    let node = Node { id: MemberId(40), incarnation: 41 };
    TableChunk { next: (42, 43), node, rows: vec![(status, vec![hold()])], kind }
}

fn replies() -> Vec<(&'static str, DaemonReply)> {
    let listed = LeaseSummary { lease: lease(), token_name: text("ci"), locks: vec![text("nightly")] };
    let failed = LeaseError::Busy(text("nightly"));
    every_variant!(DaemonReply {
        "done": DaemonReply::Performed(Ok(_)) => DaemonReply::Performed(Ok(OperationReply::Revoked)),
        "failed": DaemonReply::Performed(Err(_)) => DaemonReply::Performed(Err(failed.clone())),
        "has": DaemonReply::Has(..) => DaemonReply::Has(LeasePresence::Present, Some(7)),
        "list": DaemonReply::List(_) => DaemonReply::List(vec![listed]),
        "holders": DaemonReply::Holders(..) => DaemonReply::Holders(vec![hold()], Some(58)),
        "granted": DaemonReply::Acquire(Ok(Some(_))) => DaemonReply::Acquire(Ok(Some(hold()))),
        "waits": DaemonReply::Acquire(Ok(None)) => DaemonReply::Acquire(Ok(None)),
        "not-granted": DaemonReply::Acquire(Err(_)) => DaemonReply::Acquire(Err(failed.clone())),
        "outcomes": DaemonReply::Outcomes(Some(_)) =>
            DaemonReply::Outcomes(Some(vec![(44, 45, Ok(hold())), (46, 47, Err(failed.clone()))])),
        "no-outcomes": DaemonReply::Outcomes(None) => DaemonReply::Outcomes(None),
        "settled": DaemonReply::Disposed => DaemonReply::Disposed,
        "seen": DaemonReply::Table(Some(_)) => DaemonReply::Table(Some(chunk(ChunkKind::Changes))),
        "not-seen": DaemonReply::Table(None) => DaemonReply::Table(None),
        "enqueued": DaemonReply::Enqueued(Ok(_)) =>
            DaemonReply::Enqueued(Ok(Enqueued { new: true, turn: Turn::Waiting })),
        "not-enqueued": DaemonReply::Enqueued(Err(_)) => DaemonReply::Enqueued(Err(failed.clone())),
        "turn": DaemonReply::Turn(Ok(_)) => DaemonReply::Turn(Ok(Turn::Absent)),
        "no-turn": DaemonReply::Turn(Err(_)) => DaemonReply::Turn(Err(failed.clone())),
    })
}

/// One error of each kind.
pub(crate) fn errors() -> Vec<(&'static str, LeaseError)> {
    every_variant!(LeaseError {
        "no-such-lease": LeaseError::NoSuchLease(_) => LeaseError::NoSuchLease(lease()),
        "lease-exists": LeaseError::LeaseExists(_) => LeaseError::LeaseExists(lease()),
        "lease-over": LeaseError::LeaseEnded(..) => LeaseError::LeaseEnded(lease(), text("it expired")),
        "busy": LeaseError::Busy(_) => LeaseError::Busy(text("nightly")),
        "given-up": LeaseError::Withdrawn(_) => LeaseError::Withdrawn(text("nightly")),
        "not-held": LeaseError::NotHeld(_) => LeaseError::NotHeld(text("nightly")),
        "too-many": LeaseError::LimitExceeded { .. } => LeaseError::LimitExceeded { what: text("too many locks"), limit: 48 },
        "too-long": LeaseError::TtlTooLong { .. } => LeaseError::TtlTooLong { asked_s: 49, limit_s: 50 },
        "bad": LeaseError::Invalid(_) => LeaseError::Invalid(text("bad name")),
        "not-yours": LeaseError::WrongOwner(_) => LeaseError::WrongOwner(lease()),
        "unavailable": LeaseError::Unavailable(_) => LeaseError::Unavailable(text("frozen")),
        "stopped": LeaseError::Stopped(_) => LeaseError::Stopped(text("stopped")),
        "no-lease": LeaseError::MemberHasNoLease(_) => LeaseError::MemberHasNoLease(text("no lease")),
    })
}

#[test]
fn bytes_of_messages_between_daemons_do_not_change() {
    let mut golden = Golden::default();
    golden.text("version", &VERSION.to_string());
    golden.bytes("question-with-version", &encode(&DaemonRequest::List));
    golden.values("question", &requests());
    golden.values("answer", &replies());
    golden.values("operation", &operations());
    golden.values("detached-operation", &detached_operations());
    let replies = every_variant!(OperationReply {
        "life": OperationReply::Status(_) => OperationReply::Status(state()),
        "revoked": OperationReply::Revoked => OperationReply::Revoked,
        "released": OperationReply::Released(_) => OperationReply::Released(Some(51)),
        "set": OperationReply::Set(_) => OperationReply::Set(hold()),
        "detached": OperationReply::Detached(_) => OperationReply::Detached(detached()),
    });
    golden.values("reply", &replies);
    golden.values("fault", &errors());
    let presences = every_variant!(LeasePresence {
        "absent": LeasePresence::Absent => LeasePresence::Absent,
        "reserved": LeasePresence::Reserved => LeasePresence::Reserved,
        "present": LeasePresence::Present => LeasePresence::Present,
    });
    golden.values("presence", &presences);
    let kinds = every_variant!(ChunkKind {
        "page": ChunkKind::Page(_) => ChunkKind::Page(Some(text("nightly"))),
        "changes": ChunkKind::Changes => ChunkKind::Changes,
        "unknown": ChunkKind::Unknown => ChunkKind::Unknown,
    });
    golden.values("part", &kinds);
    let slots = every_variant!(Slot {
        "only": Slot::Only => Slot::Only,
        "request": Slot::Request(_) => Slot::Request(text("r1")),
        "key": Slot::Key(_) => Slot::Key(59),
    });
    golden.values("slot", &slots);
    let turns = every_variant!(Turn {
        "absent": Turn::Absent => Turn::Absent,
        "waiting": Turn::Waiting => Turn::Waiting,
        "held": Turn::Held(_) => Turn::Held(hold()),
    });
    golden.values("turn", &turns);
    let protocols = every_variant!(Protocol {
        "http": Protocol::Http => Protocol::Http,
        "etcd": Protocol::Etcd => Protocol::Etcd,
        "native": Protocol::Native => Protocol::Native,
    });
    golden.values("protocol", &protocols);
    let terms = LeaseTerms {
        ttl: Duration::new(52, 53),
        owner: text("web-3"),
        one_hold: true,
        ends_with_loss: false,
        detached: true,
    };
    golden.values("terms", &[("all", terms.clone())]);
    let payload = HoldPayload {
        lease: lease(),
        terms,
        creator: identity(Protocol::Etcd),
        number: 54,
        slot: Slot::Only,
        value: vec![55],
        version: 56,
        revision: 57,
        detached: Some(DetachedPayload { until_ms: 60, mode: LockMode::Permit { of: 61 }, left: true }),
    };
    golden.bytes("payload", &payload.encode());
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/leases.txt");
}
