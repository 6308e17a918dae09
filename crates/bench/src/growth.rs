//! `bench growth`: the cost of an acquire as the numbers of locks and members grow.
//!
//! Locks: a single member inside this process, so that only the member's own work is measured; a number of
//! other locks are held while one more is acquired and released. Members: clusters on loopback in this
//! process, whose members count their messages, compared with the simulator's count and the algorithm's
//! formula.

use crate::error::BenchError;
use crate::metrics::sum;
use crate::servers::free_ports;
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use lockkeeper_cluster::{Config, HoldGuard, JoinToken, Member, MemberId, Times};
use lockkeeper_lab::simulator::spec::LoadSpec;
use lockkeeper_lab::{Progress, Spec, simulate};
use prometheus_client::registry::Registry;
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

/// Number of rounds of a measurement; the median counts.
const ROUNDS: usize = 7;
/// Number of turns after which the task yields, so that other tasks can renew leases.
const TURNS_IN_A_ROW: usize = 64;
/// Number of entries in the simulator.
const SIMULATED: u64 = 20_000;
/// The maximum duration of a turn that the histogram resolves.
const LONGEST_NS: u64 = 60_000_000_000;
/// Counters that are unchanged for this time are considered final.
const SETTLED: Duration = Duration::from_millis(100);

/// The cost of an acquire while other locks are held.
#[derive(Clone, Debug, Serialize)]
pub struct AcquireCost {
    /// Number of other locks held.
    pub locks: u64,
    /// One acquire and release, in nanoseconds: total time divided by turns, the median of the rounds.
    pub cost_ns: f64,
    /// The median turn, which excludes periodic work.
    pub p50_ns: u64,
    /// The longest turn, which includes it.
    pub max_ns: u64,
}

/// Number of messages per entry in a cluster.
#[derive(Clone, Debug, Serialize)]
pub struct MessageCost {
    /// Number of members.
    pub members: usize,
    /// Whether all members request at once, or one after the other in random order.
    pub load: &'static str,
    /// Counted by the members.
    pub messages: f64,
    /// Counted by the simulator.
    pub simulated: Option<f64>,
    /// According to the algorithm's formula.
    pub formula: Option<f64>,
}

/// The cost with each of these numbers of locks, smallest first.
pub async fn acquire_costs(
    numbers: &[u64],
    seconds: f64,
    report: &dyn Fn(&str),
) -> Result<Vec<AcquireCost>, BenchError> {
    let folder = tempfile::tempdir().map_err(BenchError::FolderOfMembers)?;
    let member = Member::start(Config::alone(folder.path())).await?;
    member.ready().await?;
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    let (holder, asker) = (member.new_owner(), member.new_owner());
    let (mut held, mut costs): (Vec<HoldGuard>, Vec<AcquireCost>) = (Vec::new(), Vec::new());
    for locks in numbers {
        report(&format!("with {locks} locks held"));
        while (held.len() as u64) < locks {
            let name = format!("held/{}", held.len());
            held.push(holder.mutex(name).acquire().await?);
            if held.len().is_multiple_of(TURNS_IN_A_ROW) {
                tokio::task::yield_now().await;
            }
        }
        let (mut rounds, mut turns) = (Vec::new(), Histogram::new_with_bounds(1, LONGEST_NS, 3)?);
        for _ in 0..ROUNDS {
            rounds.push(cost(&asker, seconds / ROUNDS as f64, &mut turns).await?);
        }
        rounds.sort_by(f64::total_cmp);
        if held.iter().any(|guard| !guard.is_valid()) {
            return Err(BenchError::HoldLost);
        }
        let (p50_ns, max_ns) = (turns.value_at_quantile(0.5), turns.max());
        costs.push(AcquireCost { locks, cost_ns: rounds[ROUNDS / 2], p50_ns, max_ns });
    }
    drop(held);
    member.stop().await;
    Ok(costs)
}

async fn cost(member: &Member, seconds: f64, each: &mut Histogram<u64>) -> Result<f64, BenchError> {
    let (began, mut turns) = (Instant::now(), 0);
    while began.elapsed().as_secs_f64() < seconds {
        for _ in 0..TURNS_IN_A_ROW {
            let asked = Instant::now();
            turn(member).await?;
            each.saturating_record(asked.elapsed().as_nanos() as u64);
            turns += 1;
        }
        tokio::task::yield_now().await;
    }
    Ok(began.elapsed().as_nanos() as f64 / f64::from(turns))
}

