//! Members of one cluster in one process, over real sockets and real disks.

mod support;

use lockkeeper_cluster::{Config, Error, JoinToken, Member, MemberId, Times};
use lockkeeper_testbed::ports;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::{Cluster, LONG, hold, soon};

#[tokio::test]
async fn cluster_of_one_grants_and_releases() {
    let directory = tempfile::tempdir().expect("a directory");
    let member = Member::start(Config::alone(directory.path())).await.expect("it starts");
    let first = hold(&member, "orders/42").await;
    assert!(first.is_valid() && first.fence() > 0);
    assert!(member.mutex("orders/42").try_acquire().await.expect("an answer").is_none());
    let fence = first.fence();
    first.release().await.expect("still held");
    let second = hold(&member, "orders/42").await;
    assert!(second.fence() > fence);
    member.stop().await;
    assert_eq!(second.valid_for(), Duration::ZERO);
    assert!(matches!(second.release().await, Err(Error::Lost { .. })));
}

#[tokio::test]
async fn fences_rise_over_a_restart_of_everything() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut last = 0;
    for _ in 0..3 {
        let member = Member::start(Config::alone(directory.path())).await.expect("it starts");
        let guard = hold(&member, "a").await;
        assert!(guard.fence() > last, "{} after {last}", guard.fence());
        last = guard.fence();
        member.stop().await;
    }
}

