//! Recorded holds: which are recorded, when their locks are free, and what a silent client keeps.

use super::support::{FaultFreeCluster, MS, mutex};
use lockkeeper_member::{
    Acquisition, ClusterSettings, Ended, Event, LockRequest, SessionId, ToClient, ToMember, View,
};

const TTL: u64 = 5_000 * MS;

fn durable(name: &str) -> LockRequest {
    LockRequest { ttl_ns: TTL, ..mutex(name) }
}

fn cluster() -> FaultFreeCluster {
    FaultFreeCluster::new(3, |_| ())
}

fn is_recorded(cluster: &FaultFreeCluster, session: SessionId, number: u64) -> bool {
    cluster.sent.iter().any(|(to, said)| {
        *to == session && matches!(said, ToClient::Recorded { number: recorded, .. } if *recorded == number)
    })
}

#[test]
fn a_hold_that_lasts_is_recorded_and_a_short_one_costs_no_write() {
    let mut cluster = cluster();
    let session = cluster.session(0, 7);
    for number in 1..=100 {
        cluster.acquire(0, session, number, &durable("short"));
        cluster.release(0, session, number);
    }
    cluster.wait(500);
    assert_eq!((cluster.writes, cluster.table.records().len()), (0, 0));
    cluster.acquire(0, session, 101, &durable("long"));
    cluster.acquire(0, session, 102, &mutex("without a time to live"));
    cluster.wait(500);
    assert!(is_recorded(&cluster, session, 101) && !is_recorded(&cluster, session, 102));
    let records: Vec<_> = cluster.table.records().collect();
    assert_eq!(records.len(), 1);
    assert_eq!((&*records[0].lock.name, records[0].ttl_ns), ("long", TTL));
    assert_eq!(records[0].fence, cluster.granted(session, 101).unwrap());
}

#[test]
fn the_lock_of_a_recorded_hold_is_free_once_the_end_of_its_record_is_committed() {
    let mut cluster = cluster();
    let (holder, waiter) = (cluster.session(0, 7), cluster.session(0, 8));
    cluster.acquire(0, holder, 1, &durable("long"));
    cluster.wait(200);
    assert!(is_recorded(&cluster, holder, 1));
    cluster.acquire(0, waiter, 1, &durable("long"));
    cluster.voters_answer = false;
    cluster.release(0, holder, 1);
    assert_eq!(cluster.ended(holder, 1), None, "the client repeats its release");
    assert_eq!(cluster.granted(waiter, 1), None, "the end of the record is not committed");
    cluster.voters_answer = true;
    // The member repeats its write.
    cluster.wait(1_000);
    assert!(cluster.granted(waiter, 1).is_some());
    assert_eq!(cluster.ended(holder, 1), Some(Ended::Released));
}

#[test]
fn a_silent_client_keeps_its_recorded_hold_for_its_time_to_live_and_loses_the_others() {
    let mut cluster = cluster();
    let holder = cluster.session(0, 7);
    cluster.acquire(0, holder, 1, &durable("long"));
    cluster.acquire(0, holder, 2, &mutex("short"));
    cluster.wait(300);
    let (one, other) = (cluster.session(1, 8), cluster.session(1, 9));
    cluster.acquire(1, one, 1, &mutex("long"));
    cluster.acquire(1, other, 1, &mutex("short"));
    cluster.silent.push(holder);
    cluster.wait(3_000);
    assert!(cluster.granted(other, 1).is_some(), "the lease of the session is over");
    assert_eq!(cluster.granted(one, 1), None, "the time to live is not over");
    cluster.wait(4_000);
    assert!(cluster.granted(one, 1).is_some());
}

#[test]
fn a_client_that_was_silent_learns_which_holds_it_still_has() {
    let mut cluster = cluster();
    let holder = cluster.session(0, 7);
    cluster.acquire(0, holder, 1, &durable("long"));
    cluster.acquire(0, holder, 2, &mutex("short"));
    cluster.wait(300);
    let generation = cluster.sent.iter().rev().find_map(|(to, said)| match said {
        ToClient::Alive { generation, .. } if *to == holder => Some(*generation),
        _ => None,
    });
    cluster.silent.push(holder);
    cluster.wait(3_000);
    cluster.sent.clear();
    let keep_alive = ToMember::KeepAlive { sent_ns: cluster.now, first: false, settled: 0, generation };
    cluster.send(0, holder, keep_alive);
    let resumed = cluster.sent.iter().find_map(|(_, said)| match said {
        ToClient::Resumed { generation, held } => Some((*generation, held.clone())),
        _ => None,
    });
    let (newer, held) = resumed.expect("the session has a newer generation");
    assert!(Some(newer) > generation);
    assert_eq!(held, [(1, TTL)]);
}

