//! A cluster without failures: every frame arrives at once, every clock is exact, and the first member leads.

mod adopted;
mod capacity;
mod delegations;
mod durable;
mod slices;
mod support;

use lockkeeper_core::algorithms::naimi_trehel::NaimiTrehel;
use lockkeeper_member::{
    Acquisition, Config, Ended, Event, LockMode, LockName, LockRequest, Member, MemberId, Node, Note, Out,
    PortEvent, Proof, Query, Tag, ToMember, View, why,
};
use support::{FaultFreeCluster, MS, mutex, permit, shared};

#[test]
fn a_lock_goes_from_member_to_member_with_rising_fences() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let (a, b) = (cluster.session(0, 1), cluster.session(1, 2));
    cluster.acquire(0, a, 1, &mutex("m"));
    cluster.acquire(1, b, 1, &mutex("m"));
    let first = cluster.granted(a, 1).expect("granted at once").expect("a fence");
    assert_eq!(cluster.granted(b, 1), None);
    cluster.release(0, a, 1);
    let second = cluster.granted(b, 1).expect("granted after the release").expect("a fence");
    assert!(second > first);
    // A duplicate of a release does not free the hold of another client.
    cluster.acquire(0, a, 2, &mutex("m"));
    cluster.release(0, a, 1);
    assert_eq!((cluster.granted(a, 2), cluster.ended(a, 1)), (None, Some(Ended::Released)));
}

#[test]
fn acquiring_a_lock_whose_token_is_local_sends_no_message() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let a = cluster.session(0, 1);
    cluster.acquire(0, a, 1, &mutex("m"));
    cluster.release(0, a, 1);
    let before = cluster.frames;
    for number in 2..100 {
        cluster.acquire(0, a, number, &mutex("m"));
        cluster.release(0, a, number);
        assert!(cluster.granted(a, number).is_some());
    }
    assert_eq!(cluster.frames, before);
}

#[test]
fn non_blocking_timed_out_and_cancelled_requests_end() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let (a, b, c) = (cluster.session(0, 1), cluster.session(0, 2), cluster.session(2, 3));
    cluster.acquire(0, a, 1, &mutex("m"));
    cluster.acquire(0, b, 1, &LockRequest { timeout_ns: Some(0), ..mutex("m") });
    assert_eq!(cluster.ended(b, 1), Some(Ended::Busy));
    cluster.acquire(2, c, 1, &LockRequest { timeout_ns: Some(50 * MS), ..mutex("m") });
    cluster.acquire(2, c, 2, &mutex("m"));
    cluster.acquire(0, b, 2, &mutex("m"));
    cluster.wait(100);
    assert_eq!(cluster.ended(c, 1), Some(Ended::TimedOut));
    cluster.release(2, c, 2);
    assert_eq!(cluster.ended(c, 2), Some(Ended::Cancelled));
    cluster.release(0, a, 1);
    assert!(cluster.granted(b, 2).is_some());
    // A request that arrives after its own cancellation has ended.
    cluster.release(2, c, 9);
    cluster.acquire(2, c, 9, &mutex("other"));
    assert_eq!((cluster.granted(c, 9), cluster.ended(c, 9)), (None, Some(Ended::Cancelled)));
}

#[test]
fn reentrant_request_of_the_holder_is_granted() {
    let mut cluster = FaultFreeCluster::new(2, |_| {});
    let (a, b) = (cluster.session(0, 1), cluster.session(1, 2));
    let again = LockRequest { reentrant: true, ..mutex("m") };
    cluster.acquire(0, a, 1, &again);
    cluster.acquire(0, a, 2, &again);
    cluster.acquire(1, b, 1, &mutex("m"));
    assert_eq!(cluster.granted(a, 1), cluster.granted(a, 2));
    cluster.release(0, a, 1);
    assert_eq!(cluster.granted(b, 1), None);
    cluster.release(0, a, 2);
    assert!(cluster.granted(b, 1).is_some());
}

