//! Founding, growing and shrinking clusters, and replacing lost disks.

use super::super::wire::{self, QueryMessage, Rpc, StoreStamp};
use super::super::*;
use super::harness::*;

/// The stores in a member's Raft membership, with their members.
fn stores(consensus: &Consensus) -> BTreeMap<StoreName, MemberId> {
    let metrics = consensus.inner.raft.metrics();
    let metrics = metrics.borrow();
    metrics.membership_config.nodes().map(|(&store, node)| (store, node.member)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_cluster_waits_for_all_of_its_first_members() {
    let mut cluster = Cluster::new(3);
    cluster.start(1).await;
    cluster.start(2).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.leader(), None);
    let obstacle = cluster.at(1).status().obstacle.unwrap();
    assert!(obstacle.contains("waits for M3"), "{obstacle}");
    assert!(cluster.at(2).status().obstacle.unwrap().contains("waits for M1"));
    cluster.start(3).await;
    cluster.led().await;
    cluster.voters(&[1, 2, 3]).await;
    assert_eq!(cluster.at(1).status().obstacle, None);
    // Later starts need only a majority.
    for number in 1..=3 {
        cluster.kill(number).await;
    }
    cluster.start(2).await;
    cluster.start(3).await;
    cluster.decide().await;
}

#[tokio::test(start_paused = true)]
async fn different_lists_of_first_members_are_refused() {
    let mut cluster = Cluster::new(2);
    cluster.start(1).await;
    cluster.first.insert(id(3), address(id(3)));
    cluster.start(2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let obstacle = cluster.at(1).status().obstacle.unwrap();
    assert!(obstacle.contains("M2 was given other first members"), "{obstacle}");
}

#[tokio::test(start_paused = true)]
async fn voters_grow_from_one_to_three_to_five_and_shrink_again() {
    let mut cluster = Cluster::started(1).await;
    cluster.decide().await;
    cluster.start(2).await;
    cluster.until("M2 is in", |cluster| cluster.at(2).status().members.len() == 2).await;
    cluster.voters(&[1]).await;
    cluster.start(3).await;
    cluster.voters(&[1, 2, 3]).await;
    cluster.start(4).await;
    cluster.start(5).await;
    cluster.voters(&[1, 2, 3, 4, 5]).await;
    cluster.start(6).await;
    cluster.decide().await;
    cluster.voters(&[1, 2, 3, 4, 5]).await;
    let all_members: BTreeMap<MemberId, String> =
        (1..=6).map(|number| (id(number), address(id(number)))).collect();
    assert_eq!(*cluster.at(6).addresses().borrow(), all_members);
    // Shrink: dead members are removed, through any member.
    let leader = cluster.led().await;
    let dead: Vec<u32> = (1..=6).filter(|&number| number != leader).take(4).collect();
    let message = (1..=6).find(|number| *number != leader && !dead.contains(number)).unwrap();
    for &number in &dead {
        cluster.kill(number).await;
        let leader = cluster.led().await;
        cluster.at(if number == dead[0] { leader } else { message }).remove(id(number)).await.unwrap();
    }
    let left = cluster.led().await;
    cluster.until("one voter", |cluster| cluster.at(left).status().voters.len() == 1).await;
    assert_eq!(cluster.at(left).status().members, [id(leader), id(message)].into());
    cluster.decide().await;
    cluster.accepted();
}

#[tokio::test(start_paused = true)]
async fn only_voter_that_leaves_transfers_its_vote() {
    let mut cluster = Cluster::started(1).await;
    cluster.start(2).await;
    cluster.until("M2 is in", |cluster| cluster.at(2).status().members.len() == 2).await;
    cluster.voters(&[1]).await;
    let leads = |cluster: &Cluster, number| cluster.leader().is_some_and(|(leader, _)| leader == number);
    cluster
        .until("M2 leads", |cluster| {
            if leads(cluster, 1) {
                cluster.at(1).step_down();
            }
            leads(cluster, 2)
        })
        .await;
    cluster.kill(1).await;
    cluster.decide().await;
    // When it returns it is a learner, and the present voter keeps the vote.
    cluster.start(1).await;
    cluster.voters(&[2]).await;
    cluster.decide().await;
    cluster.accepted();
}

#[tokio::test(start_paused = true)]
async fn a_leader_is_not_removed_and_a_removed_member_has_no_vote() {
    let mut cluster = Cluster::started(3).await;
    let leader = cluster.led().await;
    let refused = cluster.at(leader).remove(id(leader)).await.unwrap_err();
    assert!(refused.to_string().contains("stop it first"), "{refused}");
    let dead = if leader == 3 { 2 } else { 3 };
    cluster.kill(dead).await;
    cluster.at(leader).remove(id(dead)).await.unwrap();
    let status = cluster.at(leader).status();
    assert!(!status.voters.contains(&id(dead)) && !status.members.contains(&id(dead)), "{status:?}");
    // When it returns, it has to join.
    cluster.start(dead).await;
    cluster.voters(&[1, 2, 3]).await;
    cluster.decide().await;
}

#[tokio::test(start_paused = true)]
async fn restart_of_all_members_keeps_views_and_membership() {
    let mut cluster = Cluster::started(3).await;
    let mut last = cluster.decide().await;
    for _ in 0..3 {
        for number in 1..=3 {
            cluster.kill(number).await;
        }
        for number in 1..=3 {
            cluster.start(number).await;
        }
        cluster.all_know(last.epoch).await;
        assert!((1..=3).all(|number| cluster.received(number).views.contains(&last)));
        last = cluster.decide().await;
    }
    assert_eq!(last.epoch, 4);
    cluster.accepted();
}

#[tokio::test(start_paused = true)]
async fn member_with_a_lost_disk_joins_as_a_new_store_and_never_votes_under_the_old_name() {
    for lost in [1, 2, 3] {
        let mut cluster = Cluster::started(3).await;
        let view = cluster.decide().await;
        cluster.voters(&[1, 2, 3]).await;
        let old = cluster.at(lost).inner.store.name();
        cluster.kill(lost).await;
        cluster.lose_disk(lost);
        cluster.start(lost).await;
        let new = cluster.at(lost).inner.store.name();
        assert_ne!(new, old);
        // A request for the old store's vote is rejected, since that store no longer exists.
        let cluster_name =
            cluster.at(if lost == 1 { 2 } else { 1 }).inner.network.cluster.load(Ordering::SeqCst);
        let vote = openraft::raft::VoteRequest { vote: types::Vote::new(99, 5), last_log_id: None };
        let query = ConsensusQuery::Raft { cluster: cluster_name, to: old, rpc: Rpc::Vote(vote) };
        let stamp = StoreStamp { store: 5, start: 1, opened: 1, commits: 1 };
        let message = wire::write(&QueryMessage { member: id(9), stamp, query }).unwrap();
        for _ in 0..100 {
            let reply = cluster.at(lost).handle_query(id(9), &message).await;
            assert!(matches!(refusal(&reply), ConsensusReply::Refused(_)));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let replaced = |cluster: &Cluster| {
            cluster.running.values().all(|consensus| {
                let stores = stores(consensus);
                stores.contains_key(&new)
                    && !stores.contains_key(&old)
                    && consensus.status().voters.len() == 3
            })
        };
        cluster.until("the new store has the old one's place", replaced).await;
        cluster.all_know(view.epoch).await;
        assert_eq!(cluster.decide().await.epoch, view.epoch + 1);
        cluster.accepted();
    }
}

#[tokio::test(start_paused = true)]
async fn lost_disk_founds_no_second_cluster_without_a_majority() {
    let mut cluster = Cluster::started(3).await;
    cluster.decide().await;
    for number in 1..=3 {
        cluster.kill(number).await;
    }
    cluster.lose_disk(1);
    cluster.start(1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(cluster.at(1).status().obstacle.unwrap().contains("waits for"));
    cluster.start(2).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.leader(), None, "one store of three is no majority");
    cluster.start(3).await;
    cluster.voters(&[1, 2, 3]).await;
    assert_eq!(cluster.decide().await.epoch, 2);
    cluster.accepted();
}

#[tokio::test(start_paused = true)]
async fn two_processes_with_one_member_id_do_not_replace_each_other() {
    let cluster = Cluster::started(3).await;
    cluster.led().await;
    let other = tempfile::tempdir().unwrap();
    let mut settings = cluster.settings(3);
    settings.directory = other.path().to_path_buf();
    settings.address = "another place".to_string();
    settings.first_members = BTreeMap::new();
    settings.join = cluster.first.values().cloned().collect();
    let twin = Consensus::start(settings, cluster.transport(id(3)), Arc::new(|_| {})).await.unwrap();
    let twin_reports_it =
        || twin.status().obstacle.is_some_and(|obstacle| obstacle.contains("is here already"));
    cluster.until("the twin reports the conflict", |_| twin_reports_it()).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(twin_reports_it());
    assert!(!stores(cluster.at(1)).contains_key(&twin.inner.store.name()));
    twin.stop().await;
    cluster.decide().await;
}

#[tokio::test(start_paused = true)]
async fn member_with_a_changed_address_is_found_at_the_new_one() {
    let mut cluster = Cluster::started(3).await;
    cluster.led().await;
    cluster.kill(3).await;
    let mut settings = cluster.settings(3);
    settings.first_members = BTreeMap::new();
    settings.join = cluster.first.values().cloned().collect();
    settings.address = "new-place".to_string();
    cluster.start_with(settings).await;
    cluster
        .until("every member knows the new address", |cluster| {
            cluster.running.values().all(|consensus| consensus.addresses().borrow()[&id(3)] == "new-place")
        })
        .await;
    cluster.decide().await;
}

#[tokio::test(start_paused = true)]
async fn epochs_start_above_the_configured_epoch_above() {
    let mut cluster = Cluster::new(3);
    cluster.start(1).await;
    cluster.epoch_above = 1000;
    cluster.start(2).await;
    cluster.epoch_above = 5;
    cluster.start(3).await;
    assert_eq!(cluster.decide().await.epoch, 1001);
    assert_eq!(cluster.decide().await.epoch, 1002);
}

#[tokio::test(start_paused = true)]
async fn first_members_with_different_settings_found_no_cluster() {
    let mut cluster = Cluster::new(3);
    cluster.start(1).await;
    cluster.start(2).await;
    cluster.shared.algorithm = vec![("algorithm".into(), "majority".into())];
    cluster.shared.lease_ns *= 2;
    cluster.start(3).await;
    cluster
        .until("the founder names the difference", |cluster| {
            let obstacle = cluster.at(1).status().obstacle.unwrap_or_default();
            obstacle.contains("algorithm majority instead of naimi-trehel")
                && obstacle.contains("lease 2400 ms instead of 1200 ms")
        })
        .await;
    cluster
        .until("the other member names a difference", |cluster| {
            cluster.at(3).status().obstacle.is_some_and(|obstacle| obstacle.contains("instead of"))
        })
        .await;
    assert_eq!(cluster.at(1).status().epoch, 0);
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_disk_was_restored_from_a_backup_is_refused_and_stops() {
    let mut cluster = Cluster::started(3).await;
    cluster.decide().await;
    cluster.kill(3).await;
    let backup = cluster.disks[&id(3)].contents();
    cluster.start(3).await;
    let decided = cluster.decide().await;
    cluster.all_know(decided.epoch).await;
    cluster.kill(3).await;
    cluster.disks.insert(id(3), crate::store::testing::Disk::with(backup));
    cluster.start(3).await;
    cluster
        .until("the restored member stops", |cluster| {
            cluster.at(3).status().failure.is_some_and(|why| why.contains("restored from a backup"))
        })
        .await;
    // The other members go on without it, and with an empty disk it joins again.
    cluster.kill(3).await;
    cluster.decide().await;
    cluster.lose_disk(3);
    cluster.start(3).await;
    let decided = cluster.decide().await;
    cluster.all_know(decided.epoch).await;
}

fn refusal(reply: &[u8]) -> ConsensusReply {
    wire::read::<wire::ReplyMessage>(reply).expect("an answer").reply
}

#[tokio::test(start_paused = true)]
async fn invalid_queries_are_rejected_and_counted() {
    let cluster = Cluster::started(1).await;
    cluster.led().await;
    for bytes in [&[][..], &[1], &[1, 255, 255], &[7, 1, 2, 3], &[0; 100]] {
        let reply = cluster.at(1).handle_query(id(2), bytes).await;
        assert!(matches!(refusal(&reply), ConsensusReply::Refused(_)), "{bytes:?}");
    }
    assert_eq!(cluster.at(1).status().malformed, 5);
    // A query under the name of another member.
    let stamp = StoreStamp { store: 5, start: 1, opened: 1, commits: 1 };
    let message =
        wire::write(&QueryMessage { member: id(2), stamp, query: ConsensusQuery::Identity }).unwrap();
    let reply = cluster.at(1).handle_query(id(3), &message).await;
    assert!(matches!(refusal(&reply), ConsensusReply::Refused(_)));
    cluster.decide().await;
}

#[tokio::test(start_paused = true)]
async fn settings_that_cannot_work_are_refused() {
    let cluster = Cluster::new(1);
    let good = cluster.settings(1);
    let wrong: [fn(&mut Settings); 6] = [
        |settings| settings.most_voters = 4,
        |settings| settings.most_voters = 9,
        |settings| settings.heartbeat = settings.election.0,
        |settings| settings.address = String::new(),
        |settings| settings.address = "elsewhere".to_string(),
        |settings| settings.first_members.clear(),
    ];
    for change in wrong {
        let mut settings = good.clone();
        change(&mut settings);
        let refused = Consensus::start(settings, cluster.transport(id(1)), Arc::new(|_| {})).await;
        assert!(matches!(refused, Err(Error::Settings(_))));
    }
}
