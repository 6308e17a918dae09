//! The bytes of the native protocol: greetings, frames and messages in both directions.
//!
//! A change of these files is a change of the protocol: raise [`NEWEST`] (and [`OLDEST`], if the versions before cannot be served).
//! The messages of sessions, [`ToMember`] and [`ToClient`], are pinned in `crates/member/tests/golden/clients.txt`.

use lockkeeper_session::protocol::{
    ClusterLine, DaemonQuery, DaemonReply, DetachedCommand, DetachedLine, DetachedRequest, FromDaemon,
    Greeting, Hello, LONGEST_FROM_DAEMON, LONGEST_GREETING, LONGEST_TO_DAEMON, LockLine, MemberLine, NEWEST,
    OLDEST, PORT, ParticipantLine, Refusal, Secret, ToDaemon, Welcome, encode, opening, reply,
};
use lockkeeper_session::{Ended, LockMode, ToClient, ToMember};
use lockkeeper_testbed::every_variant;
use lockkeeper_testbed::golden::Golden;

const DIRECTORY: &str = env!("CARGO_MANIFEST_DIR");

fn text(text: &str) -> String {
    text.into()
}

fn lock_line() -> LockLine {
    let line = |number, fence| ParticipantLine {
        acquisition: text("C17#0/3"),
        member: 1,
        mode: LockMode::Exclusive,
        owner: text("web-3"),
        purpose: text("backup"),
        fence,
        since_ms: number,
        detached_until_ms: fence.map(|_| 11),
        in_jeopardy: fence.is_none(),
    };
    LockLine { name: text("nightly"), holders: vec![line(2, Some(3))], waiters: vec![line(4, None)] }
}

fn cluster_line() -> ClusterLine {
    ClusterLine {
        cluster: text("canal"),
        algorithm: text("raymond (tree=line)"),
        member: 1,
        serves: true,
        trouble: Some(text("frozen")),
        epoch: 5,
        lease_ms: 6,
        leader: Some(7),
        members: vec![
            MemberLine { id: 8, address: text("a:7420"), votes: true, in_view: false, connected: false },
            MemberLine { id: 9, address: text("b:7420"), votes: false, in_view: true, connected: false },
            MemberLine { id: 10, address: text("c:7420"), votes: false, in_view: false, connected: true },
        ],
        settings: vec![(text("lease"), text("1200ms"))],
    }
}

#[test]
fn bytes_of_the_greeting_of_the_native_protocol_do_not_change() {
    let mut golden = Golden::default();
    let numbers = [
        ("oldest-version", u64::from(OLDEST)),
        ("newest-version", u64::from(NEWEST)),
        ("port", u64::from(PORT)),
        ("longest-greeting", LONGEST_GREETING as u64),
        ("longest-frame-to-daemon", LONGEST_TO_DAEMON as u64),
        ("longest-frame-from-daemon", LONGEST_FROM_DAEMON as u64),
    ];
    for (name, number) in numbers {
        golden.text(name, &number.to_string());
    }
    golden.bytes("opening", &opening());
    golden.bytes("reply", &reply(Some(NEWEST)));
    golden.bytes("reply-without-common-version", &reply(None));
    let hello = Hello { secret: Secret::new([0xab; 16]), token: Some(text("lk_x")), for_locks: true };
    let without_token = Hello { token: None, for_locks: false, ..hello.clone() };
    golden.values("hello", &[("with-token", hello), ("without-token", without_token)]);
    let greetings = every_variant!(Greeting {
        "welcome": Greeting::Welcome(_) =>
            Greeting::Welcome(Welcome {
                member: 1,
                lease_ns: 2,
                moment_ns: 3,
                members: 4,
                shortest_ttl_ns: 5,
                longest_ttl_ns: 6,
            }),
        "not-now": Greeting::NotNow(_) => Greeting::NotNow(text("frozen")),
        "refused": Greeting::Refused(_) => Greeting::Refused(text("no token")),
    });
    golden.values("greeting", &greetings);
    golden.check(DIRECTORY, "tests/golden/greeting.txt");
}

fn queries() -> Vec<(&'static str, DaemonQuery)> {
    every_variant!(DaemonQuery {
        "all-locks": DaemonQuery::Locks(None) => DaemonQuery::Locks(None),
        "lock": DaemonQuery::Locks(Some(_)) => DaemonQuery::Locks(Some(text("nightly"))),
        "watch": DaemonQuery::Watch => DaemonQuery::Watch,
        "cluster": DaemonQuery::Cluster => DaemonQuery::Cluster,
        "force-release": DaemonQuery::ForceRelease(_) => DaemonQuery::ForceRelease(text("nightly")),
        "why": DaemonQuery::Why(_) => DaemonQuery::Why(text("nightly")),
        "remove": DaemonQuery::Remove(_) => DaemonQuery::Remove(3),
        "leave": DaemonQuery::Leave => DaemonQuery::Leave,
        "set": DaemonQuery::Set(_) => DaemonQuery::Set(vec![(text("lease"), text("2s"))]),
        "page": DaemonQuery::LocksPage { .. } =>
            DaemonQuery::LocksPage { prefix: text("night"), after: Some(text("nightly")), limit: 100 },
        "hold-as": DaemonQuery::HoldAs(_) => DaemonQuery::HoldAs(DetachedRequest {
            lock: text("reboot"),
            mode: LockMode::Permit { of: 12 },
            owner: text("web-3"),
            purpose: text("kernel"),
            lasts_ns: 13,
            ttl_ns: 14,
            timeout_ns: Some(15),
        }),
        "detached": DaemonQuery::Detached { .. } => DaemonQuery::Detached {
            lock: text("reboot"),
            owner: text("web-3"),
            command: DetachedCommand::Release,
        },
    })
}