#[test]
fn a_revoked_recorded_hold_is_free_after_its_time_to_live_if_its_client_is_silent() {
    let mut cluster = cluster();
    let (holder, waiter) = (cluster.session(0, 7), cluster.session(1, 8));
    cluster.acquire(0, holder, 1, &durable("long"));
    cluster.wait(300);
    cluster.acquire(1, waiter, 1, &mutex("long"));
    cluster.silent.push(holder);
    cluster.revoke(0, "long", holder, 1);
    cluster.wait(3_000);
    assert_eq!(cluster.granted(waiter, 1), None, "the client may not know of the revocation");
    cluster.wait(4_000);
    assert!(cluster.granted(waiter, 1).is_some());
}

#[test]
fn a_leaving_member_records_its_holds_and_departs_without_waiting_for_its_clients() {
    let mut cluster = cluster();
    let holder = cluster.session(1, 7);
    cluster.acquire(1, holder, 1, &durable("long"));
    cluster.leave(1, 60_000);
    cluster.silent.push(holder);
    cluster.wait(2_000);
    assert_eq!(cluster.left, [1]);
    let adopted = cluster.table.adopted();
    assert_eq!(adopted.len(), 1);
    assert_ne!(adopted[0].home, cluster.members[1].node());
    // The adopting member serves the client: it answers with the hold.
    let home = adopted[0].home.id.0 as usize - 1;
    let other = if home == 0 { 2 } else { 0 };
    cluster.sent.clear();
    let generation = Some(lockkeeper_member::Generation::default());
    // The client reaches another member, which relays its messages.
    cluster.send(
        other,
        holder,
        ToMember::KeepAlive { sent_ns: cluster.now, first: false, settled: 0, generation },
    );
    let resumed = cluster.sent.iter().any(|(to, said)| {
        *to == holder && matches!(said, ToClient::Resumed { held, .. } if held[..] == [(1, TTL)])
    });
    assert!(resumed, "{:?}", cluster.sent);
    // A waiter gets the lock when the client releases it through the other member.
    let waiter = cluster.session(other, 8);
    cluster.acquire(other, waiter, 1, &mutex("long"));
    cluster.wait(100);
    assert_eq!(cluster.granted(waiter, 1), None);
    cluster.send(other, holder, ToMember::Release { number: 1 });
    cluster.wait(200);
    assert!(cluster.granted(waiter, 1) > Some(None), "the fence is above that of the adopted hold");
}

/// The log takes the record, the answer is lost, and a newer view is decided: the table refuses the repeated write, and
/// has the record of its first application nevertheless.
#[test]
fn a_record_whose_repetition_is_refused_is_ended_before_the_lock_of_the_released_hold_is_free() {
    let mut cluster = cluster();
    let session = cluster.session(1, 7);
    cluster.acquire(1, session, 1, &durable("nightly"));
    cluster.voters_answer = false;
    cluster.wait(150);
    assert_eq!(cluster.table.records().len(), 1);
    cluster.release(1, session, 1);
    let newest = cluster.decided.clone().expect("a view is decided");
    cluster.decided = Some(View { epoch: newest.epoch + 1, ..newest });
    cluster.voters_answer = true;
    cluster.wait(500);
    let is_over = |(to, message): &(SessionId, ToClient)| {
        *to == session && matches!(message, ToClient::Ended { number: 1, .. })
    };
    assert_eq!(cluster.table.records().len(), 1);
    assert!(!cluster.sent.iter().any(is_over), "the record is in the table: {:?}", cluster.sent.last());
    // The members learn of the view, and the record ends in it.
    let settings = cluster.members[0].settings().clone();
    cluster.happens(0, Event::Change(ClusterSettings { settle_ns: settings.settle_ns + 1, ..settings }));
    cluster.wait(3_000);
    assert!(cluster.sent.iter().any(is_over));
    assert_eq!(cluster.table.records().len(), 0);
}

