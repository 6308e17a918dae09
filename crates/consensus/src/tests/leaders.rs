//! Elections, decisions and confirmations.

use super::super::*;
use super::harness::*;
use crate::store::testing::Disk;
use lockkeeper_member::PortEvent;
use std::sync::OnceLock;

#[tokio::test(start_paused = true)]
async fn a_cluster_of_one_begins_at_once_and_decides() {
    let cluster = Cluster::started(1).await;
    assert_eq!(cluster.led().await, 1);
    assert_eq!(cluster.decide().await.epoch, 1);
    assert_eq!(cluster.decide().await.epoch, 2);
    let term = cluster.received(1).leading.unwrap();
    cluster.confirm(1, 7, term);
    cluster.until("confirmed", |cluster| cluster.received(1).confirmed == [7]).await;
    cluster.accepted();
}

#[tokio::test(start_paused = true)]
async fn three_and_five_members_decide_the_same_views() {
    for members in [3, 5] {
        let cluster = Cluster::started(members).await;
        for epoch in 1..=5 {
            assert_eq!(cluster.decide().await.epoch, epoch);
        }
        let views = cluster.received(1).views;
        assert!((2..=members).all(|number| cluster.received(number).views == views));
        cluster.accepted();
    }
}

#[tokio::test(start_paused = true)]
async fn killed_leader_is_replaced_and_returns_as_a_follower() {
    let mut cluster = Cluster::started(3).await;
    let before = cluster.decide().await;
    let (old, term) = cluster.leader().unwrap();
    cluster.kill(old).await;
    let new = cluster.led().await;
    assert_ne!(new, old);
    assert!(cluster.leader().unwrap().1 > term);
    let after = cluster.decide().await;
    assert_eq!(after.epoch, before.epoch + 1);
    cluster.start(old).await;
    cluster.all_know(after.epoch).await;
    cluster.led().await;
    cluster.accepted();
}