fn detached_commands() -> Vec<(&'static str, DetachedCommand)> {
    every_variant!(DetachedCommand {
        "find": DetachedCommand::Find { .. } => DetachedCommand::Find { lasts_ns: Some(16) },
        "release": DetachedCommand::Release => DetachedCommand::Release,
        "keep-alive": DetachedCommand::KeepAlive => DetachedCommand::KeepAlive,
        "leave": DetachedCommand::Leave => DetachedCommand::Leave,
        "discard": DetachedCommand::Discard => DetachedCommand::Discard,
        "withdraw": DetachedCommand::Withdraw => DetachedCommand::Withdraw,
    })
}

#[test]
fn bytes_of_messages_from_client_to_daemon_do_not_change() {
    let mut golden = Golden::default();
    let messages = every_variant!(ToDaemon {
        "session": ToDaemon::Session(..) => ToDaemon::Session(1, ToMember::Release { number: 2 }),
        "query": ToDaemon::Query(..) => ToDaemon::Query(3, DaemonQuery::Watch),
        "cancel": ToDaemon::Cancel(_) => ToDaemon::Cancel(4),
    });
    golden.values("to-daemon", &messages);
    golden.values("query", &queries());
    golden.values("detached-command", &detached_commands());
    let mut frames = Vec::new();
    messages.iter().for_each(|(_, message)| encode(message, &mut frames));
    golden.bytes("frames", &frames);
    golden.check(DIRECTORY, "tests/golden/to-daemon.txt");
}

fn answers() -> Vec<(&'static str, DaemonReply)> {
    every_variant!(DaemonReply {
        "done": DaemonReply::Done => DaemonReply::Done,
        "refused": DaemonReply::Refused(_) => DaemonReply::Refused(text("no permission")),
        "locks": DaemonReply::Locks(_) => DaemonReply::Locks(vec![lock_line()]),
        "cluster": DaemonReply::Cluster(_) => DaemonReply::Cluster(cluster_line()),
        "released": DaemonReply::Released(_) => DaemonReply::Released(2),
        "why": DaemonReply::Why(_) => DaemonReply::Why(vec![text("a waits for b")]),
        "page": DaemonReply::LocksPage { .. } =>
            DaemonReply::LocksPage { locks: vec![lock_line()], next: Some(text("nightly")), left_out: 5 },
        "invalid": DaemonReply::Invalid(_) => DaemonReply::Invalid(text("a lease is at least 100 ms")),
        "detached": DaemonReply::Detached { .. } => {
            let (mode, fence) = (LockMode::Permit { of: 17 }, Some(18));
            let hold = Some(DetachedLine { mode, fence, left_ns: 19, valid_for_ns: 20 });
            DaemonReply::Detached { hold, released: true, lost: Some(text("revoked")), revoked_by: Some(text("root")) }
        },
    })
}

#[test]
fn bytes_of_messages_from_daemon_to_client_do_not_change() {
    let mut golden = Golden::default();
    let refuse = |why| FromDaemon::Refuse { session: 3, number: 4, why };
    let messages = every_variant!(FromDaemon {
        "session": FromDaemon::Session(..) =>
            FromDaemon::Session(1, ToClient::Ended { number: 2, outcome: Ended::TimedOut }),
        "refuse-mode": FromDaemon::Refuse { why: Refusal::InUseAs(_), .. } =>
            refuse(Refusal::InUseAs(LockMode::Permit { of: 3 })),
        "refuse": FromDaemon::Refuse { why: Refusal::Because(_), .. } =>
            refuse(Refusal::Because(text("too many"))),
        "answer": FromDaemon::Reply(..) => FromDaemon::Reply(5, DaemonReply::Done),
        "changed": FromDaemon::Changed => FromDaemon::Changed,
    });
    golden.values("from-daemon", &messages);
    golden.values("answer", &answers());
    let modes = every_variant!(LockMode {
        "exclusive": LockMode::Exclusive => LockMode::Exclusive,
        "shared": LockMode::Shared => LockMode::Shared,
        "permit": LockMode::Permit { .. } => LockMode::Permit { of: 3 },
    });
    golden.values("mode", &modes);
    golden.check(DIRECTORY, "tests/golden/from-daemon.txt");
}
