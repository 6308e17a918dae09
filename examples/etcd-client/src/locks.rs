//! Locks.

use crate::{Flow, TwoClients, refused, soon, waits};
use etcd_client::{Client, LockOptions, LockResponse};
use tokio::task::JoinHandle;

async fn lease(client: &mut Client, ttl_s: i64) -> Flow<i64> {
    Ok(client.lease_grant(ttl_s, None).await?.id())
}

fn lock(client: &Client, name: &str, lease: i64) -> JoinHandle<Flow<LockResponse>> {
    let (mut client, name) = (client.clone(), name.to_owned());
    tokio::spawn(async move { client.lock(name, Some(LockOptions::new().with_lease(lease))).await })
}

fn revision(answer: &LockResponse) -> i64 {
    answer.header().expect("a header").revision()
}

pub async fn run(both: TwoClients) -> Flow {
    without_a_lease(both.clone()).await?;
    locks_are_granted_one_after_the_other(both.clone()).await?;
    waiter_that_gives_up_leaves_the_queue(both.clone()).await?;
    the_end_of_a_lease_frees_its_locks(both.clone()).await?;
    unknown_keys_and_leases(both).await
}

async fn without_a_lease(both: TwoClients) -> Flow {
    let TwoClients { mut one, mut other, .. } = both.clone();
    let name = both.name("alone");
    let held = one.lock(name.clone(), None).await?;
    let key = String::from_utf8(held.key().to_vec()).expect("text");
    assert!(key.starts_with(&format!("{name}/")), "{key}");
    // A client that knows the key can unlock it.
    other.unlock(key).await?;
    let again = soon("lock", lock(&one, &name, 0)).await?;
    assert!(revision(&again) > revision(&held));
    one.unlock(again.key()).await?;
    Ok(())
}

async fn locks_are_granted_one_after_the_other(both: TwoClients) -> Flow {
    let TwoClients { mut one, mut other, .. } = both.clone();
    let name = both.name("orders/42");
    let (first, second) = (lease(&mut one, 60).await?, lease(&mut other, 60).await?);
    // A lease of the first client, used by the second one.
    let held = soon("lock", lock(&other, &name, first)).await?;
    assert_eq!(held.key(), format!("{name}/{first:x}").as_bytes());
    let again = soon("lock again", lock(&one, &name, first)).await?;
    assert_eq!((again.key(), revision(&again)), (held.key(), revision(&held)));
    let waiting = lock(&one, &name, second);
    assert!(waits(&waiting).await, "two hold it");
    one.unlock(held.key()).await?;
    let next = soon("the next", waiting).await?;
    assert!(revision(&next) > revision(&held), "{} after {}", revision(&next), revision(&held));
    other.unlock(next.key()).await?;
    one.lease_revoke(first).await?;
    one.lease_revoke(second).await?;
    Ok(())
}

async fn waiter_that_gives_up_leaves_the_queue(both: TwoClients) -> Flow {
    let TwoClients { mut one, mut other, .. } = both.clone();
    let name = both.name("given-up");
    let (first, second, third) =
        (lease(&mut one, 60).await?, lease(&mut one, 60).await?, lease(&mut other, 60).await?);
    let held = soon("lock", lock(&one, &name, first)).await?;
    let gives_up = lock(&other, &name, second);
    assert!(waits(&gives_up).await, "two hold it");
    gives_up.abort();
    let waiting = lock(&one, &name, third);
    assert!(waits(&waiting).await, "two hold it");
    one.unlock(held.key()).await?;
    let next = soon("the one who did not give up", waiting).await?;
    other.unlock(next.key()).await?;
    Ok(())
}

async fn the_end_of_a_lease_frees_its_locks(both: TwoClients) -> Flow {
    let TwoClients { mut one, mut other, .. } = both.clone();
    let name = both.name("ends");
    let (first, second, third) =
        (lease(&mut one, 60).await?, lease(&mut other, 3).await?, lease(&mut other, 60).await?);
    soon("lock", lock(&one, &name, first)).await?;
    let waiting = lock(&one, &name, second);
    assert!(waits(&waiting).await, "two hold it");
    other.lease_revoke(first).await?;
    soon("after a revoked lease", waiting).await?;
    // No keep-alive is sent for the second lease.
    let last = soon("after an expired lease", lock(&other, &name, third)).await?;
    assert_eq!(one.lease_time_to_live(second, None).await?.ttl(), -1);
    one.unlock(last.key()).await?;
    Ok(())
}

async fn unknown_keys_and_leases(both: TwoClients) -> Flow {
    let TwoClients { mut one, .. } = both.clone();
    one.unlock(both.name("unused/1f")).await?;
    one.unlock("nothing").await?;
    let gone = lease(&mut one, 60).await?;
    one.lease_revoke(gone).await?;
    let (_, message) = refused(soon("lock", lock(&one, &both.name("gone"), gone)).await);
    assert_eq!(message, "etcdserver: requested lease not found");
    Ok(())
}
