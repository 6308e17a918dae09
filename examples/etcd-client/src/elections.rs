//! Elections.

use crate::{Flow, LONG, TwoClients, refused, soon, waits};
use etcd_client::{CampaignResponse, Client, LeaderKey, ObserveStream, ProclaimOptions, ResignOptions};
use tokio::task::JoinHandle;

fn campaign(client: &Client, name: &str, value: &str, lease: i64) -> JoinHandle<Flow<CampaignResponse>> {
    let (mut client, name, value) = (client.clone(), name.to_owned(), value.to_owned());
    tokio::spawn(async move { client.campaign(name, value, lease).await })
}

fn key(answer: &CampaignResponse) -> LeaderKey {
    answer.leader().expect("a leader").clone()
}

fn by(leader: &LeaderKey) -> Option<ProclaimOptions> {
    Some(ProclaimOptions::new().with_leader(leader.clone()))
}

fn of(leader: &LeaderKey) -> Option<ResignOptions> {
    Some(ResignOptions::new().with_leader(leader.clone()))
}

/// Waits until the stream shows this value of the leader; returns the lease. Earlier values may be skipped.
async fn observes(stream: &mut ObserveStream, value: &str) -> Flow<i64> {
    let observing = async {
        loop {
            let leader = stream.message().await?.expect("the stream continues");
            let kv = leader.kv().expect("a leader");
            if kv.value() == value.as_bytes() {
                return Ok(kv.lease());
            }
        }
    };
    match tokio::time::timeout(LONG, observing).await {
        Ok(lease) => lease,
        Err(_) => panic!("no leader has the value {value}"),
    }
}

pub async fn run(both: TwoClients) -> Flow {
    let TwoClients { mut one, mut other, .. } = both.clone();
    let name = both.name("election");
    let (first, second) = (one.lease_grant(60, None).await?.id(), other.lease_grant(60, None).await?.id());
    assert_eq!(refused(one.leader(name.clone()).await).1, "election: no leader");

    let won = soon("campaign", campaign(&one, &name, "here", first)).await?;
    let leader = key(&won);
    assert_eq!((leader.name(), leader.lease()), (name.as_bytes(), first));
    assert_eq!(leader.key(), format!("{name}/{first:x}").as_bytes());
    assert!(won.header().expect("a header").revision() >= leader.rev());
    let response = other.leader(name.clone()).await?;
    let kv = response.kv().expect("a leader");
    assert_eq!((kv.key(), kv.value(), kv.lease()), (leader.key(), &b"here"[..], first));
    assert_eq!((kv.create_revision(), kv.version()), (leader.rev(), 1));

    // An observer receives the values of the leader, and then the next leader.
    let mut watching = other.observe(name.clone()).await?;
    assert_eq!(observes(&mut watching, "here").await?, first);
    one.proclaim("there", by(&leader)).await?;
    assert_eq!(observes(&mut watching, "there").await?, first);
    let response = other.leader(name.clone()).await?;
    let kv = response.kv().expect("a leader");
    assert!(kv.version() == 2 && kv.mod_revision() > kv.create_revision(), "{kv:?}");

    let waiting = campaign(&other, &name, "my turn", second);
    assert!(waits(&waiting).await, "two lead");
    one.resign(of(&leader)).await?;
    let next = key(&soon("the next leader", waiting).await?);
    assert!(next.rev() > leader.rev());
    assert_eq!(observes(&mut watching, "my turn").await?, second);

    // The first one does not lead any more, and can change nothing.
    assert_eq!(refused(one.proclaim("still me", by(&leader)).await).1, "election: not leader");
    one.resign(of(&leader)).await?;
    assert_eq!(one.leader(name.clone()).await?.kv().expect("a leader").value(), b"my turn");

    // A second campaign with the same lease changes the value.
    let again = soon("campaign again", campaign(&one, &name, "again", second)).await?;
    assert_eq!(key(&again).rev(), next.rev());
    assert_eq!(observes(&mut watching, "again").await?, second);

    // The end of its lease ends a leadership.
    let waiting = campaign(&one, &name, "last", first);
    assert!(waits(&waiting).await, "two lead");
    other.lease_revoke(second).await?;
    let last = key(&soon("the last leader", waiting).await?);
    assert_eq!(observes(&mut watching, "last").await?, first);
    other.resign(of(&last)).await?;
    assert_eq!(refused(other.leader(name.clone()).await).1, "election: no leader");

    // Locks and elections of one name are one.
    let held = soon(
        "lock",
        tokio::spawn({
            let (mut one, name) = (one.clone(), name.clone());
            async move { one.lock(name, None).await }
        }),
    )
    .await?;
    let waiting = campaign(&other, &name, "after the lock", first);
    assert!(waits(&waiting).await, "a lock and a leader");
    one.unlock(held.key()).await?;
    soon("after the lock", waiting).await?;
    one.lease_revoke(first).await?;
    Ok(())
}
