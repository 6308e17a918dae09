//! What etcd's clients meet at a daemon beside etcd's own behaviour: tokens, other ways of asking, limits, and calls that are not served.

#[path = "../../../crates/daemon/tests/support/mod.rs"]
mod support;

use etcd_client::{CampaignResponse, Client, ConnectOptions, Error, LeaderKey, LockOptions, ProclaimOptions};
use lockkeeper_daemon::Limits;
use serde_json::json;
use std::net::SocketAddr;
use support::{Daemons, Plan, TOKENS, post, session, soon, until, waiters};

const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const INVALID_ARGUMENT: i32 = 3;
const UNIMPLEMENTED: i32 = 12;
const UNAUTHENTICATED: i32 = 16;

async fn connect(address: SocketAddr) -> Client {
    Client::connect([address.to_string()], None).await.expect("a client")
}

fn by(lease: i64) -> Option<LockOptions> {
    Some(LockOptions::new().with_lease(lease))
}

#[track_caller]
fn refused<T>(answer: Result<T, Error>) -> (i32, String) {
    match answer {
        Err(Error::GRpcStatus(status)) => (status.code().into(), status.message().to_owned()),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_name_is_one_lock_for_all_ways_of_asking() {
    let daemons = Daemons::start(1).await;
    let at = daemons.address(0);
    let mut client = connect(at).await;
    let held = client.lock("a", None).await.unwrap();
    post(at, "/v1/locks/a/acquire", json!({})).await.is(409);
    post(at, "/v1/locks/a/acquire", json!({ "mode": "shared" })).await.is(409);
    client.unlock(held.key()).await.unwrap();
    let by_http = post(at, "/v1/locks/a/acquire", json!({})).await.is(200);
    assert!(by_http["fence"].as_i64() > held.header().map(|header| header.revision()));
    let waiting = tokio::spawn({
        let mut client = client.clone();
        async move { client.lock("a", None).await }
    });
    waiters(at, "a", 1).await;
    post(at, "/v1/locks/a/release", json!({ "hold": by_http["hold"] })).await.is(200);
    let next = soon("the lock", waiting).await.unwrap().unwrap();
    assert!(next.header().map(|header| header.revision()) > by_http["fence"].as_i64());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_ends_a_lease_ends_its_waits() {
    let daemons = Daemons::start(3).await;
    let (at, other) = (daemons.address(0), daemons.address(1));
    let (mut client, mut elsewhere) = (connect(at).await, connect(other).await);
    client.lock("a", None).await.unwrap();
    for ttl in [60, 2] {
        let lease = elsewhere.lease_grant(ttl, None).await.unwrap().id();
        let waiting = tokio::spawn({
            let mut client = client.clone();
            async move { client.lock("a", by(lease)).await }
        });
        if ttl == 60 {
            waiters(at, "a", 1).await;
            elsewhere.lease_revoke(lease).await.unwrap();
        }
        let told = refused(soon("the end of the wait", waiting).await.unwrap());
        assert_eq!(told, (NOT_FOUND, String::from("etcdserver: requested lease not found")));
        waiters(at, "a", 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_taken_away_ends_its_lease() {
    let daemons = Daemons::start(3).await;
    let (at, other) = (daemons.address(0), daemons.address(1));
    let mut client = connect(at).await;
    let lease = client.lease_grant(60, None).await.unwrap().id();
    for name in ["a", "b"] {
        client.lock(name, by(lease)).await.unwrap();
    }
    let (mut keeper, mut signs) = client.lease_keep_alive(lease).await.unwrap();
    post(other, "/v1/locks/a/force-release", json!({})).await.is(200);
    // The client has no other way to hear of it.
    let gone = async {
        loop {
            keeper.keep_alive().await.unwrap();
            if signs.message().await.unwrap().unwrap().ttl() == 0 {
                return;
            }
        }
    };
    soon("the end of the lease", gone).await;
    for name in ["a", "b"] {
        post(at, &format!("/v1/locks/{name}/acquire"), json!({ "wait_ms": 100_000 })).await.is(200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_takes_its_leases_with_it() {
    let mut daemons = Daemons::start(3).await;
    let mut client = connect(daemons.address(0)).await;
    let lease = connect(daemons.address(2)).await.lease_grant(600, None).await.unwrap().id();
    let own = client.lease_grant(600, None).await.unwrap().id();
    client.lock("a", by(lease)).await.unwrap();
    daemons.kill(2).await;
    let next = soon("the next holder", client.lock("a", by(own))).await.unwrap();
    assert_eq!(next.key(), format!("a/{own:x}").as_bytes());
    let (code, _) = refused(client.lock("b", by(lease)).await);
    assert_eq!(code, NOT_FOUND);
    assert!(matches!(client.lease_keep_alive(lease).await, Err(Error::LeaseKeepAliveError(_))));
    assert_eq!(client.lease_time_to_live(lease, None).await.unwrap().ttl(), -1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_number_is_granted_once_whoever_asks() {
    let daemons = Daemons::start(3).await;
    let mut clients = Vec::new();
    for place in 0..3 {
        clients.push(connect(daemons.address(place)).await);
    }
    for number in 1..=20 {
        let chosen = etcd_client::LeaseGrantOptions::new().with_id(number);
        let asking: Vec<_> = clients
            .iter()
            .map(|client| {
                let (mut client, chosen) = (client.clone(), chosen.clone());
                tokio::spawn(async move { client.lease_grant(60, Some(chosen)).await })
            })
            .collect();
        let mut granted = 0;
        for one in asking {
            match soon("an answer", one).await.unwrap() {
                Ok(_) => granted += 1,
                Err(Error::GRpcStatus(status)) => {
                    assert_eq!(status.message(), "etcdserver: lease already exists")
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(granted <= 1, "{granted} leases of one number");
        let listed = clients[0].leases().await.unwrap();
        assert_eq!(listed.leases().iter().filter(|lease| lease.id() == number).count(), granted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_served_says_what_is() {
    let daemons = Daemons::start(1).await;
    let mut client = connect(daemons.address(0)).await;
    for told in [
        refused(client.get("a", None).await),
        refused(client.put("a", "b", None).await),
        refused(client.member_list().await),
        refused(client.user_list().await),
        refused(client.status().await),
    ] {
        assert_eq!(told.0, UNIMPLEMENTED);
        assert!(told.1.contains("v3lockpb.Lock (Lock, Unlock)"), "{}", told.1);
    }
    for (name, part) in [("", "bad lock name"), ("a\n", "control character"), (&"x".repeat(513), "513 bytes")]
    {
        let (code, message) = refused(client.lock(name, None).await);
        assert!(code == INVALID_ARGUMENT && message.contains(part), "{message}");
    }
    let (code, _) = refused(client.lock(vec![0xff], None).await);
    assert_eq!(code, INVALID_ARGUMENT);
    assert_eq!(client.leases().await.unwrap().leases().len(), 0, "what was refused left nothing behind");
    let (code, message) = refused(client.lock("x".repeat(70_000), None).await);
    assert!(code == RESOURCE_EXHAUSTED && message.contains("at most 65536 bytes"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_named() {
    let limits = Limits { sessions: 2, locks_per_session: 1, ..Limits::default() };
    let daemons = Daemons::start_with(1, Plan { limits, ..Plan::default() }).await;
    let mut client = connect(daemons.address(0)).await;
    let lease = client.lease_grant(60, None).await.unwrap().id();
    client.lock("a", by(lease)).await.unwrap();
    let (code, message) = refused(client.lock("b", by(lease)).await);
    assert!(code == RESOURCE_EXHAUSTED && message.contains("at most 1"), "{message}");
    client.lease_grant(60, None).await.unwrap();
    let (code, message) = refused(client.lease_grant(60, None).await);
    assert!(code == RESOURCE_EXHAUSTED && message.contains("at most 2"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_is_a_token() {
    let daemons = Daemons::start_with(3, Plan { tokens: Some(TOKENS), ..Plan::default() }).await;
    let at = daemons.address(0);
    let as_user = async |name: &str, password: &str| {
        let options = ConnectOptions::new().with_user(name, password);
        Client::connect([at.to_string()], Some(options)).await
    };
    assert_eq!(refused(connect(at).await.lease_grant(60, None).await).0, UNAUTHENTICATED);
    for (name, password) in [("ci", "wrong"), ("root", "secret"), ("", "")] {
        let (_, message) = refused(as_user(name, password).await);
        assert!(message.starts_with("etcdserver: authentication failed"), "{message}");
    }
    let mut ci = as_user("ci", "secret").await.unwrap();
    let mut root = as_user("root", "test").await.unwrap();
    let lease = ci.lease_grant(60, None).await.unwrap().id();
    ci.lock("ci/a", by(lease)).await.unwrap();
    let told = refused(ci.lock("prod/a", by(lease)).await);
    assert_eq!(told.0, PERMISSION_DENIED);
    assert!(told.1.ends_with("the token `ci` does not allow `acquire` on `prod/a`"), "{}", told.1);
    assert_eq!(refused(ci.leader("prod/a").await).0, PERMISSION_DENIED);
    // Leases are their token's own, and those of whoever may do everything.
    let others = root.lease_grant(60, None).await.unwrap().id();
    assert_eq!(refused(ci.lease_revoke(others).await).0, PERMISSION_DENIED);
    assert_eq!(refused(ci.lock("ci/b", by(others)).await).0, PERMISSION_DENIED);
    let seen =
        |leases: &[etcd_client::LeaseStatus]| leases.iter().map(|lease| lease.id()).collect::<Vec<_>>();
    assert_eq!(seen(ci.leases().await.unwrap().leases()), [lease]);
    assert_eq!(root.leases().await.unwrap().leases().len(), 2);
    root.lease_revoke(lease).await.unwrap();
    until("refusals in the log", || async {
        daemons.audit().iter().filter(|line| line["what"] == "refuse" && line["by"] == "etcd").count() >= 6
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_leader_changes_nothing() {
    let daemons = Daemons::start(1).await;
    let mut client = connect(daemons.address(0)).await;
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let key = |won: &CampaignResponse| -> LeaderKey { won.leader().unwrap().clone() };
    let before = key(&client.campaign("e", "one", lease).await.unwrap());
    client.unlock(before.key()).await.unwrap();
    // The same lease leads again, under the same key, with another revision.
    let now = key(&client.campaign("e", "two", lease).await.unwrap());
    assert!(now.key() == before.key() && now.rev() > before.rev());
    let stale = Some(ProclaimOptions::new().with_leader(before.clone()));
    assert_eq!(refused(client.proclaim("old", stale).await).1, "election: not leader");
    let stale = etcd_client::ResignOptions::new().with_leader(before);
    client.resign(Some(stale)).await.unwrap();
    assert_eq!(client.leader("e").await.unwrap().kv().unwrap().value(), b"two");
    assert_eq!(refused(client.proclaim("x", None).await).1, "\"leader\" field must be provided");
    // A session of HTTP is a lease too.
    let id = session(daemons.address(0), 60_000).await;
    let number = i64::from_str_radix(&id, 16).unwrap();
    client.lock("by session", by(number)).await.unwrap();
    post(daemons.address(0), "/v1/locks/by%20session/acquire", json!({})).await.is(409);
}
