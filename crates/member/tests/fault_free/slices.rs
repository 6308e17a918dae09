//! Work on many locks is divided into slices: no step touches more than a constant number of items.

use crate::support::{FaultFreeCluster, MS, mutex};
use lockkeeper_member::{BugSwitch, Config, Event, LockName, Proof, Query, SessionId, ToMember};

const SLICE: usize = 32;
/// A slice, and the cost of one item beyond it: a message to each member, or a chunk of a list.
const MOST_WORK: usize = SLICE + 16;
const HOLDS: u64 = 500;

fn sliced(config: &mut Config<Option<BugSwitch>>) {
    config.slice = SLICE;
    config.chunk_bytes = 1_000;
}

fn hold_many(cluster: &mut FaultFreeCluster, member: usize, session: SessionId) {
    for number in 0..HOLDS {
        cluster.acquire(member, session, number, &mutex(&format!("{member}-{number}")));
        assert!(cluster.granted(session, number).is_some());
    }
}

/// Runs until no work is left. Returns the largest step since the last call.
fn longest(cluster: &mut FaultFreeCluster) -> usize {
    cluster.wait(200);
    std::mem::take(&mut cluster.most_work)
}

/// A view change with many holds at two members: the third one leaves.
fn view_change(change: impl Fn(&mut Config<Option<BugSwitch>>)) -> (FaultFreeCluster, usize) {
    let mut cluster = FaultFreeCluster::new(3, change);
    let (a, b) = (cluster.session(0, 1), cluster.session(1, 2));
    hold_many(&mut cluster, 0, a);
    hold_many(&mut cluster, 1, b);
    longest(&mut cluster);
    let before = cluster.views;
    cluster.happens(2, Event::Leave { timeout_ns: 0 });
    cluster.wait(1_000);
    assert_eq!(cluster.views, before + 1);
    let work = longest(&mut cluster);
    (cluster, work)
}

#[test]
fn a_view_change_touches_a_bounded_number_of_holds_in_each_step() {
    let (mut cluster, work) = view_change(sliced);
    assert!((SLICE / 2..=MOST_WORK).contains(&work), "{work} items in one step");
    // The state is preserved: holds exclude other clients, and can be released.
    let (a, b) = (SessionId { client: 1, number: 0 }, SessionId { client: 2, number: 0 });
    for number in 0..HOLDS {
        cluster.acquire(1, b, HOLDS + number, &mutex(&format!("0-{number}")));
        assert_eq!(cluster.granted(b, HOLDS + number), None);
        cluster.release(0, a, number);
    }
    cluster.wait(200);
    assert!((0..HOLDS).all(|number| cluster.granted(b, HOLDS + number) > cluster.granted(a, number)));
    let (_, work) = view_change(|config| {
        sliced(config);
        config.bugs = Some(BugSwitch::OneBigStep);
    });
    assert!(work > HOLDS as usize, "the bug switch makes one step of {work} items");
}

#[test]
fn holds_released_during_a_view_change_are_free_in_the_new_view() {
    let mut cluster = FaultFreeCluster::new(2, sliced);
    let (a, b) = (cluster.session(0, 1), cluster.session(1, 2));
    hold_many(&mut cluster, 0, a);
    cluster.wait(200);
    let settings = {
        let mut settings = cluster.members[0].settings().clone();
        settings.settle_ns += MS;
        settings
    };
    cluster.drains = false;
    cluster.happens(0, Event::Change(settings));
    // The first member is in the middle of its work: it runs in no view.
    let mut released = 0;
    while cluster.members.iter().any(|member| member.running().is_none()) {
        cluster.release(0, a, released);
        released += 1;
        for member in 0..2 {
            cluster.happens(member, Event::Tick);
        }
        assert!(released < HOLDS, "the view starts before everything is released");
    }
    cluster.drains = true;
    cluster.wait(200);
    assert!(released > 5, "{released} released meanwhile");
    for number in 0..HOLDS {
        cluster.acquire(1, b, number, &mutex(&format!("0-{number}")));
        assert_eq!(cluster.granted(b, number).is_some(), number < released, "{number} of {released}");
    }
}

#[test]
fn ending_a_session_with_many_holds_takes_many_steps() {
    let mut cluster = FaultFreeCluster::new(3, sliced);
    let (a, b) = (cluster.session(0, 1), cluster.session(1, 2));
    hold_many(&mut cluster, 0, a);
    longest(&mut cluster);
    cluster.send(0, a, ToMember::Close);
    let work = longest(&mut cluster);
    assert!((SLICE / 2..=MOST_WORK).contains(&work), "{work} items in one step");
    for number in 0..HOLDS {
        cluster.acquire(1, b, number, &mutex(&format!("0-{number}")));
        assert!(cluster.granted(b, number).is_some());
    }
}