#[tokio::test]
async fn fences_rise_over_the_loss_of_all_disks() {
    let mut last = 0;
    for times in [Times::tuned(), Times::default(), Times::tuned()] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = Config::alone(directory.path());
        config.times = times;
        let member = Member::start(config).await.expect("it starts");
        let guard = hold(&member, "a").await;
        assert!(guard.fence() > last, "{} after {last}", guard.fence());
        last = guard.fence();
        member.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_exclude_each_other() {
    for algorithm in ["naimi-trehel", "ricart-agrawala", "maekawa"] {
        let cluster = Cluster::start_with(3, |config| config.algorithm = algorithm.into()).await;
        cluster.all_in_view().await;
        let inside = Arc::new(AtomicU64::new(0));
        let highest = Arc::new(AtomicU64::new(0));
        let mut clients = tokio::task::JoinSet::new();
        for place in 0..3 {
            for _ in 0..4 {
                let member = cluster.member(place).clone();
                let (inside, highest) = (inside.clone(), highest.clone());
                clients.spawn(async move {
                    for _ in 0..25 {
                        let guard = hold(&member, "shared").await;
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                        let before = highest.swap(guard.fence(), Ordering::SeqCst);
                        assert!(guard.fence() > before, "{before} was followed by {}", guard.fence());
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        guard.release().await.expect("still held");
                    }
                });
            }
        }
        while let Some(done) = soon(algorithm, clients.join_next()).await {
            done.expect("no client fails");
        }
    }
}

fn changes(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_change_for_all_members_while_a_lock_is_held() {
    let cluster = Cluster::start(3).await;
    cluster.all_in_view().await;
    let held = hold(cluster.member(0), "held").await;
    let waiting = tokio::spawn({
        let member = cluster.member(2).clone();
        async move { hold(&member, "held").await }
    });
    // Sent to each member in turn: only one of them leads.
    for (place, algorithm) in ["majority", "raymond", "ricart-agrawala"].into_iter().enumerate() {
        let wanted = changes(&[("algorithm", algorithm), ("longest_lease", "6s"), ("lease", "6s")]);
        let asked = cluster.member(place).change_settings(&wanted);
        soon(algorithm, asked).await.expect("it is decided");
        for member in cluster.members.iter().flatten() {
            let same = async {
                while member.settings().algorithm_text() != algorithm || member.status().view.is_none() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            soon("every member has it", same).await;
            assert_eq!(member.settings().lease_ns, 6_000_000_000);
        }
        assert!(held.is_valid(), "a hold survives the change to {algorithm}");
        let guard = hold(cluster.member(place), algorithm).await;
        guard.release().await.expect("still held");
    }
    let fence = held.fence();
    held.release().await.expect("still held");
    let next = soon("the waiter's turn", waiting).await.expect("granted");
    assert!(next.fence() > fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_settings_are_rejected_with_the_reason() {
    let cluster = Cluster::start(2).await;
    cluster.all_in_view().await;
    for (name, value, why) in [
        ("algorithm", "maekawa-basic", "deadlock"),
        ("algorithm", "paxos", "no algorithm"),
        ("tree", "line", "no setting"),
        ("lease", "1ms", "too short"),
        ("lease", "100s", "longest_lease"),
        ("silence", "1ms", "two renewals"),
        ("lease", "soon", "1500ms"),
    ] {
        let refused = soon(value, cluster.member(1).change_settings(&changes(&[(name, value)]))).await;
        let error = refused.expect_err(value).to_string();
        assert!(error.contains(why), "{name}={value}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_restarts_with_another_configuration_takes_the_settings_of_the_cluster() {
    let mut cluster = Cluster::start(3).await;
    cluster.all_in_view().await;
    for place in 0..3 {
        cluster.down(place).await;
        cluster.configs[place].algorithm = "majority".into();
        cluster.configs[place].times = Times::default().times(6);
        cluster.up(place).await;
        soon("ready", cluster.member(place).ready()).await.expect("it serves");
        cluster.all_in_view().await;
        let settings = cluster.member(place).settings();
        assert_eq!(settings.algorithm_text(), "naimi-trehel");
        assert_eq!(settings.lease_ns, 4_800_000_000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_of_a_cancelled_task_is_withdrawn() {
    let cluster = Cluster::start(2).await;
    cluster.all_in_view().await;
    let held = hold(cluster.member(0), "a").await;
    let waiting = tokio::spawn({
        let member = cluster.member(1).clone();
        async move { member.mutex("a").acquire().await }
    });
    let waits = || async {
        let replies = cluster.member(0).query_all().await.expect("an answer");
        replies.iter().flat_map(|(_, table)| table).map(|lock| lock.waiters.len()).sum::<usize>()
    };
    soon("a client waits", async { while waits().await == 0 {} }).await;
    waiting.abort();
    soon("no client waits", async { while waits().await > 0 {} }).await;
    held.release().await.expect("still held");
    hold(cluster.member(0), "a").await.release().await.expect("still held");
    assert!(cluster.member(1).mutex("a").acquire_within(Duration::ZERO).await.expect("an answer").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_share_and_permits_are_counted() {
    let cluster = Cluster::start(2).await;
    cluster.all_in_view().await;
    let (a, b) = (cluster.member(0), cluster.member(1));
    let first = soon("a reader", a.shared("r").acquire()).await.expect("granted");
    let second = soon("another", b.shared("r").acquire()).await.expect("granted");
    assert!(a.mutex("r").try_acquire().await.expect("an answer").is_none());
    drop((first, second));
    drop(soon("a writer", a.mutex("r").acquire()).await.expect("granted"));

    let mut permits = Vec::new();
    for member in [a, b, b] {
        permits.push(soon("a permit", member.semaphore("s", 3).acquire()).await.expect("granted"));
    }
    assert!(a.semaphore("s", 3).try_acquire().await.expect("an answer").is_none());
    assert!(a.shared("s").try_acquire().await.expect("an answer").is_none(), "one name is one lock");
    permits.pop();
    soon("a permit", a.semaphore("s", 3).acquire()).await.expect("granted").release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cycle_of_waits_is_reported_and_broken_by_force() {
    let cluster = Cluster::start(2).await;
    cluster.all_in_view().await;
    let (a, b) = (cluster.member(0).clone(), cluster.member(1).clone());
    let (left, right) = (hold(&a, "left").await, hold(&b, "right").await);
    let mut wait_a = tokio::spawn(async move { a.mutex("right").owner("a").acquire().await });
    let wait_b = tokio::spawn(async move { b.mutex("left").owner("b").acquire().await });
    let watching = cluster.member(0);
    let cycle = soon("a cycle", async {
        loop {
            let replies = watching.query_all().await.expect("an answer");
            let waiter = replies.iter().flat_map(|(_, table)| table).find_map(|lock| lock.waiters.first());
            if let Some(waiter) = waiter {
                let why = watching.why(waiter.acquisition.session).await.expect("an answer");
                if why.cycle.is_some() {
                    return why;
                }
            }
        }
    })
    .await;
    assert_eq!(cycle.chain.len(), 2);
    let holds_right =
        cycle.chain.iter().find(|because| &*because.lock.name == "right").expect("in the cycle");
    // The acquisition holds `right`. A forced release of another lock must not release it.
    let other = soon("force", watching.release_by_force("left", holds_right.holder, "root")).await;
    assert!(matches!(other, Err(lockkeeper_cluster::Error::BadOption(_))), "{other:?}");
    soon("force", watching.release_by_force("right", holds_right.holder, "root")).await.expect("it is held");
    assert!(soon("loss", right.lost()).await.contains("forced release by root"));
    drop(right);
    let guard = soon("free", &mut wait_a).await.expect("no panic").expect("granted");
    drop((guard, left));
    drop(soon("free", wait_b).await.expect("no panic").expect("granted"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_stops_loses_its_locks_and_the_others_keep_theirs() {
    let mut cluster = Cluster::start(3).await;
    cluster.all_in_view().await;
    let (kept, dies) = (hold(cluster.member(0), "kept").await, hold(cluster.member(1), "dies").await);
    cluster.down(1).await;
    assert!(!dies.is_valid());
    let next = hold(cluster.member(2), "dies").await;
    assert!(next.fence() > dies.fence());
    assert!(kept.is_valid(), "a survivor keeps its hold");
    cluster.up(1).await;
    cluster.all_in_view().await;
    assert!(kept.is_valid(), "and through a join");
    kept.release().await.expect("never lost");
    hold(cluster.member(1), "kept").await.release().await.expect("held");
}

#[tokio::test]
async fn reentrant_holds_belong_to_their_owner() {
    let directory = tempfile::tempdir().expect("a directory");
    let member = Member::start(Config::alone(directory.path())).await.expect("it starts");
    let first = soon("first", member.mutex("a").reentrant().acquire()).await.expect("granted");
    let again = soon("again", member.mutex("a").reentrant().acquire()).await.expect("granted");
    assert_eq!(first.fence(), again.fence());
    let other = member.new_owner();
    assert!(other.mutex("a").reentrant().try_acquire().await.expect("an answer").is_none());
    drop(first);
    assert!(other.mutex("a").try_acquire().await.expect("an answer").is_none());
    drop(again);
    assert!(other.mutex("a").try_acquire().await.expect("an answer").is_some());
}

#[tokio::test]
async fn bad_names_and_options_are_rejected_with_the_reason() {
    let directory = tempfile::tempdir().expect("a directory");
    let member = Member::start(Config::alone(directory.path())).await.expect("it starts");
    let refused = |error: Error| error.to_string();
    assert!(refused(member.mutex("").try_acquire().await.unwrap_err()).contains("it is empty"));
    let long = refused(member.mutex("x".repeat(513)).try_acquire().await.unwrap_err());
    assert!(long.contains("513 bytes; at most 512"), "{long}");
    let owner = member.mutex("a").owner("\u{1b}[2J").try_acquire().await.unwrap_err();
    assert!(refused(owner).contains("bad owner or purpose"));
    assert!(refused(member.mutex("a\nb").try_acquire().await.unwrap_err()).contains("control"));
    assert!(refused(member.semaphore("s", 0).try_acquire().await.unwrap_err()).contains("permits"));
    let mut config = Config::alone(directory.path().join("other"));
    config.algorithm = "nonsense".into();
    assert!(refused(Member::start(config).await.err().expect("refused")).contains("lockkeeper algorithms"));
    let twice = Member::start(Config::alone(directory.path())).await.err().expect("one store, one member");
    assert!(!refused(twice).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_leave_in_order_and_come_back() {
    let mut cluster = Cluster::start(3).await;
    cluster.all_in_view().await;
    let kept = hold(cluster.member(0), "kept").await;
    for place in [1, 2] {
        let leaves = cluster.members[place].take().expect("it runs");
        let held = hold(&leaves, "handed on").await;
        let leaving = tokio::spawn(leaves.clone().leave(LONG));
        // New requests are rejected, but a holder may finish.
        let refused = soon("refused", async {
            loop {
                match leaves.new_owner().mutex("another").acquire().await {
                    Ok(_) => tokio::task::yield_now().await,
                    Err(error) => return error,
                }
            }
        });
        assert!(matches!(refused.await, Error::Stopped(_)));
        assert!(held.is_valid());
        let fence = held.fence();
        held.release().await.expect("still held");
        soon("out", leaving).await.expect("no panic");
        drop(leaves);
        cluster.all_in_view().await;
        let next = hold(cluster.member(0), "handed on").await;
        assert!(next.fence() > fence);
        drop(next);
        cluster.up(place).await;
        cluster.all_in_view().await;
    }
    kept.release().await.expect("never lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_members_either_may_leave() {
    let mut cluster = Cluster::start(2).await;
    cluster.all_in_view().await;
    for place in [0, 1] {
        let (leaves, stays) = (cluster.members[place].take().expect("it runs"), cluster.member(1 - place));
        let kept = hold(stays, "kept").await;
        soon("out", leaves.clone().leave(LONG)).await;
        drop(leaves);
        drop(soon("served", hold(stays, "another")).await);
        kept.release().await.expect("never lost");
        cluster.up(place).await;
        cluster.all_in_view().await;
    }
}

#[tokio::test]
async fn grants_waits_and_holds_are_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let member = Member::start(Config::alone(directory.path())).await.expect("it starts");
    let mut registry = prometheus_client::registry::Registry::default();
    member.register_metrics(&mut registry);
    for _ in 0..3 {
        hold(&member, "a").await.release().await.expect("held");
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    for line in [
        "lockkeeper_entries_total 3",
        "lockkeeper_wait_seconds_count 3",
        "lockkeeper_hold_seconds_count 3",
        "lockkeeper_view_changes_total 1",
        "lockkeeper_members 1",
        "lockkeeper_net_refused_total{reason=\"identity\"} 0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("lockkeeper_messages_total{"), "there is no other member to send to");
}

/// Whether the metrics of a member have all of these lines.
fn metrics_have(member: &Member, lines: &[&str]) -> bool {
    let mut registry = prometheus_client::registry::Registry::default();
    member.register_metrics(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    lines.iter().all(|wanted| text.lines().any(|line| line == *wanted))
}

/// Waits for a member whose metrics have all of these lines, and returns its place.
async fn member_with_metrics(cluster: &Cluster, lines: &[&str]) -> usize {
    let found = async {
        loop {
            let has =
                |member: &Option<Member>| member.as_ref().is_some_and(|member| metrics_have(member, lines));
            if let Some(place) = cluster.members.iter().position(has) {
                return place;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(&format!("{lines:?} in the metrics of a member"), found).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_show_that_a_member_without_a_majority_is_not_ready() {
    let mut cluster = Cluster::start(3).await;
    let whole = ["lockkeeper_ready 1", "lockkeeper_leader 1", "lockkeeper_unreachable_members 0"];
    let last = member_with_metrics(&cluster, &whole).await;
    for place in (0..3).filter(|place| *place != last) {
        cluster.down(place).await;
    }
    let alone = ["lockkeeper_ready 0", "lockkeeper_unreachable_members 2"];
    assert_eq!(member_with_metrics(&cluster, &alone).await, last);
}

#[tokio::test]
async fn member_runs_until_its_last_guard_is_dropped() {
    let directory = tempfile::tempdir().expect("a directory");
    let member = Member::start(Config::alone(directory.path())).await.expect("it starts");
    let guard = hold(&member, "a").await;
    drop(member);
    assert!(guard.is_valid());
    drop(guard);
    // The last handle is gone, so the store can be opened again.
    let again = soon("the store is free", async {
        loop {
            match Member::start(Config::alone(directory.path())).await {
                Ok(member) => return member,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    });
    hold(&again.await, "a").await.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_member_joins_an_existing_cluster() {
    let cluster = Cluster::start(2).await;
    cluster.all_in_view().await;
    let directory = tempfile::tempdir().expect("a directory");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = Config::new(MemberId(9), any, directory.path());
    config.join = vec![cluster.member(0).address().expect("it listens").to_string()];
    config.join_token.clone_from(&cluster.configs[0].join_token);
    config.times = Times::default().times(4);
    let third = Member::start(config).await.expect("it starts");
    soon("in the view", third.ready()).await.expect("it serves");
    let fence = hold(cluster.member(1), "a").await.fence();
    assert!(hold(&third, "a").await.fence() > fence);
    assert_eq!(third.status().view.expect("it serves").members.len(), 3);
    let votes = async {
        while third.voters().voters.len() != 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("three vote", votes).await;
}

/// A process that can connect to the members, but has no token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_the_join_token_does_not_join_a_cluster_on_loopback() {
    let cluster = Cluster::start(1).await;
    let directory = tempfile::tempdir().expect("a directory");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = Config::new(MemberId(9), any, directory.path());
    config.join = vec![cluster.member(0).address().expect("it listens").to_string()];
    config.times = Times::default().times(4);
    let refused = Member::start(config.clone()).await.err().expect("refused").to_string();
    assert!(refused.contains("--join-token"), "{refused}");

    config.join_token = Some(JoinToken::random().expect("random"));
    let intruder = Member::start(config).await.expect("it starts");
    soon("refused by the member", async {
        while refusals(cluster.member(0), "join_token") < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(cluster.member(0).voters().members, [MemberId(1)].into());
    assert!(!intruder.status().serves());
}

/// Number of rejections by the network of a member for this reason.
fn refusals(member: &Member, reason: &str) -> u64 {
    let (mut registry, mut text) = (prometheus_client::registry::Registry::default(), String::new());
    member.register_metrics(&mut registry);
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    let label = format!("reason=\"{reason}\"");
    let mut lines = text.lines().filter(|line| line.contains(&label));
    lines.next().and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_alone_does_not_listen_and_listens_when_it_is_given_a_join_token() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut config = Config::alone(directory.path().join("1"));
    config.times = Times::default().times(4);
    let member = Member::start(config.clone()).await.expect("it starts");
    soon("alone", member.ready()).await.expect("it serves");
    assert_eq!(member.address(), None);
    member.leave(Duration::ZERO).await;

    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free().expect("a free port")));
    let join_token = Some(JoinToken::random().expect("random"));
    let mut listening = config.clone();
    (listening.listen, listening.join_token) = (listen, join_token.clone());
    let member = Member::start(listening).await.expect("it starts");
    assert_eq!(member.address(), Some(listen));
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut joins = Config::new(MemberId(2), any, directory.path().join("2"));
    (joins.join, joins.join_token) = (vec![listen.to_string()], join_token);
    joins.times = config.times;
    let second = Member::start(joins).await.expect("it starts");
    soon("joined", second.ready()).await.expect("it serves");
    second.stop().await;
    member.stop().await;

    let refused = soon("refused", Member::start(config)).await.err().expect("it has a peer").to_string();
    assert!(refused.contains("M2") && refused.contains("--listen"), "{refused}");
}