#[test]
fn one_member_can_hold_several_permits_and_shared_holds_overlap() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let (a, b) = (cluster.session(0, 1), cluster.session(1, 2));
    let seat = permit("seats", 3);
    for (member, session, number) in [(0, a, 1), (0, a, 2), (1, b, 1), (1, b, 2)] {
        cluster.acquire(member, session, number, &seat);
    }
    let inside = [(a, 1), (a, 2), (b, 1), (b, 2)].map(|(session, number)| cluster.granted(session, number));
    assert_eq!(inside, [Some(None), Some(None), Some(None), None]);
    cluster.release(0, a, 1);
    assert_eq!(cluster.granted(b, 2), Some(None));

    cluster.acquire(0, a, 11, &shared("book"));
    cluster.acquire(1, b, 11, &shared("book"));
    cluster.acquire(0, a, 12, &mutex("book"));
    assert!(
        cluster.granted(a, 11).is_some()
            && cluster.granted(b, 11).is_some()
            && cluster.granted(a, 12).is_none()
    );
    cluster.release(0, a, 11);
    cluster.release(1, b, 11);
    assert!(cluster.granted(a, 12) > cluster.granted(b, 11));
    for (number, request) in
        [(14, permit("p", 0)), (15, permit("p", u32::MAX)), (16, mutex(&"x".repeat(5_000)))]
    {
        cluster.acquire(0, a, number, &request);
        assert_eq!(cluster.ended(a, number), Some(Ended::Refused));
    }
    cluster.acquire(0, a, 17, &permit("p", LockMode::MOST_PERMITS));
    assert_eq!(cluster.granted(a, 17), Some(None), "permits have no fence");
}

#[test]
fn one_name_is_one_lock_in_all_modes() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let (a, b, c) = (cluster.session(0, 1), cluster.session(1, 2), cluster.session(2, 3));
    let waiting_requests = [mutex("m"), shared("m"), permit("m", 2), permit("m", 3)];
    for (number, (first, second)) in waiting_requests
        .iter()
        .flat_map(|first| waiting_requests.iter().map(move |second| (first, second)))
        .enumerate()
    {
        let number = number as u64;
        for (member, session, request) in [(0, a, first), (1, b, second), (2, c, second)] {
            cluster.acquire(member, session, number, request);
        }
        let conflict = first.mode.conflicts(second.mode);
        assert_eq!(cluster.granted(b, number).is_none(), conflict, "{first:?}, {second:?}");
        cluster.release(0, a, number);
        let (of_b, of_a) =
            (cluster.granted(b, number).expect("its turn"), cluster.granted(a, number).expect("the first"));
        assert!(!conflict || of_a.is_none() || of_b.is_none() || of_b > of_a);
        cluster.release(1, b, number);
        assert!(cluster.granted(c, number).is_some());
        cluster.release(2, c, number);
    }
}

#[test]
fn shared_requests_are_granted_locally_until_a_writer_waits() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let (a, b, c) = (cluster.session(0, 1), cluster.session(0, 2), cluster.session(1, 3));
    cluster.acquire(0, a, 1, &shared("m"));
    let before = cluster.frames;
    cluster.acquire(0, b, 1, &shared("m"));
    cluster.release(0, a, 1);
    cluster.acquire(0, a, 2, &LockRequest { timeout_ns: Some(0), ..shared("m") });
    assert!(cluster.granted(a, 2).is_some() && cluster.frames == before);
    cluster.acquire(1, c, 1, &mutex("m"));
    cluster.acquire(0, b, 2, &shared("m"));
    assert_eq!((cluster.granted(c, 1), cluster.granted(b, 2)), (None, None), "the writer comes next");
    cluster.release(0, a, 2);
    cluster.release(0, b, 1);
    assert!(cluster.granted(c, 1).is_some() && cluster.granted(b, 2).is_none());
    cluster.release(1, c, 1);
    assert!(cluster.granted(b, 2) > cluster.granted(c, 1));
    // A local writer comes before readers that request after it.
    cluster.acquire(0, a, 3, &mutex("m"));
    cluster.acquire(0, b, 3, &shared("m"));
    assert_eq!((cluster.granted(a, 3), cluster.granted(b, 3)), (None, None));
    cluster.release(0, b, 2);
    assert!(cluster.granted(a, 3).is_some() && cluster.granted(b, 3).is_none());
    cluster.release(0, a, 3);
    assert!(cluster.granted(b, 3).is_some());
}

