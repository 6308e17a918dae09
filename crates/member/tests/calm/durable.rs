//! Recorded holds: which are recorded, when their locks are free, and what a silent client keeps.

use super::support::{Calm, MS, mutex};
use lockkeeper_member::{Ended, LockRequest, SessionId, ToClient, ToMember};

const TTL: u64 = 5_000 * MS;

fn durable(name: &str) -> LockRequest {
    LockRequest { ttl_ns: TTL, ..mutex(name) }
}

fn calm() -> Calm {
    Calm::new(3, |_| ())
}

fn is_recorded(calm: &Calm, session: SessionId, number: u64) -> bool {
    calm.sent.iter().any(|(to, said)| {
        *to == session && matches!(said, ToClient::Recorded { number: recorded, .. } if *recorded == number)
    })
}

#[test]
fn a_hold_that_lasts_is_recorded_and_a_short_one_costs_no_write() {
    let mut calm = calm();
    let session = calm.session(0, 7);
    for number in 1..=100 {
        calm.acquire(0, session, number, &durable("short"));
        calm.release(0, session, number);
    }
    calm.wait(500);
    assert_eq!((calm.writes, calm.table.records().len()), (0, 0));
    calm.acquire(0, session, 101, &durable("long"));
    calm.acquire(0, session, 102, &mutex("without a time to live"));
    calm.wait(500);
    assert!(is_recorded(&calm, session, 101) && !is_recorded(&calm, session, 102));
    let records: Vec<_> = calm.table.records().collect();
    assert_eq!(records.len(), 1);
    assert_eq!((&*records[0].lock.name, records[0].ttl_ns), ("long", TTL));
    assert_eq!(records[0].fence, calm.granted(session, 101).unwrap());
}

#[test]
fn the_lock_of_a_recorded_hold_is_free_once_the_end_of_its_record_is_committed() {
    let mut calm = calm();
    let (holder, waiter) = (calm.session(0, 7), calm.session(0, 8));
    calm.acquire(0, holder, 1, &durable("long"));
    calm.wait(200);
    assert!(is_recorded(&calm, holder, 1));
    calm.acquire(0, waiter, 1, &durable("long"));
    calm.voters_answer = false;
    calm.release(0, holder, 1);
    assert_eq!(calm.ended(holder, 1), None, "the client repeats its release");
    assert_eq!(calm.granted(waiter, 1), None, "the end of the record is not committed");
    calm.voters_answer = true;
    // The member repeats its write.
    calm.wait(1_000);
    assert!(calm.granted(waiter, 1).is_some());
    assert_eq!(calm.ended(holder, 1), Some(Ended::Released));
}

#[test]
fn a_silent_client_keeps_its_recorded_hold_for_its_time_to_live_and_loses_the_others() {
    let mut calm = calm();
    let holder = calm.session(0, 7);
    calm.acquire(0, holder, 1, &durable("long"));
    calm.acquire(0, holder, 2, &mutex("short"));
    calm.wait(300);
    let (one, other) = (calm.session(1, 8), calm.session(1, 9));
    calm.acquire(1, one, 1, &mutex("long"));
    calm.acquire(1, other, 1, &mutex("short"));
    calm.silent.push(holder);
    calm.wait(3_000);
    assert!(calm.granted(other, 1).is_some(), "the lease of the session is over");
    assert_eq!(calm.granted(one, 1), None, "the time to live is not over");
    calm.wait(4_000);
    assert!(calm.granted(one, 1).is_some());
}

#[test]
fn a_client_that_was_silent_learns_which_holds_it_still_has() {
    let mut calm = calm();
    let holder = calm.session(0, 7);
    calm.acquire(0, holder, 1, &durable("long"));
    calm.acquire(0, holder, 2, &mutex("short"));
    calm.wait(300);
    let generation = calm.sent.iter().rev().find_map(|(to, said)| match said {
        ToClient::Alive { generation, .. } if *to == holder => Some(*generation),
        _ => None,
    });
    calm.silent.push(holder);
    calm.wait(3_000);
    calm.sent.clear();
    let keep_alive = ToMember::KeepAlive { sent_ns: calm.now, first: false, settled: 0, generation };
    calm.send(0, holder, keep_alive);
    let resumed = calm.sent.iter().find_map(|(_, said)| match said {
        ToClient::Resumed { generation, held } => Some((*generation, held.clone())),
        _ => None,
    });
    let (newer, held) = resumed.expect("the session has a newer generation");
    assert!(Some(newer) > generation);
    assert_eq!(held, [(1, TTL)]);
}

#[test]
fn a_revoked_recorded_hold_is_free_after_its_time_to_live_if_its_client_is_silent() {
    let mut calm = calm();
    let (holder, waiter) = (calm.session(0, 7), calm.session(1, 8));
    calm.acquire(0, holder, 1, &durable("long"));
    calm.wait(300);
    calm.acquire(1, waiter, 1, &mutex("long"));
    calm.silent.push(holder);
    calm.revoke(0, "long", holder, 1);
    calm.wait(3_000);
    assert_eq!(calm.granted(waiter, 1), None, "the client may not know of the revocation");
    calm.wait(4_000);
    assert!(calm.granted(waiter, 1).is_some());
}

#[test]
fn a_leaving_member_records_its_holds_and_departs_without_waiting_for_its_clients() {
    let mut calm = calm();
    let holder = calm.session(1, 7);
    calm.acquire(1, holder, 1, &durable("long"));
    calm.leave(1, 60_000);
    calm.silent.push(holder);
    calm.wait(2_000);
    assert_eq!(calm.left, [1]);
    let adopted = calm.table.adopted();
    assert_eq!(adopted.len(), 1);
    assert_ne!(adopted[0].home, calm.members[1].node());
    // The adopting member serves the client: it answers with the hold.
    let home = adopted[0].home.id.0 as usize - 1;
    let other = if home == 0 { 2 } else { 0 };
    calm.sent.clear();
    let generation = Some(lockkeeper_member::Generation::default());
    // The client reaches another member, which relays its messages.
    calm.send(other, holder, ToMember::KeepAlive { sent_ns: calm.now, first: false, settled: 0, generation });
    let resumed = calm.sent.iter().any(|(to, said)| {
        *to == holder && matches!(said, ToClient::Resumed { held, .. } if held[..] == [(1, TTL)])
    });
    assert!(resumed, "{:?}", calm.sent);
    // A waiter gets the lock when the client releases it through the other member.
    let waiter = calm.session(other, 8);
    calm.acquire(other, waiter, 1, &mutex("long"));
    calm.wait(100);
    assert_eq!(calm.granted(waiter, 1), None);
    calm.send(other, holder, ToMember::Release { number: 1 });
    calm.wait(200);
    assert!(calm.granted(waiter, 1) > Some(None), "the fence is above that of the adopted hold");
}
