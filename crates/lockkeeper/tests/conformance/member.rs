//! The suite on members of a cluster in this process, and tests of the guarantees of this engine. The tests of the suite
//! that need a URL, for other processes, are those of the daemons; `crates/cluster/tests/processes` runs members in
//! processes of their own, under faults.

use crate::backend::{Backend, TIMEOUT, acquire, open, until, until_free, until_waiting};
use lockkeeper::member::{Config, JoinToken, Member, MemberId, Times};
use lockkeeper::{Error, Fence, Guard, Lockkeeper, Loss};
use lockkeeper_testbed::ports;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

/// The factor by which all times of these clusters are longer than the defaults.
const SLOWER: u32 = 4;

/// The members of one cluster, in this process.
pub struct Members {
    configs: Vec<Config>,
    members: Mutex<Vec<Option<Member>>>,
    opened: AtomicUsize,
    _data: tempfile::TempDir,
}

impl Members {
    async fn of(count: u32) -> Members {
        let data = tempfile::tempdir().unwrap();
        let ports: Vec<u16> = (0..count).map(|_| ports::free().unwrap()).collect();
        let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let token = JoinToken::random().unwrap();
        let config = |(id, port): (u32, &u16)| {
            let folder = data.path().join(id.to_string());
            let mut config = match count {
                1 => Config::alone(folder),
                _ => Config::new(MemberId(id), at(*port), folder),
            };
            if count > 1 {
                let all = (1..).map(MemberId).zip(ports.iter().map(|port| at(*port).to_string()));
                config.first_members = all.collect();
                config.join_token = Some(token.clone());
            }
            config.times = Times::default().times(SLOWER);
            config
        };
        let configs: Vec<Config> = (1..).zip(&ports).map(config).collect();
        let members = Mutex::new(vec![None; configs.len()]);
        let cluster = Members { configs, members, opened: AtomicUsize::new(0), _data: data };
        for place in 0..cluster.configs.len() {
            cluster.start(place).await;
        }
        for place in 0..cluster.configs.len() {
            cluster.member(place).ready().await.unwrap();
        }
        cluster
    }

    async fn start(&self, place: usize) {
        let member = Member::start(self.configs[place].clone()).await.unwrap();
        self.members.lock().unwrap()[place] = Some(member);
    }

    /// Stops a member at once, as a crash would.
    async fn crash(&self, place: usize) {
        let member = self.members.lock().unwrap()[place].take().expect("it runs");
        member.stop().await;
    }

    fn member(&self, place: usize) -> Member {
        self.members.lock().unwrap()[place].clone().expect("it runs")
    }
}

impl Backend for Members {
    fn url(&self) -> String {
        unreachable!("a member has no URL")
    }

    /// Each client is at the next member.
    fn locks(&self) -> Option<Lockkeeper> {
        let place = self.opened.fetch_add(1, Ordering::Relaxed) % self.configs.len();
        Some(self.member(place).locks())
    }
}

mod alone {
    crate::conformance_in_this_process! { super::Members::of(1).await }
}

mod three {
    crate::conformance_in_this_process! { super::Members::of(3).await }
}

async fn in_time(test: impl Future<Output = ()>) {
    timeout(TIMEOUT, test).await.expect("the test is stuck");
}

/// What the clients that take turns see of each other.
#[derive(Default)]
struct Turns {
    /// The hold of the client that is inside, and the highest fence so far.
    inside: Mutex<(Option<Guard>, Option<Fence>)>,
    entries: AtomicUsize,
    ended: AtomicBool,
}

impl Turns {
    /// Enters; false if the hold was lost on the way.
    fn enter(&self, guard: Guard) -> bool {
        let (inside, highest) = &mut *self.inside.lock().unwrap();
        if !guard.is_valid() {
            return false;
        }
        // A client that is still there with a lost hold is only late.
        assert!(inside.as_ref().is_none_or(|other| !other.is_valid()), "{inside:?} is inside, and {guard:?}");
        assert!(guard.fence() > *highest, "{guard:?} after {highest:?}");
        *highest = guard.fence();
        *inside = Some(guard);
        true
    }
}

/// Enters a lock again and again, as a client of one member that may crash and start again.
async fn take_turns(cluster: Arc<Members>, place: usize, turns: Arc<Turns>) {
    while !turns.ended.load(Ordering::Relaxed) {
        let member = cluster.members.lock().unwrap()[place].clone();
        let Some(locks) = member.map(|member| member.locks()) else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let Ok(guard) = locks.mutex("turn").acquire().await else { continue };
        let holder = guard.holder().to_owned();
        if !turns.enter(guard) {
            continue;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        // Another client may have entered since, if the member has crashed.
        let own = turns.inside.lock().unwrap().0.take_if(|inside| inside.holder() == holder);
        if let Some(guard) = own {
            let _ = guard.release().await;
        }
        turns.entries.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_three_members_take_turns_while_members_crash() {
    in_time(turns_and_crashes()).await;
}

async fn turns_and_crashes() {
    let cluster = Arc::new(Members::of(3).await);
    let turns = Arc::new(Turns::default());
    let tasks: Vec<_> =
        (0..6).map(|n| tokio::spawn(take_turns(cluster.clone(), n % 3, turns.clone()))).collect();
    let further = async |count: usize| {
        let from = turns.entries.load(Ordering::Relaxed);
        until(|| async { turns.entries.load(Ordering::Relaxed) >= from + count }).await;
    };
    further(20).await;
    for round in 0..3 {
        cluster.crash(round).await;
        // The others go on without it, and with it again.
        further(20).await;
        cluster.start(round).await;
        cluster.member(round).ready().await.unwrap();
        further(20).await;
    }
    turns.ended.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no two clients were inside, and fences rose");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_lost_with_the_majority_and_the_loss_names_the_reason() {
    in_time(lost_with_the_majority()).await;
}

async fn lost_with_the_majority() {
    let cluster = Members::of(3).await;
    let locks = cluster.member(0).locks();
    let guard = locks.mutex("a").acquire().await.unwrap();
    let ttl = guard.ttl().expect("it is the member's lease");
    cluster.crash(1).await;
    cluster.crash(2).await;
    let loss = guard.lost().await;
    assert!(matches!(loss, Loss::Expired | Loss::Unreachable(_)), "{loss:?}");
    assert!(!guard.is_valid() && guard.valid_for() <= ttl / 5, "a fifth of the lease to stop in");
    let error = guard.release().await.unwrap_err();
    assert!(matches!(&error, Error::Lost { reason, .. } if *reason == loss), "{error}");
    // A try fails as soon as the lease is over; a request that waits, after 6 s.
    until(|| async { cluster.member(0).not_serving().is_some() }).await;
    let error = until_error(&locks).await;
    assert!(matches!(&error, Error::Unavailable { reason, .. } if reason.contains("member 1")), "{error}");
    let error = locks.mutex("b").acquire().await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason, .. } if reason.contains("no lease")), "{error}");
    // With a majority, a later request is granted, with a higher fence.
    cluster.start(1).await;
    cluster.member(0).ready().await.unwrap();
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
}