#[test]
fn shared_holds_and_permits_survive_a_view_change() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let sessions = [cluster.session(0, 1), cluster.session(1, 2), cluster.session(1, 3)];
    let views = cluster.views;
    for (member, session) in [0, 1, 1].into_iter().zip(sessions) {
        cluster.acquire(member, session, 1, &shared("m"));
        cluster.acquire(member, session, 2, &permit("p", 3));
    }
    cluster.happens(2, Event::Leave { timeout_ns: 0 });
    cluster.wait(2_000);
    assert!(cluster.views > views);
    for (request, number) in [(mutex("m"), 1), (permit("p", 3), 2)] {
        cluster.acquire(0, sessions[0], 10 + number, &request);
        for (member, session) in [0, 1, 1].into_iter().zip(sessions) {
            let waits = cluster.granted(sessions[0], 10 + number).is_none();
            // A permit is free after one release; the exclusive request has to wait for all shared holds.
            assert_eq!(waits, number == 1 || session == sessions[0], "{request:?}");
            cluster.release(member, session, number);
        }
        assert!(cluster.granted(sessions[0], 10 + number).is_some(), "{request:?}");
    }
}

#[test]
fn a_revoked_hold_ends_when_its_lease_expires_or_the_client_releases_it() {
    let mut cluster = FaultFreeCluster::new(2, |_| {});
    let (a, b) = (cluster.session(0, 1), cluster.session(1, 2));
    cluster.acquire(0, a, 1, &LockRequest { longest_hold_ns: Some(100 * MS), ..mutex("m") });
    cluster.acquire(1, b, 1, &mutex("m"));
    cluster.wait(200);
    assert_eq!(
        (cluster.ended(a, 1), cluster.granted(b, 1)),
        (Some(Ended::Revoked), None),
        "the client is notified, and its lease still runs"
    );
    cluster.release(0, a, 1);
    assert!(cluster.granted(b, 1).is_some());
    cluster.acquire(0, a, 2, &mutex("m"));
    cluster.happens(
        1,
        Event::Revoke(LockName::new("m"), Acquisition { session: b, number: 1 }, String::from("root")),
    );
    cluster.wait(3_000);
    assert!(cluster.granted(a, 2).is_some(), "the lease of the silent client has expired");
}

/// An operator with permission to revoke `a` must not revoke `b` by naming an acquisition that holds `b`.
#[test]
fn revocation_of_one_lock_leaves_an_acquisition_that_holds_another_one() {
    let mut cluster = FaultFreeCluster::new(1, |_| {});
    let holder = cluster.session(0, 1);
    cluster.acquire(0, holder, 1, &mutex("a"));
    cluster.acquire(0, holder, 2, &mutex("b"));
    for (lock, number) in [("a", 2), ("c", 2), ("b", 1)] {
        cluster.happens(
            0,
            Event::Revoke(LockName::new(lock), Acquisition { session: holder, number }, String::from("root")),
        );
        assert_eq!(cluster.ended(holder, number), None, "{lock}");
    }
    cluster.happens(
        0,
        Event::Revoke(LockName::new("b"), Acquisition { session: holder, number: 2 }, String::from("root")),
    );
    assert_eq!((cluster.ended(holder, 1), cluster.ended(holder, 2)), (None, Some(Ended::Revoked)));
}

