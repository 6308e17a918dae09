//! The JSON of the HTTP API: replies, requests, errors, events and the OpenAPI document. Clients in other languages depend on it: a
//! change that is not an addition needs another path prefix than `/v1`.

use super::cluster::{Member, Status, Whoami};
use super::detached::{HeldAs, HoldAs, ReleaseAs};
use super::list::link;
use super::locks::{
    Acquire, ForceRelease, ForceReleased, Held, Mode, Page, Prefix, Release, Released, Waiter,
};
use super::problem::{ErrorCode, Problem};
use super::request::parse;
use super::sessions::{Alive, LostHold, NewSession, Session};
use super::show::{LockState, Why};
use super::{openapi, watch};
use crate::access::{Denied, Permission};
use crate::leases::{Hold, LeaseId, WatchedLock};
use crate::limits::Limits;
use crate::listing::LockView;
use axum::extract::Query;
use lockkeeper_cluster::{
    Acquisition, LockMode, LockName, LockStatus, MemberId, Node, Participant, SessionId, WaitCause,
};
use lockkeeper_session::{Fence, Tag};
use lockkeeper_testbed::every_variant;
use lockkeeper_testbed::golden::Golden;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

const DIRECTORY: &str = env!("CARGO_MANIFEST_DIR");

fn text(text: &str) -> String {
    text.into()
}

fn acquisition(number: u64) -> Acquisition {
    Acquisition { session: SessionId { client: 17, number: 0 }, number }
}

/// A lock with a holder and a waiter for each mode.
fn view() -> LockView {
    let modes = every_variant!(LockMode {
        "exclusive": LockMode::Exclusive => LockMode::Exclusive,
        "shared": LockMode::Shared => LockMode::Shared,
        "permit": LockMode::Permit { .. } => LockMode::Permit { of: 3 },
    });
    let who = |number: u64, mode, fence| Participant {
        acquisition: acquisition(number),
        mode,
        tag: Tag { owner: text("web-3"), purpose: text("backup") },
        fence,
        for_ns: (100 - number) * 1_000_000,
        since_ms: 4,
        detached_until_ms: fence.map(|_| 10),
        in_jeopardy: fence.is_some(),
    };
    let waiters = modes.iter().enumerate().map(|(place, (_, mode))| who(place as u64 + 5, *mode, None));
    let status = LockStatus {
        lock: LockName::new("nightly"),
        holders: vec![who(1, LockMode::Exclusive, Fence::new(2, 3))],
        waiters: waiters.collect(),
        left_out: 9,
    };
    let node = Node { id: MemberId(1), incarnation: 1000 };
    LockView::of("nightly".into(), [(node, Instant::now(), status)])
}

#[tokio::test(start_paused = true)]
async fn json_of_replies_does_not_change() {
    let mut golden = Golden::default();
    golden.json("session", &Session { session: text("1a"), ttl_ms: 1 });
    let lost = LostHold { hold: text("1a-4"), name: text("nightly"), reason: text("revoked") };
    let alive = Alive { session: text("1a"), ttl_ms: 2, valid_for_ms: Some(3), lost: vec![lost] };
    golden.json("keep-alive", &alive);
    golden.json("keep-alive without-holds", &Alive { valid_for_ms: None, lost: Vec::new(), ..alive });
    let hold = Hold {
        lease: LeaseId::new(0x1a).unwrap(),
        number: 5,
        lock: text("nightly"),
        fence: 6,
        valid_for: Duration::from_millis(7),
        ttl: Duration::from_millis(8),
        value: Vec::new(),
        version: 9,
        revision: 10,
        bare: false,
    };
    golden.json("acquire", &Held::from(hold));
    golden.json("release", &Released { released: true });
    let (name, owner, mode, fence) = (text("reboot"), text("web-3"), "exclusive", 11);
    golden.json("hold-as", &HeldAs { name, owner, mode, fence, left_ms: 12, until_ms: 13 });
    golden.json("force-release", &ForceReleased { released: vec![text("C17#0/3")] });
    golden.json("lock", &LockState::of(&view()));
    golden.json("lock unused", &LockState::of(&LockView::new("nightly".into())));
    let because =
        WaitCause { waiter: acquisition(1), lock: LockName::new("nightly"), holder: acquisition(2) };
    let why = lockkeeper_cluster::WaitExplanation { chain: vec![because], cycle: Some(0) };
    golden.json("why", &Why::new(Some(why.clone()), |_| true));
    golden.json("why hidden", &Why::new(Some(why), |_| false));
    golden.json("why nothing", &Why::new(None, |_| true));
    let members = [(true, false, false, false), (false, true, false, false), (false, false, true, true)];
    let members = members.map(|(in_view, votes, leads, connected)| Member {
        id: 1,
        address: text("a:7420"),
        in_view,
        votes,
        leads,
        connected,
    });
    golden.json("members", &members);
    let status = Status {
        member: 1,
        cluster: text("canal"),
        version: "0.0.0",
        serves: true,
        reason: Some(text("frozen")),
        epoch: Some(2),
        lease_ms: 3,
        leader: Some(4),
        term: 5,
        algorithm: text("raymond"),
        sessions: 6,
    };
    golden.json("status", &status);
    golden.json("status without-options", &Status { reason: None, epoch: None, leader: None, ..status });
    let (acquire, observe, admin) = (vec![text("a")], vec![text("b")], vec![text("c")]);
    golden.json("whoami", &Whoami { who: text("ci"), acquire, observe, admin });
    let page = Page { prefix: text("night"), after: None, limit: Some(10) };
    golden.text("next-page", &link(&page, "nightly/é"));
    let shown = Arc::new(WatchedLock { view: view(), encoded: OnceLock::new() });
    let events = watch::encode(&[shown]);
    golden.json("watch-event", &std::str::from_utf8(&events).unwrap());
    golden.check(DIRECTORY, "tests/golden/http-replies.txt");
}

