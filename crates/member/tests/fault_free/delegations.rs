//! Delegations: a client enters a lock again without messages.

use crate::support::{FaultFreeCluster, mutex, shared};
use lockkeeper_member::{Config, Ended, Event, Fence, LockRequest, Query, SessionId, Tag, ToMember};
use lockkeeper_session::{ClientSession, MAX_DELEGATION_NS, Progress};

/// A client that requests delegations, and the number of messages that it has handled.
struct DelegatingClient {
    session: ClientSession,
    received: usize,
}

impl DelegatingClient {
    fn new(cluster: &mut FaultFreeCluster, member: usize, client: u64) -> Self {
        let mut keeper = Self { session: ClientSession::new(SessionId { client, number: 0 }), received: 0 };
        keeper.send(cluster, member);
        keeper
    }

    fn send(&mut self, cluster: &mut FaultFreeCluster, member: usize) {
        for message in self.session.all_messages(cluster.now) {
            cluster.send(member, self.session.id(), message);
        }
        self.receive(cluster, member);
    }

    fn receive(&mut self, cluster: &mut FaultFreeCluster, member: usize) {
        while let Some((to, message)) = cluster.sent.get(self.received).cloned() {
            self.received += 1;
            if to == self.session.id() {
                for reply in self.session.receive(cluster.now, message) {
                    cluster.send(member, to, reply);
                }
            }
        }
    }

    /// Requests a lock and expects the grant.
    fn acquire(
        &mut self,
        cluster: &mut FaultFreeCluster,
        member: usize,
        request: &LockRequest,
    ) -> (u64, Fence) {
        let number = self.session.acquire(request.clone());
        self.send(cluster, member);
        (number, self.fence(number))
    }

    /// A client at the first member that is granted a lock with a delegation, while another client waits at the third
    /// member. Returns the client, its acquisition, and the session that waits.
    fn inside_while_another_waits(cluster: &mut FaultFreeCluster) -> (Self, u64, SessionId) {
        let (mut keeper, before, after) =
            (Self::new(cluster, 0, 1), cluster.session(1, 2), cluster.session(2, 3));
        cluster.acquire(1, before, 1, &mutex("m"));
        let number = keeper.session.acquire(delegated_request("m", 100));
        keeper.send(cluster, 0);
        cluster.acquire(2, after, 1, &mutex("m"));
        cluster.release(1, before, 1);
        keeper.receive(cluster, 0);
        (keeper, number, after)
    }

    fn fence(&self, number: u64) -> Fence {
        let Some(Progress::Held(Some(fence))) = self.session.progress(number) else { panic!("not held") };
        *fence
    }
}

fn delegated_request(name: &str, more: u32) -> LockRequest {
    LockRequest { delegated_entries: more, ..mutex(name) }
}

#[test]
fn delegation_is_entered_again_without_messages_and_with_rising_fences() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let mut a = DelegatingClient::new(&mut cluster, 0, 1);
    let (number, first) = a.acquire(&mut cluster, 0, &delegated_request("m", 2));
    let sent = cluster.sent.len();
    let mut last = first;
    for _ in 0..2 {
        assert!(a.session.keep_as_delegation(cluster.now, number));
        assert!(!a.session.may_use(cluster.now, number), "the delegation is idle");
        assert_eq!(a.session.reenter(cluster.now, &mutex("other")), None);
        assert_eq!(a.session.reenter(cluster.now, &shared("m")), None);
        assert_eq!(a.session.reenter(cluster.now, &mutex("m")), Some(number));
        assert!(a.session.may_use(cluster.now, number));
        assert!(a.fence(number) > last);
        last = a.fence(number);
    }
    assert_eq!(cluster.sent.len(), sent, "no message was sent");
    assert!(!a.session.keep_as_delegation(cluster.now, number), "the delegation allowed two further entries");
    a.session.release(number);
    a.send(&mut cluster, 0);
    // The next holder, at another member, has a higher fence than all of these entries.
    let b = cluster.session(1, 2);
    cluster.acquire(1, b, 1, &mutex("m"));
    assert!(cluster.granted(b, 1).unwrap().unwrap() > last);
}

#[test]
fn idle_delegation_is_recalled_when_another_client_waits() {
    for member in [0, 1] {
        let mut cluster = FaultFreeCluster::new(3, |_| {});
        let mut a = DelegatingClient::new(&mut cluster, 0, 1);
        let (number, _) = a.acquire(&mut cluster, 0, &delegated_request("m", 100));
        assert!(a.session.keep_as_delegation(cluster.now, number));
        let b = cluster.session(member, 2);
        cluster.acquire(member, b, 1, &mutex("m"));
        assert_eq!(cluster.granted(b, 1), None, "the delegation counts as a hold at the member");
        a.receive(&mut cluster, 0);
        assert!(cluster.granted(b, 1).is_some(), "the idle delegation was released");
    }
}

