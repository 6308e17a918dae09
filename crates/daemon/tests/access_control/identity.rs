//! Sessions belong to the principal that created them.

use super::native::Client;
use super::{A, B, ROOT, start_with_long_leases, with};
use crate::support::{soon, until};
use lockkeeper_session::ToClient;
use lockkeeper_session::protocol::FromDaemon;
use serde_json::{Value, json};
use std::time::Duration;

/// The public number of the client whose acquisition this is: `C17#0/3` has the number 17.
fn client_of(acquisition: &Value) -> u64 {
    let text = acquisition.as_str().expect("a text");
    text.trim_start_matches('C').split('#').next().expect("a number").parse().expect("a number")
}

/// HTTP sessions had sequential client numbers, and a native client could take the next one before it was in use. It
/// then shared the session of the next HTTP client, which was granted locks that its member did not hold for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_client_cannot_share_the_session_of_an_http_client() {
    let daemons = start_with_long_leases(1).await;
    let at = daemons.address(0);
    with(A, at, "POST", "/v1/locks/a%2Fx/acquire", Some(json!({}))).await.is(200);
    let shown = with(A, at, "GET", "/v1/locks/a%2Fx", None).await.is(200);
    let number = client_of(&shown["holders"][0]["acquisition"]);
    // The attacker occupies the numbers that follow the one that it has seen.
    let mut attackers = Vec::new();
    for ahead in 1..=8 {
        if let Ok(mut attacker) =
            Client::connect_for(daemons.native(0), number.wrapping_add(ahead), 0, A).await
        {
            attacker.keep_alive(true).await;
            attackers.push(attacker);
        }
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let first = with(B, at, "POST", "/v1/locks/b%2Fcritical/acquire", Some(json!({}))).await.is(200);
    let path = "/v1/locks/b%2Fcritical/acquire";
    let second = with(B, at, "POST", path, Some(json!({ "wait_ms": 200 }))).await;
    assert_eq!(second.status, 409, "a second holder beside {first}: {second:?}");
    let seen = with(ROOT, at, "GET", "/v1/locks/b%2Fcritical", None).await.is(200);
    assert_eq!(seen["holders"][0]["fence"], first["fence"], "the member holds it for the client");
    daemons.all.into_iter().next().expect("one").stop().await;
    for mut attacker in attackers {
        let received = attacker.rest().await;
        let granted =
            received.iter().find(|frame| matches!(frame, FromDaemon::Session(_, ToClient::Granted { .. })));
        assert!(granted.is_none(), "the attacker receives the victim's grant: {granted:?}");
    }
}

/// The public number of a native client is not enough to use its session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn displayed_number_of_a_client_does_not_open_its_session() {
    let daemons = start_with_long_leases(2).await;
    let mut victim = Client::connect(daemons.native(0), 7_777, B).await.expect("welcome");
    victim.open().await;
    victim.acquire(1, "b/x").await;
    let shown = with(ROOT, daemons.address(0), "GET", "/v1/locks/b%2Fx", None).await.is(200);
    let number = client_of(&shown["holders"][0]["acquisition"]);
    drop(victim);
    // Another principal, and another client of the same principal that does not know the identity.
    for token in [A, B] {
        for place in 0..2 {
            let Ok(mut thief) = Client::connect(daemons.native(place), number, token).await else { continue };
            thief.send_to_member(lockkeeper_session::ToMember::Release { number: 1 }).await;
            thief.send_to_member(lockkeeper_session::ToMember::Close).await;
            thief.keep_alive(false).await;
            soon("an answer", thief.next::<FromDaemon>()).await;
        }
    }
    let seen = with(ROOT, daemons.address(0), "GET", "/v1/locks/b%2Fx", None).await.is(200);
    assert_eq!(seen["holders"].as_array().map(Vec::len), Some(1), "the hold is gone: {seen}");
}

/// Two principals that choose the same identity, at one daemon or at two, are two clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn principals_with_the_same_identity_have_sessions_of_their_own() {
    let daemons = start_with_long_leases(2).await;
    let mut clients = Vec::new();
    let same_daemon = [(5, 0, A, "a/x"), (5, 0, B, "b/x")];
    let two_daemons = [(6, 0, A, "a/y"), (6, 1, B, "b/y")];
    for (identity, place, token, lock) in same_daemon.into_iter().chain(two_daemons) {
        let mut client = Client::connect(daemons.native(place), identity, token).await.expect("welcome");
        client.open().await;
        client.acquire(1, lock).await;
        clients.push(client);
    }
    let locks = with(ROOT, daemons.address(0), "GET", "/v1/locks", None).await.is(200);
    let mut shown: Vec<String> = locks
        .as_array()
        .expect("a list")
        .iter()
        .map(|lock| lock["holders"][0]["acquisition"].as_str().expect("a holder").into())
        .collect();
    assert_eq!(shown.len(), 4, "{locks}");
    shown.sort();
    shown.dedup();
    assert_eq!(shown.len(), 4, "two clients have the same acquisition: {locks}");
}

/// A client that reconnects with the same token has its session. It is also served at another daemon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_connects_again_has_its_session() {
    let daemons = start_with_long_leases(2).await;
    let at = daemons.address(0);
    let mut client = Client::connect(daemons.native(0), 5, B).await.expect("welcome");
    client.open().await;
    client.acquire(1, "b/x").await;
    drop(client);
    let mut again = Client::connect(daemons.native(0), 5, B).await.expect("welcome");
    again.send_to_member(lockkeeper_session::ToMember::Release { number: 1 }).await;
    until("the lock is released", || async {
        let seen = with(B, at, "GET", "/v1/locks/b%2Fx", None).await.is(200);
        seen["holders"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
    let mut elsewhere = Client::connect(daemons.native(1), 5, B).await.expect("welcome");
    elsewhere.open().await;
    elsewhere.acquire(1, "b/x").await;
}
