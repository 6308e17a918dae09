//! A small table of locks: idle locks make room for new names, and locks in use do not.

use crate::support::{FaultFreeCluster, mutex};
use lockkeeper_member::{BugSwitch, Config, Ended, SessionId};

const MEMBERS: u32 = 3;

/// Each member serves eight locks at a time.
fn small(config: &mut Config<Option<BugSwitch>>) {
    config.most_locks = 2 * 8 * MEMBERS as usize;
}

/// Acquires a lock and releases it. Returns the number of views that started meanwhile.
fn use_once(
    cluster: &mut FaultFreeCluster,
    member: usize,
    session: SessionId,
    number: u64,
    name: &str,
) -> u64 {
    let views = cluster.views;
    cluster.acquire(member, session, number, &mutex(name));
    cluster.release(member, session, number);
    // Every member must renew in the present view before the leader proposes the next one.
    cluster.wait(50);
    cluster.views - views
}

fn names_served(bug: Option<BugSwitch>) -> (usize, u64) {
    let mut cluster = FaultFreeCluster::new(MEMBERS, |config| {
        small(config);
        config.bugs = bug;
    });
    let sessions = [cluster.session(0, 1), cluster.session(1, 2), cluster.session(2, 3)];
    let before = cluster.views;
    for number in 0..500 {
        for (member, &session) in sessions.iter().enumerate() {
            use_once(&mut cluster, member, session, number, &format!("job-{member}-{number}"));
        }
    }
    let served = |session| (0..500).filter(|&number| cluster.granted(session, number).is_some()).count();
    (sessions.into_iter().map(served).sum(), cluster.views - before)
}

#[test]
fn idle_locks_make_room_for_new_names() {
    let (served, views) = names_served(None);
    assert_eq!(served, 1_500);
    // Six of eight names are new in each view.
    assert!((50..=260).contains(&views), "{views} view changes for 1,500 names");
    let (served, views) = names_served(Some(BugSwitch::TableNeverReclaimed));
    assert!(served < 100 && views == 0, "{served} served, {views} view changes");
}

#[test]
fn a_table_full_of_held_locks_refuses_new_names_until_some_are_released() {
    let mut cluster = FaultFreeCluster::new(MEMBERS, small);
    let a = cluster.session(0, 1);
    for number in 0..8 {
        cluster.acquire(0, a, number, &mutex(&format!("held-{number}")));
        assert!(cluster.granted(a, number).is_some());
    }
    let before = cluster.views;
    for number in 8..20 {
        cluster.acquire(0, a, number, &mutex(&format!("new-{number}")));
        assert_eq!(cluster.ended(a, number), Some(Ended::Full { limit: 8 }));
    }
    cluster.wait(5_000);
    assert_eq!(cluster.views, before, "a view change would make no room");
    // A lock that is in use already can be requested.
    let b = cluster.session(0, 2);
    cluster.acquire(0, b, 1, &mutex("held-3"));
    assert_eq!(cluster.ended(b, 1), None);
    cluster.release(0, a, 0);
    cluster.wait(1_000);
    cluster.acquire(0, a, 20, &mutex("new-20"));
    assert!(cluster.granted(a, 20).is_some(), "one was released");
    assert!(cluster.views - before <= 2, "{} views", cluster.views - before);
}

#[test]
fn holds_survive_the_view_change_that_makes_room() {
    let mut cluster = FaultFreeCluster::new(MEMBERS, small);
    let (a, b) = (cluster.session(0, 1), cluster.session(1, 2));
    cluster.acquire(0, a, 0, &mutex("held"));
    let fence = cluster.granted(a, 0);
    let views = (1..100).map(|n| use_once(&mut cluster, 0, a, n, &format!("job-{n}"))).sum::<u64>();
    assert!(views > 5, "{views}");
    cluster.acquire(1, b, 0, &mutex("held"));
    assert_eq!(cluster.granted(b, 0), None);
    cluster.release(0, a, 0);
    assert!(cluster.granted(b, 0) > fence);
}
