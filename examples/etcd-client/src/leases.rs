//! Leases.

use crate::{Flow, TwoClients, refused};
use etcd_client::{Error, LeaseGrantOptions, LeaseTimeToLiveOptions, LockOptions};

const NOT_FOUND: i32 = 5;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;

pub async fn run(both: TwoClients) -> Flow {
    lease_is_granted_renewed_and_revoked(both.clone()).await?;
    lease_with_a_chosen_id(both.clone()).await?;
    lease_lists_its_keys(both).await
}

async fn lease_is_granted_renewed_and_revoked(both: TwoClients) -> Flow {
    let TwoClients { mut one, mut other, .. } = both;
    let granted = one.lease_grant(60, None).await?;
    let id = granted.id();
    assert!(id > 0 && granted.ttl() == 60);
    let (mut keeper, mut signs) = other.lease_keep_alive(id).await?;
    for _ in 0..2 {
        keeper.keep_alive().await?;
        let alive = signs.message().await?.expect("an answer");
        assert_eq!((alive.id(), alive.ttl()), (id, 60));
    }
    let life = other.lease_time_to_live(id, None).await?;
    assert!(life.granted_ttl() == 60 && (1..=60).contains(&life.ttl()), "{life:?}");
    let listed = |leases: &[etcd_client::LeaseStatus]| leases.iter().any(|lease| lease.id() == id);
    assert!(listed(other.leases().await?.leases()));
    other.lease_revoke(id).await?;
    assert!(!listed(one.leases().await?.leases()));
    assert_eq!(one.lease_time_to_live(id, None).await?.ttl(), -1);
    let not_found = (NOT_FOUND, String::from("etcdserver: requested lease not found"));
    assert_eq!(refused(one.lease_revoke(id).await), not_found);
    assert!(matches!(one.lease_keep_alive(id).await, Err(Error::LeaseKeepAliveError(_))));
    let (code, message) = refused(one.lease_grant(10_000_000_000, None).await);
    assert_eq!(code, OUT_OF_RANGE);
    assert!(message.starts_with("etcdserver: too large lease TTL"), "{message}");
    Ok(())
}

async fn lease_with_a_chosen_id(both: TwoClients) -> Flow {
    let TwoClients { mut one, mut other, run } = both;
    let own = run ^ 0x0123_4567;
    let chosen = || Some(LeaseGrantOptions::new().with_id(own));
    assert_eq!(one.lease_grant(60, chosen()).await?.id(), own);
    let exists = (FAILED_PRECONDITION, String::from("etcdserver: lease already exists"));
    assert_eq!(refused(one.lease_grant(60, chosen()).await), exists);
    assert_eq!(refused(other.lease_grant(60, chosen()).await), exists);
    assert_eq!(other.lease_time_to_live(own, None).await?.granted_ttl(), 60);
    other.lease_revoke(own).await?;
    assert_eq!(other.lease_grant(60, chosen()).await?.id(), own);
    one.lease_revoke(own).await?;
    Ok(())
}

async fn lease_lists_its_keys(both: TwoClients) -> Flow {
    let TwoClients { mut one, mut other, .. } = both.clone();
    let id = one.lease_grant(60, None).await?.id();
    let names = [both.name("held/a"), both.name("held/b")];
    for name in &names {
        other.lock(name.clone(), Some(LockOptions::new().with_lease(id))).await?;
    }
    let keys = Some(LeaseTimeToLiveOptions::new().with_keys());
    let life = other.lease_time_to_live(id, keys).await?;
    let mut keys: Vec<String> = life.keys().iter().map(|key| String::from_utf8_lossy(key).into()).collect();
    keys.sort();
    assert_eq!(keys, names.map(|name| format!("{name}/{id:x}")));
    one.lease_revoke(id).await?;
    Ok(())
}