/// Messages per entry in a cluster of this size, under a low and a high load.
pub async fn message_costs(
    algorithm: &str,
    members: usize,
    entries: usize,
) -> Result<Vec<MessageCost>, BenchError> {
    let folder = tempfile::tempdir().map_err(BenchError::FolderOfMembers)?;
    let cluster = start(algorithm, members, folder.path()).await?;
    let mut rows = Vec::new();
    for (load, name) in [(LoadSpec::Low, "one after the other"), (LoadSpec::High, "all at once")] {
        let before = sent(&cluster);
        match load {
            LoadSpec::Low => one_after_the_other(&cluster, entries).await?,
            _ => all_at_once(&cluster, entries).await?,
        }
        let after = settled(&cluster).await;
        let mut spec = Spec::new(algorithm, members);
        (spec.load, spec.entries) = (load, SIMULATED);
        let report = simulate(&spec, 1, 1, &Progress::default())?;
        rows.push(MessageCost {
            members,
            load: name,
            messages: (after - before) / entries as f64,
            simulated: report.messages_per_entry,
            formula: report.expected.messages_per_entry,
        });
    }
    for member in cluster {
        member.stop().await;
    }
    Ok(rows)
}

async fn start(algorithm: &str, count: usize, folder: &Path) -> Result<Vec<Member>, BenchError> {
    let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let ports = free_ports(count)?;
    let join_token = JoinToken::random().map_err(|error| BenchError::JoinToken(error.into()))?;
    let mut members = Vec::new();
    for (id, &port) in (1..).zip(&ports) {
        let mut config = Config::new(MemberId(id), at(port), folder.join(id.to_string()));
        config.first_members =
            (1..).map(MemberId).zip(ports.iter().map(|port| at(*port).to_string())).collect();
        config.algorithm = algorithm.into();
        config.join_token = Some(join_token.clone());
        // Many members share few cores here: a long timeout avoids false suspicions.
        config.times = Times::default().times(4);
        members.push(Member::start(config).await?);
    }
    for member in &members {
        let mut changes = member.status_changes();
        while member.status().view.is_none_or(|view| view.members.len() != count) {
            changes.changed().await.map_err(|_| BenchError::MemberStopped)?;
        }
        member.ready().await?;
    }
    Ok(members)
}

async fn turn(member: &Member) -> Result<(), BenchError> {
    let guard = member.mutex("wanted").acquire().await?;
    Ok(guard.release().await?)
}

/// One request at a time; the requester is drawn at random, as the formulas for low load assume.
async fn one_after_the_other(members: &[Member], entries: usize) -> Result<(), BenchError> {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..entries {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        turn(&members[(random % members.len() as u64) as usize]).await?;
    }
    Ok(())
}

/// Every member requests again as soon as it has left.
async fn all_at_once(members: &[Member], entries: usize) -> Result<(), BenchError> {
    let each = |place: usize| entries / members.len() + usize::from(place < entries % members.len());
    let clients = members.iter().enumerate().map(|(place, member)| async move {
        for _ in 0..each(place) {
            turn(member).await?;
            // Let other tasks run, so that waiting members can process messages.
            tokio::task::yield_now().await;
        }
        Ok::<_, BenchError>(())
    });
    try_join_all(clients).await.map(drop)
}

fn sent(members: &[Member]) -> f64 {
    let of = |member: &Member| {
        let (mut registry, mut text) = (Registry::default(), String::new());
        member.register_metrics(&mut registry);
        prometheus_client::encoding::text::encode(&mut text, &registry)
            .map_or(0.0, |()| sum(&text, "lockkeeper_messages_total"))
    };
    members.iter().map(of).sum()
}

/// The number of messages when it no longer changes, so that messages under way are included.
async fn settled(members: &[Member]) -> f64 {
    loop {
        let before = sent(members);
        tokio::time::sleep(SETTLED).await;
        if sent(members) == before {
            return before;
        }
    }
}