#[test]
fn a_hold_that_does_not_fit_into_the_table_stays_short_until_there_is_room() {
    let mut cluster = cluster();
    let holders = [cluster.session(0, 7), cluster.session(0, 8)];
    cluster.acquire(0, holders[0], 1, &durable("one"));
    cluster.wait(300);
    assert!(is_recorded(&cluster, holders[0], 1));
    cluster.most_table_bytes = cluster.table.bytes();
    cluster.acquire(0, holders[1], 1, &durable("two"));
    cluster.wait(600);
    let second = Acquisition { session: holders[1], number: 1 };
    assert!(!is_recorded(&cluster, holders[1], 1) && cluster.members[0].is_record_unfit(second));
    assert!(cluster.writes < 10, "a full table is not asked again and again: {} writes", cluster.writes);
    cluster.release(0, holders[0], 1);
    cluster.wait(2_000);
    assert!(is_recorded(&cluster, holders[1], 1) && !cluster.members[0].is_record_unfit(second));
    // A hold without a record ends as usual.
    cluster.most_table_bytes = cluster.table.bytes();
    cluster.acquire(0, holders[0], 2, &durable("third"));
    cluster.wait(300);
    cluster.release(0, holders[0], 2);
    assert_eq!(cluster.ended(holders[0], 2), Some(Ended::Released));
    let waiter = cluster.session(1, 9);
    cluster.acquire(1, waiter, 1, &mutex("third"));
    assert!(cluster.granted(waiter, 1).is_some());
}

#[test]
fn a_revocation_names_the_operator_also_in_the_answer_to_a_keep_alive() {
    let mut cluster = cluster();
    let holder = cluster.session(0, 7);
    cluster.acquire(0, holder, 1, &durable("long"));
    cluster.silent.push(holder);
    let named = |cluster: &FaultFreeCluster| {
        let by_root = |said: &ToClient| *said == ToClient::RevokedBy { number: 1, by: String::from("root") };
        cluster.sent.iter().filter(|(to, said)| *to == holder && by_root(said)).count()
    };
    cluster.revoke(0, "long", holder, 1);
    assert_eq!(named(&cluster), 1);
    cluster.silent.clear();
    cluster.wait(20);
    assert!(named(&cluster) > 1, "the client may have missed the first message");
    cluster.release(0, holder, 1);
    cluster.sent.clear();
    cluster.wait(200);
    assert_eq!(named(&cluster), 0, "the client has released it");
}

#[test]
fn a_hold_is_in_jeopardy_while_its_client_is_silent_also_after_the_adoption() {
    let mut cluster = cluster();
    let holder = cluster.session(1, 7);
    cluster.acquire(1, holder, 1, &durable("long"));
    let in_jeopardy = |cluster: &FaultFreeCluster| {
        let rows = cluster.members.iter().flat_map(|member| member.table(cluster.now));
        rows.flat_map(|row| row.holders).filter(|held| held.in_jeopardy).count()
    };
    cluster.wait(300);
    assert_eq!(in_jeopardy(&cluster), 0);
    cluster.silent.push(holder);
    cluster.wait(2_000);
    assert_eq!(in_jeopardy(&cluster), 1, "silent for longer than its lease");
    cluster.silent.clear();
    cluster.wait(100);
    assert_eq!(in_jeopardy(&cluster), 0);
    cluster.silent.push(holder);
    cluster.leave(1, 60_000);
    cluster.wait(1_500);
    assert_eq!(cluster.left, [1]);
    let home = cluster.table.adopted()[0].home.id.0 as usize - 1;
    let adopted = cluster.members[home].table(cluster.now);
    assert!(adopted[0].holders[0].in_jeopardy, "adopted: {adopted:?}");
    cluster.send(
        home,
        holder,
        ToMember::KeepAlive { sent_ns: cluster.now, first: false, settled: 0, generation: None },
    );
    assert!(!cluster.members[home].table(cluster.now)[0].holders[0].in_jeopardy);
}

#[test]
fn a_detached_hold_is_recorded_at_once_and_lists_show_its_deadline() {
    let mut cluster = cluster();
    let holder = SessionId { client: SessionId::RESIDENT + 7, number: 0 };
    cluster.members[0].open_resident(cluster.now, holder).expect("opened");
    cluster.silent.push(holder);
    cluster.acquire(0, holder, 1, &mutex("reboot"));
    let acquisition = Acquisition { session: holder, number: 1 };
    let now = cluster.now;
    assert!(cluster.members[0].record_resident(now, acquisition, TTL, b"web-3".to_vec()));
    cluster.members[0].detach_resident(acquisition, Some(77));
    cluster.happens(0, Event::Tick);
    assert!(is_recorded(&cluster, holder, 1), "without the delay for holds that last");
    assert_eq!(cluster.table.records().next().map(|record| &record.payload[..]), Some(&b"web-3"[..]));
    let table = cluster.members[0].table(cluster.now);
    assert_eq!(table[0].holders[0].detached_until_ms, Some(77));
    assert!(!table[0].holders[0].in_jeopardy);
    cluster.members[0].detach_resident(acquisition, None);
    assert_eq!(cluster.members[0].table(cluster.now)[0].holders[0].detached_until_ms, None);
}
