//! Sessions of clients in the member's own process, also when the member loses its lease or stops.

mod support;

use lockkeeper_cluster::{
    ClientIdentity, ClientTransport, Config, Error, Member, NotServingReason, Proof, SessionId, Times,
    ToClient, ToMember,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Cluster, hold, soon};

/// Starts a cluster of one, with times for a loaded machine.
async fn alone(directory: &std::path::Path) -> Member {
    let mut config = Config::alone(directory);
    config.times = Times::default().times(10);
    let member = Member::start(config).await.expect("it starts");
    soon("a lease", member.ready()).await.expect("it serves");
    member
}

/// Number of steps of the state machine for this kind of event.
fn steps(registry: &prometheus_client::registry::Registry, event: &str) -> u64 {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).expect("text");
    let line = format!("lockkeeper_steps_total{{event=\"{event}\"}} ");
    let count = text.lines().find_map(|of| of.strip_prefix(&line));
    count.map_or(0, |count| count.parse().expect("a number"))
}

#[tokio::test]
async fn idle_sessions_cost_no_steps_however_many_there_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let member = alone(directory.path()).await;
    let mut registry = prometheus_client::registry::Registry::default();
    member.register_metrics(&mut registry);
    // Half of them hold a lock; half have never requested one.
    let owners: Vec<Member> = (0..2000).map(|_| member.new_owner()).collect();
    let mut guards = Vec::new();
    for (number, owner) in owners.iter().enumerate().take(1000) {
        guards.push(soon("a lock", owner.mutex(format!("lock/{number}")).acquire()).await.expect("free"));
    }
    let (asked, ticks) = (steps(&registry, "client"), steps(&registry, "tick"));
    assert!(asked >= 1000, "{asked}");
    // Much longer than a lease with the default times, and than several renewals of this one.
    soon("ticks", async {
        while steps(&registry, "tick") < ticks + 40 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(steps(&registry, "client"), asked, "idle sessions caused steps");
    assert!(guards.iter().all(|guard| guard.is_valid()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_under_a_lost_lease_stay_lost_and_their_locks_are_free_again() {
    let mut cluster = Cluster::start(3).await;
    cluster.all_in_view().await;
    let owners: Vec<Member> = (0..300).map(|_| cluster.member(0).new_owner()).collect();
    let mut guards = Vec::new();
    for (number, owner) in owners.iter().enumerate() {
        guards.push(hold(owner, &format!("lock/{number}")).await);
    }
    let warned: Vec<_> = guards.iter().map(|guard| tokio::spawn(guard.losing())).collect();
    cluster.down(2).await;
    cluster.down(1).await;
    for warned in warned {
        soon("a warning", warned).await.expect("no panic");
    }
    soon("the end of the lease", async {
        while guards.iter().any(|guard| guard.is_valid()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    // With a majority the lease is back, but the holds are not.
    cluster.up(1).await;
    soon("a lease", cluster.member(0).ready()).await.expect("it serves");
    assert!(guards.iter().all(|guard| !guard.is_valid() && guard.loss().is_some()));
    for number in 0..300 {
        hold(cluster.member(0), &format!("lock/{number}")).await.release().await.expect("held");
    }
    for guard in guards {
        assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_without_a_majority_gives_the_reason_and_a_try_fails_at_once() {
    let mut cluster = Cluster::start(3).await;
    cluster.all_in_view().await;
    assert_eq!(cluster.member(0).not_serving(), None);
    cluster.down(2).await;
    cluster.down(1).await;
    let member = cluster.member(0).clone();
    soon("the end of the lease", async {
        while member.not_serving().is_none_or(|trouble| trouble.has_lease) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    soon("both are missed", async {
        while member.not_serving().is_some_and(|trouble| trouble.unreachable.len() < 2) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let trouble = member.not_serving().expect("no majority");
    let no_majority = matches!(
        trouble.reason,
        NotServingReason::NoLeader { .. }
            | NotServingReason::NoQuorum { .. }
            | NotServingReason::LeaderUnreachable(_)
    );
    assert!(no_majority && trouble.lasts.is_some(), "{trouble:?}");
    let text = trouble.to_string();
    assert!(text.contains("member 1 has had no lease for") && text.contains("members 2 and 3"), "{text}");
    let Err(Error::NoLease(why)) = member.mutex("a").try_acquire().await else { panic!("an error") };
    assert!(why.contains("no lease"), "{why}");
    // A request with a timeout waits for it, and then reports the same reason.
    let waited = member.mutex("a").acquire_within(Duration::from_millis(50)).await;
    assert!(matches!(waited, Err(Error::NoLease(_))), "{waited:?}");
    // A request without a timeout waits until there is a lease again.
    let waits = tokio::spawn({
        let member = member.clone();
        async move { member.mutex("a").acquire().await }
    });
    cluster.up(1).await;
    soon("the lock", waits).await.expect("no panic").expect("granted").release().await.expect("held");
    assert_eq!(member.not_serving(), None);
}

/// A transport that panics when it delivers a message, which is during a step of the member.
struct Panics(AtomicBool);

impl ClientTransport for Panics {
    fn deliver(&self, _session: SessionId, _message: ToClient) {
        self.0.store(true, Ordering::Relaxed);
        panic!("injected by the test");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_whose_step_panics_stops_and_every_call_returns_that_reason() {
    let mut cluster = Cluster::start(3).await;
    cluster.all_in_view().await;
    let member = cluster.member(0).clone();
    let guard = hold(&member, "a").await;
    let waiting = tokio::spawn({
        let owner = member.new_owner();
        async move { owner.mutex("a").acquire().await }
    });
    soon("a waiter", async {
        while member.table().iter().all(|row| row.waiters.is_empty()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let losing = tokio::spawn(guard.losing());
    let panics = Arc::new(Panics(AtomicBool::new(false)));
    let identity = ClientIdentity { number: 7, proof: Proof([7; 16]) };
    assert!(member.attach(identity, panics.clone()));
    let session = SessionId { client: identity.number, number: 1 };
    // The panic does not reach the caller.
    member.handle_client_message(
        session,
        ToMember::KeepAlive { sent_ns: 1, first: true, settled: 1, generation: None },
    );
    assert!(panics.0.load(Ordering::Relaxed));

    let says_so =
        |error: &Error| matches!(error, Error::Stopped(why) if why.contains("injected by the test"));
    soon("the hold is lost", losing).await.expect("no panic");
    assert!(!guard.is_valid());
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    let waited = soon("the waiter", waiting).await.expect("no panic");
    assert!(waited.as_ref().is_err_and(says_so), "{waited:?}");
    let asked = soon("an answer", member.mutex("b").acquire()).await;
    assert!(asked.as_ref().is_err_and(says_so), "{asked:?}");
    let tried = soon("an answer", member.mutex("b").try_acquire()).await;
    assert!(tried.as_ref().is_err_and(says_so), "{tried:?}");
    assert!(soon("an answer", member.ready()).await.as_ref().is_err_and(says_so));
    assert!(soon("an answer", member.query_all()).await.as_ref().is_err_and(says_so));
    assert!(member.status().failed && !member.status().serves());
    let trouble = member.not_serving().expect("it has stopped").to_string();
    assert!(trouble.contains("has stopped") && trouble.contains("injected by the test"), "{trouble}");
    // It no longer votes, either: the other members go on, whether it led before or not.
    drop(hold(cluster.member(1), "a").await);
    cluster.members[0] = None;
}

/// A transport that counts the messages to its client.
#[derive(Default)]
struct Counts(std::sync::atomic::AtomicUsize);

impl ClientTransport for Counts {
    fn deliver(&self, _session: SessionId, _message: ToClient) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Numbers of resident and attached clients are disjoint and not sequential, and no message can be sent on behalf of a
/// client that is not attached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_connect_and_clients_in_the_process_have_numbers_of_their_own() {
    let mut cluster = Cluster::start(1).await;
    cluster.all_in_view().await;
    let member = cluster.member(0).clone();
    let resident: Vec<u64> =
        (0..20).map(|_| member.new_owner().session().expect("it is open").client).collect();
    assert!(resident.iter().all(|client| SessionId { client: *client, number: 0 }.is_resident()));
    assert!(
        resident.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1 << 20),
        "they follow each other: {resident:?}"
    );
    let counts = Arc::new(Counts::default());
    let attached = 7;
    let identity = |number| ClientIdentity { number, proof: Proof([7; 16]) };
    assert!(member.attach(identity(attached), counts.clone()));
    assert!(!member.attach(identity(attached), counts.clone()), "the number is in use");
    assert!(!member.attach(identity(SessionId::RESIDENT), counts.clone()), "the number of a resident client");
    let owner = member.new_owner();
    let first = ToMember::KeepAlive { sent_ns: 1, first: true, settled: 1, generation: None };
    for client in [owner.session().expect("it is open").client, attached + 1] {
        member.handle_client_message(SessionId { client, number: 0 }, first.clone());
    }
    assert_eq!(counts.0.load(Ordering::Relaxed), 0);
    // The owner is served normally.
    let guard = hold(&owner, "a").await;
    assert!(guard.is_valid());
    member.handle_client_message(SessionId { client: attached, number: 1 }, first);
    assert_eq!(counts.0.load(Ordering::Relaxed), 1);
    cluster.members[0] = None;
}