/// In virtual time all timers start together: with fixed timeouts, the same two voters would request votes at the same
/// time for ever.
#[tokio::test(start_paused = true)]
async fn voters_whose_election_timers_coincide_still_elect_a_leader() {
    let mut cluster = Cluster::started(3).await;
    for _ in 0..12 {
        let leader = cluster.led().await;
        cluster.kill(leader).await;
        cluster.led().await;
        cluster.start(leader).await;
    }
    cluster.led().await;
    let terms = cluster.leader().unwrap().1;
    assert!(terms < 200, "{terms} terms for 13 leaders");
    cluster.accepted();
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_a_majority_is_never_confirmed_and_decides_nothing() {
    let cluster = Cluster::started(5).await;
    cluster.decide().await;
    let (old, term) = cluster.leader().unwrap();
    let with = if old == 1 { 2 } else { 1 };
    cluster.cut_off(&[old, with]);
    // It takes itself for the leader for an unknown time.
    cluster.confirm(old, 1, term);
    let lost = cluster.next_view(old).unwrap();
    cluster.propose(old, lost.clone());
    cluster.until("another leader", |cluster| cluster.leader().is_some_and(|(_, newer)| newer > term)).await;
    cluster.confirm(old, 2, term);
    let (new, newer) = cluster.leader().unwrap();
    let view = cluster.next_view(new).unwrap();
    cluster.propose(new, view.clone());
    cluster.until("decided", |cluster| cluster.received(new).views.last() == Some(&view)).await;
    cluster.confirm(new, 3, newer);
    cluster.until("confirmed", |cluster| cluster.received(new).confirmed == [3]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(cluster.received(old).confirmed.is_empty());
    cluster.heal();
    cluster.all_know(view.epoch).await;
    assert!((1..=5).all(|number| !cluster.received(number).views.contains(&lost)));
    cluster.until("the old one knows", |cluster| cluster.received(old).leading.is_none()).await;
    cluster.accepted();
}

#[tokio::test(start_paused = true)]
async fn a_proposal_of_an_old_term_has_no_effect() {
    let cluster = Cluster::started(3).await;
    cluster.decide().await;
    let (leader, term) = cluster.leader().unwrap();
    let mut old = cluster.next_view(leader).unwrap();
    old.term = term - 1;
    cluster.at(leader).propose(old.clone());
    let mut early = cluster.next_view(leader).unwrap();
    early.epoch += 1;
    cluster.at(leader).propose(early.clone());
    let next = cluster.decide().await;
    assert_eq!(next.epoch, 2);
    assert!((1..=3).all(|number| {
        let views = cluster.received(number).views;
        !views.contains(&old) && !views.contains(&early)
    }));
    // A confirmation for another term is not answered.
    cluster.at(leader).confirm(1, term - 1);
    cluster.at(leader).confirm(2, term + 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(cluster.received(leader).confirmed.is_empty());
}

#[tokio::test(start_paused = true)]
async fn new_incarnation_gets_all_events_and_no_confirmation_of_the_previous_one() {
    let cluster = Cluster::started(3).await;
    let view = cluster.decide().await;
    let (leader, term) = cluster.leader().unwrap();
    cluster.confirm(leader, 1, term);
    cluster.new_incarnation(leader);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let received = cluster.received(leader);
    assert_eq!(
        (received.views, received.leading, received.leader),
        (vec![view], Some(term), Some(id(leader)))
    );
    assert!(received.confirmed.is_empty(), "the query belonged to an earlier incarnation");
    cluster.confirm(leader, 1, term);
    cluster.until("confirmed", |cluster| cluster.received(leader).confirmed == [1]).await;
    cluster.accepted();
}

/// Members keep requesting leases from a leader, which makes it send confirmation queries to the voters. If it
/// continued with that after it stepped down, the voters would take it for an active leader and never elect another
/// one.
#[tokio::test(start_paused = true)]
async fn leader_that_steps_down_is_replaced_despite_confirmation_queries() {
    let cluster = Cluster::started(3).await;
    cluster.decide().await;
    let (old, term) = cluster.leader().unwrap();
    let asked = AtomicU64::new(0);
    cluster
        .until("another leader", |cluster| {
            cluster.at(old).step_down();
            cluster.confirm(old, asked.fetch_add(1, Ordering::Relaxed), term);
            cluster.leader().is_some_and(|(_, newer)| newer > term)
        })
        .await;
    assert_ne!(cluster.led().await, old);
    cluster.accepted();
}

/// A driver does this: the member handles an event under its lock, and calls consensus while it does so.
#[tokio::test(start_paused = true)]
async fn event_callback_may_call_consensus() {
    let cluster = Cluster::new(1);
    let consensus: Arc<OnceLock<Consensus>> = Arc::default();
    let events: Arc<Mutex<Vec<PortEvent>>> = Arc::default();
    let callback = {
        let (consensus, events) = (consensus.clone(), events.clone());
        move |event: PortEvent| {
            let mut events = events.lock().unwrap();
            if let (PortEvent::Leading { term }, Some(consensus)) = (&event, consensus.get()) {
                consensus.confirm(1, *term);
                if events.iter().filter(|event| matches!(event, PortEvent::Leading { .. })).count() < 3 {
                    consensus.repeat_events();
                }
            }
            events.push(event);
        }
    };
    let store = Store::open_on(Disk::new(), id(1)).unwrap();
    let started =
        Consensus::start_on(store, cluster.settings(1), cluster.transport(id(1)), Arc::new(callback)).await;
    let _ = consensus.set(started.unwrap());
    let confirmed = |_: &Cluster| events.lock().unwrap().contains(&PortEvent::Confirmed { number: 1 });
    cluster.until("confirmed", confirmed).await;
    assert_eq!(
        events.lock().unwrap().iter().filter(|event| matches!(event, PortEvent::Leading { .. })).count(),
        4
    );
    consensus.get().unwrap().stop().await;
}
