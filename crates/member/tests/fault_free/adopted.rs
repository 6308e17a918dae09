//! Holds that another member has adopted: their modes, their longest hold, and their forced release.

use super::support::{FaultFreeCluster, MS, mutex, permit, shared};
use lockkeeper_member::{Ended, LockRequest, SessionId, ToClient};

const TTL: u64 = 5_000 * MS;

/// Lets the second of three members leave as planned. Returns the place of the member that has adopted the session.
fn leave(cluster: &mut FaultFreeCluster, session: SessionId) -> usize {
    cluster.leave(1, 60_000);
    for _ in 0..1_000 {
        cluster.wait(10);
        let adopts = |place: &usize| {
            let member = &cluster.members[*place];
            member.has_session(session) && member.running().is_some_and(|view| view.has(member.node()))
        };
        if let Some(home) = [0, 2].into_iter().find(adopts) {
            assert_eq!(cluster.left, [1]);
            return home;
        }
    }
    panic!("no member adopts {session} within 10 s");
}

/// A client of the second member holds a lock by this request, and another member adopts the hold.
fn adopted(request: &LockRequest) -> (FaultFreeCluster, SessionId, usize) {
    let mut cluster = FaultFreeCluster::new(3, |_| ());
    let holder = cluster.session(1, 7);
    cluster.acquire(1, holder, 1, &LockRequest { ttl_ns: TTL, ..request.clone() });
    assert!(cluster.granted(holder, 1).is_some());
    let home = leave(&mut cluster, holder);
    (cluster, holder, home)
}

#[test]
fn an_adopted_hold_is_revoked_when_its_longest_hold_is_over() {
    let longest = LockRequest { longest_hold_ns: Some(4_000 * MS), ..mutex("long") };
    let (mut cluster, holder, home) = adopted(&longest);
    assert_eq!(cluster.ended(holder, 1), None);
    cluster.wait(4_500);
    assert_eq!(cluster.ended(holder, 1), Some(Ended::Revoked));
    // The client replies with a release.
    let waiter = cluster.session(home, 8);
    cluster.acquire(home, waiter, 1, &mutex("long"));
    assert_eq!(cluster.granted(waiter, 1), None);
    cluster.release(home, holder, 1);
    cluster.wait(200);
    assert!(cluster.granted(waiter, 1).is_some());
}

#[test]
fn the_forced_release_of_an_adopted_hold_waits_for_the_promise_of_the_previous_home() {
    let (mut cluster, holder, home) = adopted(&mutex("long"));
    cluster.silent.push(holder);
    let other = if home == 0 { 2 } else { 0 };
    let waiter = cluster.session(other, 8);
    cluster.acquire(other, waiter, 1, &mutex("long"));
    cluster.revoke(home, "long", holder, 1);
    let by_root = |(to, said): &(SessionId, ToClient)| {
        *to == holder && *said == ToClient::RevokedBy { number: 1, by: String::from("root") }
    };
    assert!(cluster.sent.iter().any(by_root));
    cluster.wait(4_000);
    assert_eq!(cluster.granted(waiter, 1), None, "the client may rely on the promise");
    cluster.wait(2_500);
    assert!(cluster.granted(waiter, 1).is_some());
}

#[test]
fn adopted_shared_holds_and_permits_admit_those_that_fit_beside_them() {
    for (request, fits, does_not_fit) in [
        (shared("register"), shared("register"), mutex("register")),
        (permit("seats", 2), permit("seats", 2), mutex("seats")),
    ] {
        let (mut cluster, holder, home) = adopted(&request);
        let other = if home == 0 { 2 } else { 0 };
        let [beside, waiter] = [8, 9].map(|client| cluster.session(other, client));
        cluster.acquire(other, beside, 1, &fits);
        cluster.wait(200);
        assert!(cluster.granted(beside, 1).is_some(), "{request:?}");
        cluster.acquire(other, waiter, 1, &does_not_fit);
        cluster.wait(200);
        assert_eq!(cluster.granted(waiter, 1), None, "{request:?}");
        cluster.release(other, beside, 1);
        cluster.wait(200);
        assert_eq!(cluster.granted(waiter, 1), None, "the adopted hold is left: {request:?}");
        cluster.release(home, holder, 1);
        cluster.wait(200);
        assert!(cluster.granted(waiter, 1).is_some(), "{request:?}");
    }
}

/// A session that acquires a lock twice has two records of one hold, and the adopting member frees the lock with the last.
#[test]
fn an_adopted_hold_with_two_acquisitions_ends_with_both() {
    let mut cluster = FaultFreeCluster::new(3, |_| ());
    let holder = cluster.session(1, 7);
    let request = LockRequest { ttl_ns: TTL, reentrant: true, ..mutex("long") };
    cluster.acquire(1, holder, 1, &request);
    cluster.acquire(1, holder, 2, &request);
    let home = leave(&mut cluster, holder);
    assert_eq!(cluster.table.records().len(), 2);
    let waiter = cluster.session(home, 8);
    cluster.acquire(home, waiter, 1, &mutex("long"));
    // A third acquisition at the adopting member belongs to the same hold.
    cluster.acquire(home, holder, 3, &request);
    assert_eq!(cluster.granted(holder, 3), cluster.granted(holder, 1));
    for number in 1..=3 {
        assert_eq!(cluster.granted(waiter, 1), None, "{number}");
        cluster.release(home, holder, number);
        cluster.wait(200);
    }
    assert!(cluster.granted(waiter, 1).is_some());
}
