//! The bytes of the native protocol: greetings, frames and messages in both directions.
//!
//! A change of these files is a change of the protocol: raise [`NEWEST`] (and [`OLDEST`], if the versions before cannot be served).
//! The messages of sessions, [`ToMember`] and [`ToClient`], are pinned in `crates/member/tests/golden/clients.txt`.

use lockkeeper_member::{Ended, ToClient, ToMember};
use lockkeeper_testbed::every_variant;
use lockkeeper_testbed::golden::Golden;
use lockkeeper_wire::{
    Answer, Ask, ClusterLine, FromDaemon, Greeting, Hello, How, Line, LONGEST_FROM_DAEMON, LONGEST_GREETING,
    LONGEST_TO_DAEMON, LockLine, MemberLine, NEWEST, OLDEST, PORT, Refusal, Secret, ToDaemon, Welcome, encode,
    opening, reply,
};

const DIRECTORY: &str = env!("CARGO_MANIFEST_DIR");

fn text(text: &str) -> String {
    text.into()
}

fn lock_line() -> LockLine {
    let line = |number, fence| Line {
        acquisition: text("C17#0/3"),
        member: 1,
        how: How::Exclusive,
        owner: text("web-3"),
        purpose: text("backup"),
        fence,
        since_ms: number,
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
            Greeting::Welcome(Welcome { member: 1, lease_ns: 2, moment_ns: 3, members: 4 }),
        "not-now": Greeting::NotNow(_) => Greeting::NotNow(text("frozen")),
        "refused": Greeting::Refused(_) => Greeting::Refused(text("no token")),
    });
    golden.values("greeting", &greetings);
    golden.check(DIRECTORY, "tests/golden/greeting.txt");
}

fn asks() -> Vec<(&'static str, Ask)> {
    every_variant!(Ask {
        "all-locks": Ask::Locks(None) => Ask::Locks(None),
        "lock": Ask::Locks(Some(_)) => Ask::Locks(Some(text("nightly"))),
        "watch": Ask::Watch => Ask::Watch,
        "cluster": Ask::Cluster => Ask::Cluster,
        "force-release": Ask::ForceRelease(_) => Ask::ForceRelease(text("nightly")),
        "why": Ask::Why(_) => Ask::Why(text("nightly")),
        "remove": Ask::Remove(_) => Ask::Remove(3),
        "leave": Ask::Leave => Ask::Leave,
        "set": Ask::Set(_) => Ask::Set(vec![(text("lease"), text("2s"))]),
        "page": Ask::LocksPage { .. } =>
            Ask::LocksPage { prefix: text("night"), after: Some(text("nightly")), limit: 100 },
    })
}

#[test]
fn bytes_of_messages_from_client_to_daemon_do_not_change() {
    let mut golden = Golden::default();
    let messages = every_variant!(ToDaemon {
        "session": ToDaemon::Say(..) => ToDaemon::Say(1, ToMember::Release { number: 2 }),
        "query": ToDaemon::Ask(..) => ToDaemon::Ask(3, Ask::Watch),
    });
    golden.values("to-daemon", &messages);
    golden.values("query", &asks());
    let mut frames = Vec::new();
    messages.iter().for_each(|(_, message)| encode(message, &mut frames));
    golden.bytes("two frames", &frames);
    golden.check(DIRECTORY, "tests/golden/to-daemon.txt");
}

fn answers() -> Vec<(&'static str, Answer)> {
    every_variant!(Answer {
        "done": Answer::Done => Answer::Done,
        "refused": Answer::Refused(_) => Answer::Refused(text("no permission")),
        "locks": Answer::Locks(_) => Answer::Locks(vec![lock_line()]),
        "cluster": Answer::Cluster(_) => Answer::Cluster(cluster_line()),
        "released": Answer::Released(_) => Answer::Released(2),
        "why": Answer::Why(_) => Answer::Why(vec![text("a waits for b")]),
        "page": Answer::LocksPage { .. } =>
            Answer::LocksPage { locks: vec![lock_line()], next: Some(text("nightly")), left_out: 5 },
    })
}

#[test]
fn bytes_of_messages_from_daemon_to_client_do_not_change() {
    let mut golden = Golden::default();
    let refuse = |why| FromDaemon::Refuse { session: 3, number: 4, why };
    let messages = every_variant!(FromDaemon {
        "session": FromDaemon::Hear(..) =>
            FromDaemon::Hear(1, ToClient::Ended { number: 2, how: Ended::TimedOut }),
        "refuse-mode": FromDaemon::Refuse { why: Refusal::InUseAs(_), .. } =>
            refuse(Refusal::InUseAs(How::Permit(3))),
        "refuse": FromDaemon::Refuse { why: Refusal::Because(_), .. } =>
            refuse(Refusal::Because(text("too many"))),
        "answer": FromDaemon::Answer(..) => FromDaemon::Answer(5, Answer::Done),
        "changed": FromDaemon::Changed => FromDaemon::Changed,
    });
    golden.values("from-daemon", &messages);
    golden.values("answer", &answers());
    let modes = every_variant!(How {
        "exclusive": How::Exclusive => How::Exclusive,
        "shared": How::Shared => How::Shared,
        "permit": How::Permit(_) => How::Permit(3),
    });
    golden.values("mode", &modes);
    golden.check(DIRECTORY, "tests/golden/from-daemon.txt");
}

/// `lockkeeper status --json` prints a [`ClusterLine`], and `lockkeeper members --json` its members.
#[test]
fn json_of_the_status_and_of_the_members_does_not_change() {
    let mut golden = Golden::default();
    golden.json("status", &cluster_line());
    let nothing_known = ClusterLine { trouble: None, leader: None, members: Vec::new(), ..cluster_line() };
    golden.json("status-without-options", &nothing_known);
    golden.json("members", &cluster_line().members);
    golden.check(DIRECTORY, "tests/golden/status.txt");
}