#[test]
fn delegation_granted_while_others_wait_allows_only_immediate_entries() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let (mut a, number, c) = DelegatingClient::inside_while_another_waits(&mut cluster);
    let first = a.fence(number);
    let most = Config::new([]).max_contended_entries;
    for _ in 0..most {
        assert!(a.session.keep_as_delegation(cluster.now, number));
        assert_eq!(a.session.reenter(cluster.now, &mutex("m")), Some(number));
        assert_eq!(a.session.end_delegations(cluster.now), [], "the lock is in use");
    }
    assert_eq!(a.fence(number).clock(), first.clock() + u64::from(most));
    assert!(!a.session.keep_as_delegation(cluster.now, number), "the limit of entries while others wait");
    let last = a.fence(number);
    a.session.release(number);
    a.send(&mut cluster, 0);
    assert!(cluster.granted(c, 1).expect("granted").expect("a fence") > last);
}

#[test]
fn idle_delegation_ends_at_once_if_another_client_waits() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let (mut a, number, _) = DelegatingClient::inside_while_another_waits(&mut cluster);
    assert!(a.session.keep_as_delegation(cluster.now, number));
    assert_eq!(a.session.end_delegations(cluster.now), [ToMember::Release { number }]);
    // A single member serves its clients strictly in order.
    let mut cluster = FaultFreeCluster::new(1, |_| {});
    let (mut a, b) = (DelegatingClient::new(&mut cluster, 0, 1), cluster.session(0, 2));
    cluster.acquire(0, b, 1, &mutex("m"));
    let number = a.session.acquire(delegated_request("m", 100));
    a.send(&mut cluster, 0);
    cluster.acquire(0, b, 2, &mutex("m"));
    cluster.release(0, b, 1);
    a.receive(&mut cluster, 0);
    assert!(!a.session.keep_as_delegation(cluster.now, number));
}

#[test]
fn delegation_in_use_is_released_by_its_present_user_after_a_recall() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let mut a = DelegatingClient::new(&mut cluster, 0, 1);
    let (number, _) = a.acquire(&mut cluster, 0, &delegated_request("m", 100));
    assert!(a.session.keep_as_delegation(cluster.now, number));
    let tag = Tag { owner: "the second".into(), purpose: String::new() };
    assert!(a.session.reenter(cluster.now, &LockRequest { tag: tag.clone(), ..mutex("m") }).is_some());
    let b = cluster.session(1, 2);
    cluster.acquire(1, b, 1, &mutex("m"));
    a.receive(&mut cluster, 0);
    assert_eq!(cluster.granted(b, 1), None);
    assert!(!a.session.keep_as_delegation(cluster.now, number), "the delegation was recalled");
    // A query shows the present user and its fence.
    cluster.happens(2, Event::Query(1, Query::ALL));
    let tables = cluster.query_replies.last().expect("a reply");
    let holders: Vec<_> = tables.iter().flat_map(|(_, table)| table).flat_map(|lock| &lock.holders).collect();
    assert_eq!((holders[0].tag.clone(), holders[0].fence), (tag, Some(a.fence(number))));
    a.session.release(number);
    a.send(&mut cluster, 0);
    assert!(cluster.granted(b, 1).is_some());
}

#[test]
fn non_blocking_request_recalls_an_idle_delegation_but_not_one_in_use() {
    let mut cluster = FaultFreeCluster::new(1, |_| {});
    let (mut a, b) = (DelegatingClient::new(&mut cluster, 0, 1), cluster.session(0, 2));
    let try_it = LockRequest { timeout_ns: Some(0), ..mutex("m") };
    let (number, _) = a.acquire(&mut cluster, 0, &delegated_request("m", 100));
    cluster.acquire(0, b, 1, &try_it);
    assert_eq!(cluster.ended(b, 1), None, "the delegation is being recalled");
    a.receive(&mut cluster, 0);
    assert_eq!(cluster.ended(b, 1), Some(Ended::Busy));
    a.session.release(number);
    let (number, _) = a.acquire(&mut cluster, 0, &delegated_request("m", 100));
    assert!(a.session.keep_as_delegation(cluster.now, number));
    cluster.acquire(0, b, 2, &try_it);
    a.receive(&mut cluster, 0);
    assert!(cluster.granted(b, 2).is_some());
}

#[test]
fn delegation_ends_with_its_time_limit_and_with_the_lease() {
    let mut cluster = FaultFreeCluster::new(1, |_| {});
    let mut a = DelegatingClient::new(&mut cluster, 0, 1);
    let (number, _) = a.acquire(&mut cluster, 0, &delegated_request("m", 100));
    assert!(a.session.keep_as_delegation(cluster.now, number));
    assert_eq!(a.session.next_delegation_end_ns(), Some(cluster.now + MAX_DELEGATION_NS));
    assert_eq!(a.session.end_delegations(cluster.now + MAX_DELEGATION_NS - 1), []);
    assert_eq!(a.session.reenter(cluster.now + MAX_DELEGATION_NS, &mutex("m")), None);
    assert_eq!(a.session.end_delegations(cluster.now + MAX_DELEGATION_NS), [ToMember::Release { number }]);
    a.session.max_delegation_ns = u64::MAX;
    let (number, _) = a.acquire(&mut cluster, 0, &delegated_request("m", 100));
    let until = a.session.lease_until_ns();
    assert!(!a.session.keep_as_delegation(until, number));
    assert!(a.session.keep_as_delegation(until - 1, number));
    assert_eq!(a.session.reenter(until, &mutex("m")), None);
}