#[test]
fn a_leave_with_many_waiters_and_sessions_takes_many_steps() {
    let mut cluster = FaultFreeCluster::new(3, sliced);
    let b = cluster.session(1, 1);
    hold_many(&mut cluster, 1, b);
    let waiting: Vec<SessionId> = (0..HOLDS).map(|client| cluster.session(2, 100 + client)).collect();
    for (number, &session) in waiting.iter().enumerate() {
        cluster.acquire(2, session, 1, &mutex(&format!("1-{number}")));
    }
    longest(&mut cluster);
    cluster.happens(2, Event::Leave { timeout_ns: 0 });
    cluster.wait(1_000);
    let work = longest(&mut cluster);
    assert!((SLICE / 2..=MOST_WORK).contains(&work), "{work} items in one step");
    assert_eq!(cluster.left, [2]);
    let ended = waiting.iter().filter(|&&session| cluster.ended(session, 1).is_some()).count();
    assert_eq!(ended as u64, HOLDS);
}

#[test]
fn query_for_one_lock_scans_no_other_lock() {
    let mut cluster = FaultFreeCluster::new(3, sliced);
    let (a, b) = (cluster.session(0, 1), cluster.session(1, 2));
    hold_many(&mut cluster, 0, a);
    hold_many(&mut cluster, 1, b);
    longest(&mut cluster);
    cluster.happens(2, Event::Query(7, Query::One(LockName::new("1-499"))));
    let work = longest(&mut cluster);
    let rows: Vec<_> = cluster.query_replies[0].iter().flat_map(|(_, table)| table).collect();
    assert_eq!((rows.len(), rows[0].holders[0].acquisition.session), (1, b));
    assert!(work < SLICE / 2, "{work} items in one step, with {HOLDS} locks held");
}

#[test]
fn journal_names_the_locks_that_changed_and_no_others() {
    let mut cluster = FaultFreeCluster::new(1, |_| ());
    let session = cluster.session(0, 1);
    hold_many(&mut cluster, 0, session);
    assert_eq!(cluster.members[0].next_change(), None, "no driver has begun a journal");
    cluster.members[0].begin_journal(100);
    cluster.acquire(0, session, HOLDS, &mutex("new"));
    cluster.happens(0, Event::Client(session, Proof::default(), ToMember::Release { number: 7 }));
    let (rows, next) =
        cluster.members[0].changes(cluster.now, 100, usize::MAX).expect("the journal goes back to 100");
    let found: Vec<_> = rows.iter().map(|row| (&*row.lock.name, row.holders.len())).collect();
    assert_eq!(found, [("0-7", 0), ("new", 1)]);
    assert_eq!(cluster.members[0].changes(cluster.now, next, usize::MAX), Some((vec![], next)));
    assert_eq!(
        cluster.members[0].changes(cluster.now, 99, usize::MAX),
        None,
        "the journal does not go back to 99"
    );
    assert_eq!(
        cluster.members[0].changes(cluster.now, next + 1, usize::MAX),
        None,
        "a number that this journal has not reached"
    );
}

#[test]
fn a_query_of_many_locks_takes_many_steps_and_is_complete() {
    let mut cluster = FaultFreeCluster::new(3, sliced);
    let (a, b) = (cluster.session(0, 1), cluster.session(1, 2));
    hold_many(&mut cluster, 0, a);
    hold_many(&mut cluster, 1, b);
    longest(&mut cluster);
    cluster.happens(2, Event::Query(1, Query::ALL));
    let work = longest(&mut cluster);
    assert!((SLICE / 2..=MOST_WORK).contains(&work), "{work} items in one step");
    let rows: Vec<usize> = cluster.query_replies[0].iter().map(|(_, table)| table.len()).collect();
    assert_eq!(rows, [HOLDS as usize, HOLDS as usize, 0]);
    assert!(cluster.query_replies[0][0].1.is_sorted_by(|one, other| one.lock < other.lock));
}

#[test]
fn waiters_parked_by_an_expired_lease_are_granted_over_many_steps() {
    let mut cluster = FaultFreeCluster::new(1, sliced);
    // The lease of the only member expires.
    cluster.voters_answer = false;
    cluster.wait(2_000);
    let a = cluster.session(0, 1);
    for number in 0..HOLDS {
        cluster.acquire(0, a, number, &mutex(&format!("0-{number}")));
    }
    assert!((0..HOLDS).all(|number| cluster.granted(a, number).is_none()));
    cluster.most_work = 0;
    cluster.voters_answer = true;
    cluster.wait(400);
    let work = longest(&mut cluster);
    assert!((SLICE / 2..=MOST_WORK).contains(&work), "{work} items in one step");
    assert!((0..HOLDS).all(|number| cluster.granted(a, number).is_some()));
}
