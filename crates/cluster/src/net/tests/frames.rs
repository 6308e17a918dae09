//! Frames and queries between correct members.

use super::*;
use std::sync::atomic::Ordering::SeqCst;

#[tokio::test]
async fn frames_arrive_in_order_both_ways() {
    let (a, b) = pair(|_| ()).await;
    for number in 0..1000 {
        a.send(B, &format!("a{number}"));
        b.send(A, &format!("b{number}"));
    }
    until("all frames", || a.seen.frames().len() == 1000 && b.seen.frames().len() == 1000).await;
    assert_eq!(b.seen.texts(), (0..1000).map(|number| format!("a{number}")).collect::<Vec<_>>());
    assert_eq!(a.seen.texts(), (0..1000).map(|number| format!("b{number}")).collect::<Vec<_>>());
    assert!(b.seen.frames().iter().all(|(from, _)| *from == A));
    assert_eq!(a.net.counters().frames_out.get(), 1000);
    assert_eq!(b.net.counters().frames_in.get(), 1000);
    assert_eq!(a.seen.connected.lock().unwrap()[..], [B]);
}

#[tokio::test]
async fn frames_sent_before_the_connection_wait_for_it() {
    let (a, b) = (start(settings(A)).await, start(settings(B)).await);
    a.send(B, "to an unknown member");
    assert_eq!(a.net.counters().dropped.get(), 1);
    a.dial(B, b.address());
    a.send(B, "first");
    a.send(B, "second");
    until("both", || b.seen.texts() == ["first", "second"]).await;
}

#[tokio::test]
async fn frames_that_wait_for_a_connection_are_bounded() {
    let mut settings = settings(A);
    settings.limits.waiting_bytes = 10_000;
    let a = start(settings).await;
    a.dial(B, "127.0.0.1:1");
    for _ in 0..100 {
        a.net.send(B, |out| out.extend([7; 1000]));
    }
    let (sent, dropped) = (a.net.counters().frames_out.get(), a.net.counters().dropped.get());
    assert_eq!((sent, dropped), (9, 91));
}

#[tokio::test]
async fn pending_frames_leave_in_one_write() {
    let (a, b) = pair(|settings| settings.limits.ping_every = TIMEOUT / 2).await;
    let before = (a.net.counters().writes.get(), b.seen.batches.load(SeqCst));
    for number in 0..500 {
        a.net.send(B, |out| out.extend(number.to_string().as_bytes()));
    }
    a.net.flush();
    until("all frames", || b.seen.frames().len() == 500).await;
    assert_eq!(a.net.counters().writes.get() - before.0, 1);
    assert!(
        b.seen.batches.load(SeqCst) - before.1 < 500,
        "frames that arrive together are handled in one batch"
    );
}

#[tokio::test]
async fn queries_are_answered_over_the_same_connection() {
    let (a, b) = pair(|_| ()).await;
    let connects = a.net.counters().connects.get();
    let (one, two, back) = tokio::join!(
        a.net.query(B, "nowhere", b"one".to_vec(), TIMEOUT),
        a.net.query(B, "nowhere", b"two".to_vec(), TIMEOUT),
        b.net.query(A, "nowhere", b"back".to_vec(), TIMEOUT),
    );
    assert_eq!(one.unwrap(), b"M1 asks one");
    assert_eq!(two.unwrap(), b"M1 asks two");
    assert_eq!(back.unwrap(), b"M2 asks back");
    assert_eq!(a.net.counters().connects.get(), connects);
}

#[tokio::test]
async fn a_query_to_a_member_without_an_address_goes_to_the_given_one() {
    let (a, b) = (start(settings(A)).await, start(settings(B)).await);
    let answer = a.net.query(B, &b.address(), b"who".to_vec(), TIMEOUT).await;
    assert_eq!(answer.unwrap(), b"M1 asks who");
}