const ACQUIRE: &str = r#"{"session":"1a","mode":"permit","permits":1,"wait_ms":2,"ttl_ms":3,"owner":"web-3","purpose":"backup","request":"r1"}"#;
const HOLD_AS: &str =
    r#"{"owner":"web-3","for_ms":7,"mode":"permit","permits":1,"wait_ms":2,"purpose":"kernel"}"#;
const RELEASE_AS: &str = r#"{"owner":"web-3"}"#;
const RELEASE: &str = r#"{"hold":"1a-4"}"#;
const FORCE_RELEASE: &str = r#"{"acquisition":"C17#0/3"}"#;
const NEW_SESSION: &str = r#"{"ttl_ms":5,"owner":"web-3"}"#;

/// Every field of a request is read. The patterns have no `..`, so a new field does not compile before it has an example.
#[test]
fn json_of_requests_does_not_change() {
    let owned = |expected: &str| Some(text(expected));
    let Acquire { session, mode, permits, wait_ms, ttl_ms, owner, purpose, request } =
        parse(ACQUIRE.as_bytes()).unwrap();
    assert_eq!((session, mode, permits), (owned("1a"), Mode::Permit, Some(1)));
    assert_eq!((wait_ms, ttl_ms), (Some(2), Some(3)));
    assert_eq!((owner, purpose, request), (owned("web-3"), owned("backup"), owned("r1")));
    let HoldAs { owner, for_ms, mode, permits, wait_ms, purpose } = parse(HOLD_AS.as_bytes()).unwrap();
    assert_eq!((owner, for_ms, mode, permits), (text("web-3"), Some(7), Mode::Permit, Some(1)));
    assert_eq!((wait_ms, purpose), (Some(2), owned("kernel")));
    let ReleaseAs { owner } = parse(RELEASE_AS.as_bytes()).unwrap();
    assert_eq!(owner, "web-3");
    let Release { hold } = parse(RELEASE.as_bytes()).unwrap();
    assert_eq!(hold, "1a-4");
    let ForceRelease { acquisition } = parse(FORCE_RELEASE.as_bytes()).unwrap();
    assert_eq!(acquisition, owned("C17#0/3"));
    let NewSession { ttl_ms, owner } = parse(NEW_SESSION.as_bytes()).unwrap();
    assert_eq!((ttl_ms, owner), (Some(5), owned("web-3")));
    let modes = every_variant!(Mode {
        "exclusive": Mode::Exclusive => Mode::Exclusive,
        "shared": Mode::Shared => Mode::Shared,
        "permit": Mode::Permit => Mode::Permit,
    });
    for (name, expected) in modes {
        let Acquire { mode, .. } = parse(format!(r#"{{"mode":"{name}"}}"#).as_bytes()).unwrap();
        assert_eq!(mode, expected);
    }
    assert_eq!(parse::<Acquire>(b"{}").unwrap().mode, Mode::Exclusive, "the default");
}

/// The tests of the packages in `clients` pin the requests that these send. All of them can be read.
#[test]
fn requests_of_the_clients_in_other_languages_can_be_read() {
    let file = Path::new(DIRECTORY).join("../../clients/conformance/requests.json");
    let requests: BTreeMap<String, Value> =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert!(!requests.is_empty());
    for (name, request) in requests {
        let body = request["body"].to_string();
        let body = body.as_bytes();
        let path = request["path"].as_str().unwrap();
        let read = match path.rsplit('/').next().unwrap() {
            "sessions" => parse::<NewSession>(body).map(drop),
            "acquire" => parse::<Acquire>(body).map(drop),
            "release" => parse::<Release>(body).map(drop),
            "hold-as" => parse::<HoldAs>(body).map(drop),
            "release-as" => parse::<ReleaseAs>(body).map(drop),
            _ => {
                assert_eq!(body, b"null", "{name}: this request has no body");
                Ok(())
            }
        };
        assert!(read.is_ok(), "{name}: {:?}", read.err().map(|problem| problem.message));
    }
}

#[test]
fn query_parameters_do_not_change() {
    let uri = "/v1/locks?prefix=night&after=nightly&limit=10".parse().unwrap();
    let Query(Page { prefix, after, limit }) = Query::try_from_uri(&uri).unwrap();
    assert_eq!((prefix.as_str(), after.as_deref(), limit), ("night", Some("nightly"), Some(10)));
    let uri = "/v1/watch?prefix=night".parse().unwrap();
    let Query(Prefix { prefix }) = Query::try_from_uri(&uri).unwrap();
    assert_eq!(prefix, "night");
    let uri = "/v1/locks/nightly/why?session=1a&acquisition=C17%230%2F3".parse().unwrap();
    let Query(Waiter { session, acquisition }) = Query::try_from_uri(&uri).unwrap();
    assert_eq!((session, acquisition), (Some(text("1a")), Some(text("C17#0/3"))));
}

fn codes() -> Vec<(&'static str, ErrorCode)> {
    every_variant!(ErrorCode {
        "invalid": ErrorCode::Invalid => ErrorCode::Invalid,
        "no-such-session": ErrorCode::NoSuchSession => ErrorCode::NoSuchSession,
        "no-token": ErrorCode::NoToken => ErrorCode::NoToken,
        "not-allowed": ErrorCode::NotAllowed => ErrorCode::NotAllowed,
        "busy": ErrorCode::Busy => ErrorCode::Busy,
        "given-up": ErrorCode::GivenUp => ErrorCode::GivenUp,
        "conflict": ErrorCode::Conflict => ErrorCode::Conflict,
        "too-many": ErrorCode::TooMany => ErrorCode::TooMany,
        "no-lease": ErrorCode::NoLease => ErrorCode::NoLease,
        "unavailable": ErrorCode::Unavailable => ErrorCode::Unavailable,
        "no-such-path": ErrorCode::NoSuchPath => ErrorCode::NoSuchPath,
        "wrong-method": ErrorCode::WrongMethod => ErrorCode::WrongMethod,
        "other-origin": ErrorCode::OtherOrigin => ErrorCode::OtherOrigin,
        "other-host": ErrorCode::OtherHost => ErrorCode::OtherHost,
        "not-json": ErrorCode::NotJson => ErrorCode::NotJson,
        "slow": ErrorCode::Slow => ErrorCode::Slow,
        "too-long": ErrorCode::TooLong => ErrorCode::TooLong,
        "bad-json": ErrorCode::BadJson => ErrorCode::BadJson,
        "bad-query": ErrorCode::BadQuery => ErrorCode::BadQuery,
        "bad-path": ErrorCode::BadPath => ErrorCode::BadPath,
        "stopped": ErrorCode::Stopped => ErrorCode::Stopped,
        "not-ready": ErrorCode::NotReady => ErrorCode::NotReady,
    })
}

/// Status and code of every error and denial, and the code of every problem. Messages are for people and may change.
#[test]
fn json_of_problems_does_not_change() {
    let mut golden = Golden::default();
    for (name, error) in codes() {
        golden.json(&format!("code {name}"), &error);
    }
    let denied = every_variant!(Denied {
        "no-token": Denied::NoToken => Denied::NoToken,
        "not-allowed": Denied::NotAllowed { .. } => {
            Denied::NotAllowed { who: "ci".into(), permission: Permission::Acquire, name: text("nightly") }
        },
        "holds-nothing": Denied::HoldsNothing { .. } => Denied::HoldsNothing { who: "ci".into() },
    });
    let denied = denied.into_iter().map(|(name, denied)| (name, Problem::from(denied)));
    let errors =
        crate::leases::golden::errors().into_iter().map(|(name, error)| (name, Problem::from(error)));
    for (name, problem) in denied.chain(errors) {
        let problem = Problem { message: text("…"), ..problem };
        let json = serde_json::to_string(&problem).unwrap();
        golden.text(&format!("problem {name}"), &format!("{} {json}", problem.status.as_u16()));
    }
    golden.check(DIRECTORY, "tests/golden/http-problems.txt");
}

/// The JSON with sorted keys and without texts for people.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| name.as_str());
            let for_programs = fields.into_iter().filter(|(name, value)| {
                !(value.is_string() && matches!(name.as_str(), "description" | "summary"))
            });
            let fields: Vec<String> =
                for_programs.map(|(name, value)| format!("{name:?}:{}", canonical(value))).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        value => value.to_string(),
    }
}

#[test]
fn openapi_document_does_not_change() {
    let mut golden = Golden::default();
    let document = openapi::document(&Limits::default());
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            golden.text(&format!("{method} {path}"), &canonical(operation));
        }
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        golden.text(&format!("schema {name}"), &canonical(schema));
    }
    golden.check(DIRECTORY, "tests/golden/openapi.txt");
}