/// Control characters, an empty name and a name that is too long are refused by the member itself, in case a driver
/// does not check them.
#[test]
fn bad_names_and_tags_are_refused() {
    let mut cluster = FaultFreeCluster::new(1, |_| {});
    let client = cluster.session(0, 1);
    let tagged = |owner: &str, purpose: &str| {
        let tag = Tag { owner: owner.into(), purpose: purpose.into() };
        LockRequest { tag, ..mutex("good") }
    };
    let (long, long_tag) = ("x".repeat(513), "x".repeat(1025));
    let names = ["", "a\0", "a\nb", "\u{1b}[2J", "\u{9b}2J", &long].map(mutex);
    let tags = [tagged("\u{1b}", ""), tagged("", "a\nb"), tagged(&long_tag, "")];
    for (number, request) in (1..).zip(names.into_iter().chain(tags)) {
        cluster.acquire(0, client, number, &request);
        assert_eq!(cluster.ended(client, number), Some(Ended::Refused), "{request:?}");
    }
    cluster.acquire(0, client, 100, &tagged("me", r#"{"holder":"me"}"#));
    assert!(cluster.granted(client, 100).is_some());
}

#[test]
fn query_shows_holders_waiters_and_a_wait_cycle() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let (a, b) = (cluster.session(0, 1), cluster.session(1, 2));
    cluster.acquire(0, a, 1, &mutex("x"));
    cluster.acquire(1, b, 1, &mutex("y"));
    cluster.acquire(0, a, 2, &mutex("y"));
    cluster.acquire(1, b, 2, &mutex("x"));
    cluster.happens(2, Event::Query(1, Query::ALL));
    let tables = cluster.query_replies.pop().expect("an answer");
    assert_eq!(tables.len(), 3);
    let why_waiting = why(&tables, a);
    assert_eq!((why_waiting.chain.len(), why_waiting.cycle), (2, Some(0)), "{why_waiting:?}");
}

#[test]
fn exhausted_fence_clock_causes_a_view_change_and_fences_keep_rising() {
    let mut cluster = FaultFreeCluster::new(2, |config| config.largest_clock = 5);
    let a = cluster.session(0, 1);
    let (views, mut last) = (cluster.views, None);
    for number in 1..20 {
        cluster.acquire(0, a, number, &mutex("m"));
        cluster.wait(1_000);
        let fence = cluster.granted(a, number).expect("granted, if not at once").expect("a fence");
        assert!(Some(fence) > last);
        last = Some(fence);
        cluster.release(0, a, number);
    }
    assert!(cluster.views > views + 2);
}

#[test]
fn an_excluded_incarnation_does_not_rejoin_with_its_holds() {
    let me = Node { id: MemberId(1), incarnation: 1 };
    let view = |epoch, since| View { since: vec![since], ..View::of_one(epoch, 1, me) };
    let learns = |views: &[View]| {
        let mut member = {
            let mut config = Config::new([me.id]);
            config.is_new = true;
            Member::<NaimiTrehel>::new(me, config, 0)
        }
        .expect("good settings");
        let mut out = Out::default();
        let mut excluded = false;
        for view in views {
            member.handle(
                0,
                Event::Port(PortEvent::Decided { view: view.clone(), adopted: Vec::new() }),
                &mut out,
            );
            excluded |= out.notes.contains(&Note::Excluded);
        }
        excluded
    };
    assert!(!learns(&[view(1, 1), view(3, 1)]), "a member may miss a view that includes it");
    assert!(learns(&[view(1, 1), view(3, 3)]), "the member was not in view 2");
}

#[test]
fn a_member_joins_once_it_is_among_the_peers() {
    let mut cluster = FaultFreeCluster::new(3, |config| config.peers.retain(|peer| peer.0 < 3));
    assert_eq!(cluster.members[0].running().map(|view| view.members.len()), Some(2));
    let all_members: Vec<MemberId> = (1..=3).map(MemberId).collect();
    for member in 0..3 {
        cluster.happens(member, Event::Peers(all_members.clone()));
    }
    cluster.wait(2_000);
    assert_eq!(cluster.members[2].running().map(|view| view.members.len()), Some(3));
}

#[test]
fn unacknowledged_payloads_are_sent_again_when_a_connection_is_restored() {
    let mut cluster = FaultFreeCluster::new(2, |_| {});
    let sessions = [cluster.session(0, 1), cluster.session(1, 2)];
    // The member that is not the lock's home sends a request to the other one; that frame is lost.
    let mut out = Out::default();
    let requester = (0..2).find(|&member| {
        let message = ToMember::Acquire { number: 1, settled: 0, request: mutex("m") };
        cluster.members[member].handle(
            cluster.now,
            Event::Client(sessions[member], Proof::default(), message),
            &mut out,
        );
        !out.frames.is_empty()
    });
    let requester = requester.expect("the token is at one of the two");
    let (lost, other) = (out.frames.clone(), cluster.members[1 - requester].node().id);
    cluster.members[requester].handle(cluster.now, Event::Connected(MemberId(9)), &mut out);
    assert_eq!(out.frames, []);
    cluster.members[requester].handle(cluster.now, Event::Connected(other), &mut out);
    assert_eq!(out.frames, lost);
}

#[test]
fn a_leave_waits_for_no_lease_and_keeps_the_holds_of_other_members() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let (a, c) = (cluster.session(0, 1), cluster.session(2, 3));
    cluster.acquire(0, a, 1, &mutex("m"));
    cluster.acquire(2, c, 1, &mutex("m"));
    cluster.acquire(2, c, 2, &mutex("n"));
    cluster.happens(2, Event::Leave { timeout_ns: u64::MAX });
    assert_eq!(cluster.ended(c, 1), Some(Ended::Leaving), "a waiter has to request at another member");
    cluster.wait(5_000);
    assert_eq!(cluster.left, [], "a client of the member holds a lock");
    cluster.release(2, c, 2);
    // A fraction of the lease, which is 1200 ms.
    cluster.wait(200);
    assert_eq!(cluster.left, [2]);
    assert_eq!(cluster.members[0].running().map(|view| view.members.len()), Some(2));
    let b = cluster.session(1, 2);
    cluster.acquire(1, b, 1, &mutex("n"));
    assert!(cluster.granted(b, 1).is_some(), "the token came back with the view");
    cluster.acquire(1, b, 2, &mutex("m"));
    assert_eq!(cluster.granted(b, 2), None, "still held");
    cluster.release(0, a, 1);
    assert!(cluster.granted(b, 2) > cluster.granted(a, 1));
}