/// A joining member queries the leader at the address that another member named. If that address was old, the next
/// query names another one.
#[tokio::test]
async fn query_to_a_member_that_is_not_listed_goes_to_the_newest_address() {
    let (a, b) = (start(settings(A)).await, start(settings(B)).await);
    a.net.query(B, "127.0.0.1:1", b"who".to_vec(), TIMEOUT).await.unwrap_err();
    let answered = async {
        loop {
            // The first attempts may still report the failure at the old address.
            match a.net.query(B, &b.address(), b"who".to_vec(), TIMEOUT).await {
                Ok(answer) => return answer,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    };
    let answer = tokio::time::timeout(TIMEOUT, answered).await.expect("the query arrives at the new address");
    assert_eq!(answer, b"M1 asks who");
    // The membership takes precedence over the address of a query.
    a.net.set_addresses(BTreeMap::from([(B, b.address())]));
    assert_eq!(a.net.query(B, "127.0.0.1:1", b"two".to_vec(), TIMEOUT).await.unwrap(), b"M1 asks two");
}

#[tokio::test]
async fn query_of_a_member_to_itself_is_rejected() {
    let a = start(settings(A)).await;
    let refused = a.net.query(A, &a.address(), b"why".to_vec(), TIMEOUT).await.unwrap_err();
    assert!(refused.to_string().contains("this member itself"), "{refused}");
    assert!(a.net.shared.peer(A).is_none(), "no task keeps dialling it");
}

#[tokio::test]
async fn query_can_be_sent_to_an_address_without_a_member_id() {
    let (a, b) = (start(settings(A)).await, start(settings(B)).await);
    let answer = a.net.query_address(&b.address(), b"hello".to_vec(), TIMEOUT).await;
    assert_eq!(answer.unwrap(), b"M1 asks hello");
}

#[tokio::test]
async fn unanswered_query_times_out() {
    let (a, b) = pair(|_| ()).await;
    let late = a.net.query(B, "", b"never".to_vec(), Duration::from_millis(10)).await.unwrap_err();
    assert!(late.0.contains("no answer from M2"), "{late}");
    let query = a.net.query(B, "", b"never".to_vec(), TIMEOUT);
    let stopped = async {
        until("the query arrived", || b.net.counters().bytes_in.get() > 0).await;
        b.net.stop().await;
    };
    let (broken, ()) = tokio::join!(query, stopped);
    broken.unwrap_err();
    let unreachable = a.net.query(MemberId(9), "127.0.0.1:1", b"who".to_vec(), TIMEOUT).await.unwrap_err();
    assert!(unreachable.0.contains("cannot reach M9"), "{unreachable}");
}

#[tokio::test]
async fn queries_in_progress_are_limited() {
    let (a, b) = pair(|settings| settings.limits.queries = 2).await;
    let query = |text: &str| a.net.query(B, "", text.into(), TIMEOUT);
    tokio::select! {
        _ = query("never") => panic!("no answer was to come"),
        _ = query("never") => panic!("no answer was to come"),
        () = until("both are under way", || b.seen.queries.load(SeqCst) == 2) => {
            // The two queries above stay in progress until this one has been declined.
            let declined = query("more").await.unwrap_err();
            assert!(declined.0.contains("too many queries"), "{declined}");
        }
    }
    assert!(b.net.counters().refused(crate::net::counters::Refusal::Query) > 0);
    a.send(B, "still here");
    until("the connection goes on", || b.seen.texts() == ["still here"]).await;
}

#[tokio::test]
async fn restarted_member_is_reconnected_and_no_frame_is_sent_twice() {
    let (a, b) = pair(|_| ()).await;
    let address = b.listens();
    a.send(B, "before");
    until("the first frame", || b.seen.texts() == ["before"]).await;
    b.net.stop().await;
    drop(b);
    until("it is noticed", || !a.net.is_connected(B)).await;
    let b = start(Settings { listen: Some(address), ..settings(B) }).await;
    a.connected_to(B).await;
    a.send(B, "after");
    until("the second frame", || b.seen.texts().contains(&"after".to_owned())).await;
    assert_eq!(b.seen.texts(), ["after"]);
    assert_eq!(a.seen.connected.lock().unwrap()[..], [B, B]);
}

/// The delay between attempts is longer than the test.
#[tokio::test]
async fn new_address_and_a_peer_that_connects_are_dialled_at_once() {
    let mut slow = settings(A);
    slow.limits.backoff_least = TIMEOUT * 10;
    slow.limits.backoff_most = TIMEOUT * 10;
    let (a, b) = (start(slow.clone()).await, start(settings(B)).await);
    a.dial(B, "127.0.0.1:1");
    until("the attempt failed", || a.net.counters().connects_failed.get() == 1).await;
    a.dial(B, b.address());
    a.connected_to(B).await;

    let c = start(Settings { me: MemberId(3), ..slow }).await;
    // No process listens there yet.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    c.dial(MemberId(4), address);
    until("the attempt failed", || c.net.counters().connects_failed.get() == 1).await;
    let d = start(Settings { listen: Some(address), ..settings(MemberId(4)) }).await;
    d.dial(MemberId(3), c.address());
    c.connected_to(MemberId(4)).await;
}

#[tokio::test]
async fn member_without_an_address_is_disconnected() {
    let (a, b) = pair(|_| ()).await;
    a.net.set_addresses(BTreeMap::new());
    until("gone", || !a.net.is_connected(B)).await;
    a.send(B, "no address");
    assert_eq!(a.net.counters().dropped.get(), 1);
    assert!(b.seen.frames().is_empty());
}

#[tokio::test]
async fn last_frames_are_written_before_the_network_stops() {
    let (a, b) = pair(|_| ()).await;
    a.send(B, "goodbye");
    a.net.stop().await;
    until("the last frame", || b.seen.texts() == ["goodbye"]).await;
}