/// The error of a try, once the member has no lease.
async fn until_error(locks: &Lockkeeper) -> Error {
    loop {
        if let Err(error) = locks.mutex("c").try_acquire().await {
            return error;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_names_its_operator_and_lets_the_next_one_in() {
    in_time(forced_release()).await;
}

async fn forced_release() {
    let cluster = Members::of(3).await;
    let config = cluster.configs[0].clone();
    // The crate below has what operators need; its member is an engine, too.
    cluster.crash(0).await;
    let operated = lockkeeper_cluster::Member::start(config).await.unwrap();
    let member = Member::from(operated.clone());
    member.ready().await.unwrap();
    let guard = member.locks().mutex("a").acquire().await.unwrap();
    let next = acquire(cluster.member(1).locks().mutex("a"));
    until_waiting(&member.locks(), "a", 1).await;
    let replies = operated.query(lockkeeper_cluster::Query::ALL).await.unwrap();
    let rows = replies.iter().flat_map(|reply| &reply.locks);
    let holder = rows.flat_map(|row| &row.holders).next().expect("it is held").acquisition;
    operated.release_by_force("a", holder, "ada").await.unwrap();
    assert_eq!(guard.lost().await, Loss::Revoked { by: Some("ada".into()) });
    assert!(!guard.is_valid());
    let fence = guard.fence();
    let error = guard.release().await.unwrap_err();
    assert!(matches!(&error, Error::Lost { reason: Loss::Revoked { .. }, .. }), "{error}");
    assert!(next.await.unwrap().fence() > fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_dropped_without_its_runtime_gives_the_lock_of_a_member_up() {
    in_time(dropped_without_its_runtime()).await;
}

async fn dropped_without_its_runtime() {
    let cluster = Members::of(1).await;
    let locks = open(&cluster).await;
    let other = locks.clone();
    let dropped = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let guard = runtime.block_on(async { other.mutex("a").acquire().await.unwrap() });
        drop(runtime);
        assert!(guard.is_valid(), "the member runs elsewhere");
        drop(guard);
    });
    tokio::task::spawn_blocking(move || dropped.join().expect("dropping must not panic")).await.unwrap();
    until_free(&locks, "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_runs_while_it_is_used_and_its_end_is_reported() {
    in_time(runs_while_used()).await;
}

async fn runs_while_used() {
    let cluster = Members::of(1).await;
    let locks = open(&cluster).await;
    let member = cluster.members.lock().unwrap()[0].take().expect("it runs");
    assert_eq!((member.id(), member.address(), member.not_serving()), (MemberId(1), None, None));
    drop(member.clone());
    let guard = locks.mutex("a").acquire().await.unwrap();
    // A planned leave waits for the holder.
    let leaving = tokio::spawn(member.leave(Duration::from_secs(100)));
    until(|| async { locks.mutex("b").try_acquire().await.is_err() }).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    leaving.await.unwrap();
    let error = locks.mutex("a").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { engine: "member", .. }), "{error}");
    assert!(locks.list().await.is_err());

    // The same data, by a member that only its locks keep.
    let locks = Member::start(cluster.configs[0].clone()).await.unwrap().locks();
    locks.mutex("a").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused_in_words() {
    let data = tempfile::tempdir().unwrap();
    let mut config = Config::alone(data.path());
    config.most_voters = 2;
    let error = Member::start(config).await.unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("odd number"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_diagnosis_of_a_member_names_the_size_of_its_cluster_and_missing_members() {
    in_time(diagnosed()).await;
}

async fn diagnosed() {
    let alone = Members::of(1).await;
    let diagnosis = open(&alone).await.diagnose().await.unwrap();
    assert_eq!(diagnosis.engine, "member");
    assert_eq!(checks(&diagnosis), ["size"]);
    let three = Members::of(3).await;
    let locks = three.member(0).locks();
    until(|| async { checks(&locks.diagnose().await.unwrap()).is_empty() }).await;
    three.crash(2).await;
    until(|| async { checks(&locks.diagnose().await.unwrap()) == ["health"] }).await;
}

fn checks(diagnosis: &lockkeeper::Diagnosis) -> Vec<&'static str> {
    diagnosis.findings.iter().filter(|found| found.severity.is_risk()).map(|found| found.check).collect()
}