#[test]
fn a_leave_with_a_short_timeout_waits_for_the_leases_of_clients() {
    let mut cluster = FaultFreeCluster::new(3, |_| {});
    let c = cluster.session(2, 3);
    cluster.acquire(2, c, 1, &mutex("n"));
    cluster.wait(100);
    cluster.happens(2, Event::Leave { timeout_ns: 0 });
    cluster.wait(500);
    assert_eq!(cluster.left, [], "the lease of the client still runs");
    cluster.wait(1_500);
    assert_eq!(cluster.left, [2]);
}

#[test]
fn a_leaving_leader_steps_down_and_the_last_member_leaves_by_itself() {
    let mut cluster = FaultFreeCluster::new(2, |_| {});
    cluster.happens(0, Event::Leave { timeout_ns: 0 });
    cluster.wait(500);
    assert!(cluster.steps_down && cluster.left.is_empty());
    cluster.happens(0, Event::Port(PortEvent::Deposed));
    cluster.happens(1, Event::Port(PortEvent::Leading { term: 2 }));
    cluster.happens(0, Event::Port(PortEvent::Leader(Some(MemberId(2)))));
    cluster.wait(500);
    assert_eq!(cluster.left, [0]);
    cluster.happens(1, Event::Leave { timeout_ns: 0 });
    cluster.wait(500);
    assert_eq!(cluster.left, [0, 1]);
    // The next incarnation knows that all members left as planned, so it waits for no lease, which would take 1200
    // ms.
    let (me, config) = (Node { id: MemberId(2), incarnation: 2 }, Config::new([MemberId(2)]).with_bugs(None));
    cluster.members[1] = Member::new(me, config, cluster.now).expect("good settings");
    let last = cluster.decided.clone().expect("views were decided");
    assert_eq!((last.members.len(), last.missing.len()), (0, 0));
    cluster.happens(1, Event::Port(PortEvent::Decided { view: last, adopted: Vec::new() }));
    cluster.happens(1, Event::Port(PortEvent::Leading { term: 3 }));
    cluster.wait(200);
    assert_eq!(cluster.members[1].running().map(|view| view.members.clone()), Some(vec![me]));
}
