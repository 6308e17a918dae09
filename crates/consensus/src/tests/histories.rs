//! Histories of the real library under crashes and partitions are accepted by the lab's model of consensus.

use super::harness::*;
use std::time::Duration;

/// A small random number generator: the sequence of faults is a function of the seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Every member that takes itself for the leader proposes and confirms, as members do, for this many virtual
/// milliseconds.
async fn propose_and_confirm(cluster: &Cluster, random: &mut Random, query: &mut u64, mut ms: u64) {
    while ms > 0 {
        for number in 1..=5 {
            let running = cluster.running.contains_key(&id(number));
            let Some(term) = cluster.received(number).leading.filter(|_| running) else { continue };
            if random.below(3) == 0 {
                *query += 1;
                cluster.confirm(number, *query, term);
            }
            if let Some(view) = cluster.next_view(number).filter(|_| random.below(4) == 0) {
                cluster.propose(number, view);
            }
        }
        let step = (5 + random.below(20)).min(ms);
        tokio::time::sleep(Duration::from_millis(step)).await;
        ms -= step;
    }
}

async fn inject_fault(cluster: &mut Cluster, random: &mut Random) {
    let number = 1 + random.below(5) as u32;
    let leader = cluster.leader().map_or(number, |(leader, _)| leader);
    match random.below(8) {
        7 if cluster.running.contains_key(&id(leader)) => cluster.new_incarnation(leader),
        0 => cluster.cut_off(&[leader]),
        1 => cluster.cut_off(&[leader, number]),
        2 => cluster.cut_off(&[number]),
        3 => cluster.heal(),
        4 if cluster.running.len() > 3 => cluster.kill(leader).await,
        5 if cluster.running.len() > 4 => {
            cluster.kill(number).await;
            if cluster.running.len() == 4 && random.below(2) == 0 {
                cluster.lose_disk(number);
            }
        }
        _ => {
            for number in 1..=5 {
                if !cluster.running.contains_key(&id(number)) {
                    cluster.start(number).await;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn histories_of_the_real_library_are_accepted_by_the_labs_model() {
    let (mut decided, mut confirmed, mut terms) = (0, 0, 0);
    for seed in 0..6 {
        let mut random = Random(seed);
        let mut cluster = Cluster::started(5).await;
        cluster.led().await;
        let mut query = 0;
        for _ in 0..25 {
            inject_fault(&mut cluster, &mut random).await;
            let ms = 200 + random.below(1500);
            propose_and_confirm(&cluster, &mut random, &mut query, ms).await;
        }
        cluster.heal();
        for number in 1..=5 {
            if !cluster.running.contains_key(&id(number)) {
                cluster.start(number).await;
            }
        }
        decided += cluster.decide().await.epoch;
        terms += cluster.leader().unwrap().1;
        confirmed += (1..=5).map(|number| cluster.received(number).confirmed.len()).sum::<usize>();
        cluster.accepted();
        for number in 1..=5 {
            cluster.kill(number).await;
        }
    }
    // The runs contained many decisions and confirmations, and changes of the leader.
    assert!(
        decided > 100 && terms > 12 && confirmed > 20,
        "{decided} views, {terms} terms, {confirmed} confirmed"
    );
}
