//! Full disks and growing logs.

use super::super::*;
use super::harness::*;

#[tokio::test(start_paused = true)]
async fn full_disk_stops_consensus_at_that_member_only_until_there_is_space() {
    let mut cluster = Cluster::started(3).await;
    let before = cluster.decide().await;
    // The disk of the leader is full: it must stop leading.
    let full = cluster.led().await;
    let disk = cluster.disks[&id(full)].clone();
    disk.set_space(0);
    let proposed = cluster.next_view(full).unwrap();
    cluster.propose(full, proposed);
    let failed = cluster.at(full).failed().await;
    assert!(failed.to_string().contains("see to the disk"), "{failed}");
    assert_eq!(cluster.received(full).leading, None);
    assert!(cluster.at(full).status().failure.is_some());
    cluster.kill(full).await;
    let without = cluster.decide().await;
    assert!(without.epoch > before.epoch);
    // While the disk is full, the store cannot be opened and the error explains it. With space, it works as before.
    let refused = Store::open_on(disk.clone(), id(full)).unwrap_err();
    assert!(refused.to_string().contains("see to the disk"), "{refused}");
    disk.set_space(u64::MAX);
    cluster.start(full).await;
    cluster.all_know(without.epoch).await;
    assert!(cluster.received(full).views.contains(&without));
    cluster.decide().await;
    cluster.accepted();
}

#[tokio::test(start_paused = true)]
async fn log_is_compacted_and_a_lagging_member_gets_a_snapshot() {
    let mut cluster = Cluster::started(3).await;
    cluster.decide().await;
    let away = if cluster.led().await == 3 { 2 } else { 3 };
    cluster.kill(away).await;
    let mut last = cluster.decide().await;
    for _ in 0..700 {
        let leader = cluster.led().await;
        last = cluster.next_view(leader).unwrap();
        cluster.propose(leader, last.clone());
        cluster.all_know(last.epoch).await;
    }
    let leader = cluster.led().await;
    let kept = cluster.at(leader).inner.store.entries::<types::Entry>(..).unwrap().len() as u64;
    assert!(kept <= ENTRIES_PER_SNAPSHOT + ENTRIES_KEPT + 64, "{kept} entries are kept");
    cluster.start(away).await;
    cluster.all_know(last.epoch).await;
    let views = cluster.received(away).views;
    assert!(views.len() < 500, "it got every view separately: {}", views.len());
    assert!(views.is_sorted_by_key(|view| view.epoch));
    // After a restart it has the same knowledge from its own disk.
    cluster.kill(away).await;
    cluster.cut_off(&[away]);
    cluster.start(away).await;
    cluster.until("views from its disk", |cluster| !cluster.received(away).views.is_empty()).await;
    assert!(cluster.received(away).views.last().unwrap().epoch > 300);
    cluster.accepted();
}

#[tokio::test(start_paused = true)]
async fn directory_is_used_by_one_member_and_one_process_only() {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::new(1);
    let mut settings = cluster.settings(1);
    settings.directory = directory.path().join("made").join("on demand");
    let start = |settings: &Settings, cluster: &Cluster| {
        Consensus::start(settings.clone(), cluster.transport(id(1)), cluster.callback(id(1)))
    };
    let first = start(&settings, &cluster).await.unwrap();
    cluster.running.insert(id(1), first.clone());
    let view = cluster.decide().await;
    let refused = start(&settings, &cluster).await.err().unwrap();
    assert!(refused.to_string().contains("in use by another process"), "{refused}");
    first.stop().await;
    cluster.received.lock().unwrap().clear();
    let again = start(&settings, &cluster).await.unwrap();
    cluster.running.insert(id(1), again.clone());
    cluster.all_know(view.epoch).await;
    assert_eq!(cluster.decide().await.epoch, 2);
    again.stop().await;
    settings.me = id(2);
    settings.first_members.clear();
    settings.join.push(address(id(1)));
    let refused = start(&settings, &cluster).await.err().unwrap();
    assert!(refused.to_string().contains("belongs to M1"), "{refused}");
}
