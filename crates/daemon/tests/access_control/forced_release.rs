//! A forced release only affects the lock that was authorised.

use super::native::Client;
use super::{A, B, ROOT, start_with_long_leases, with};
use crate::support::until;
use serde_json::json;

/// The victim holds `b/x` at one member, the attacker holds `a/x` at another one by an acquisition with the same name
/// as the victim's. The attacker's forced release of `a/x` went to the first member that has such an acquisition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_release_of_one_lock_leaves_a_hold_of_another_lock() {
    let daemons = start_with_long_leases(2).await;
    let at = daemons.address(1);
    let mut victim = Client::connect(daemons.native(0), 5, B).await.expect("welcome");
    victim.open().await;
    victim.acquire(1, "b/x").await;
    let mut attacker = Client::connect(daemons.native(1), 5, A).await.expect("welcome");
    attacker.open().await;
    attacker.acquire(1, "a/x").await;
    let path = "/v1/locks/a%2Fx/force-release";
    with(A, at, "POST", path, Some(json!({}))).await.is(200);
    drop(attacker);
    let holders = async |lock: &str| {
        let path = format!("/v1/locks/{}", lock.replace('/', "%2F"));
        with(ROOT, at, "GET", &path, None).await.is(200)["holders"].as_array().map_or(0, Vec::len)
    };
    // A member that has revoked the hold reports that in its reply to the next keep-alive.
    victim.keep_alive(false).await;
    let alive = loop {
        match victim.next().await {
            Some(lockkeeper_session::protocol::FromDaemon::Session(
                _,
                lockkeeper_session::ToClient::Alive { revoked, .. },
            )) => {
                break revoked;
            }
            Some(_) => {}
            None => panic!("the daemon closed the connection"),
        }
    };
    assert!(alive.is_empty(), "b/x was revoked by a token that may do nothing to it");
    assert_eq!(holders("b/x").await, 1);
    until("a/x is released", || async { holders("a/x").await == 0 }).await;
}
