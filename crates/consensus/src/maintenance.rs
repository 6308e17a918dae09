//! Background tasks: joining a cluster, adjusting its voters, and reporting the leader to the member.

use super::types::{Metrics, StoreName};
use super::voters::{LeaderMembership, MembershipChange};
use super::{Inner, locked};
use openraft::error::Fatal;
use openraft::{ChangeMembers, ServerState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Maximum number of missing log entries of a store that counts as caught up.
const CATCH_UP_LAG: u64 = 8;

/// The term in which this store leads, if an entry of that term is applied: only then does it know all earlier
/// decisions.
pub(super) fn leading(metrics: &Metrics) -> Option<u64> {
    let applied = metrics.last_applied.map(|applied| applied.leader_id.term);
    let leads = metrics.state == ServerState::Leader && metrics.running_state.is_ok();
    (leads && applied == Some(metrics.current_term)).then_some(metrics.current_term)
}

impl Inner {
    /// Joins the cluster and, as the leader, maintains its membership, until consensus stops.
    pub(super) async fn maintain(&self, mut stopping: watch::Receiver<bool>) {
        let pause = self.settings.election.0;
        while !*stopping.borrow() && self.raft.metrics().borrow().running_state.is_ok() {
            if self.network.restored.load(Ordering::SeqCst) {
                let why = "this member's data directory is older than its earlier messages to other members: it was restored \
                           from a backup. Move the directory away and start the member with an empty one; it joins again";
                tracing::error!(member = %self.settings.me, "{why}");
                self.failure.send_replace(Some(String::from(why)));
                let _ = self.raft.shutdown().await;
                return;
            }
            let obstacle = if self.is_in() { None } else { self.join_or_found().await.err() };
            self.log_obstacle(obstacle.map(|obstacle| obstacle.to_string()));
            self.change_members().await;
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
                changed = stopping.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    /// Whether this store is part of the membership, with its present address. Without a recent message of a leader
    /// this is not known: the store may have been removed in the meantime.
    fn is_in(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let last_message = *locked(&self.last_leader_message);
        let led = metrics.state == ServerState::Leader
            || last_message.is_some_and(|at| at.elapsed() <= self.silence_limit());
        let node = metrics.membership_config.membership().get_node(&self.store.name());
        led && node.is_some_and(|node| node.address == self.settings.address)
    }

    fn log_obstacle(&self, obstacle: Option<String>) {
        let mut last = locked(&self.obstacle);
        if *last != obstacle {
            if let Some(obstacle) = &obstacle {
                tracing::info!(member = %self.settings.me, "not part of a cluster yet: {obstacle}");
            }
            *last = obstacle;
        }
    }

    /// As the leader: makes the next change of the membership, if one is needed.
    async fn change_members(&self) {
        let Some(membership) = self.membership() else {
            locked(&self.joiners).clear();
            return;
        };
        let next = membership.next();
        self.forget_joiners(&membership);
        let Some(change) = next else { return };
        tracing::info!(member = %self.settings.me, ?change, "changes the membership");
        let change = match change {
            MembershipChange::Voters(voters) => ChangeMembers::ReplaceAllVoters(voters),
            MembershipChange::StoreNode(store, node) => {
                ChangeMembers::SetNodes(BTreeMap::from([(store, node)]))
            }
            MembershipChange::Remove(stores) => ChangeMembers::RemoveNodes(stores),
        };
        // After a timeout the change may still happen; the next check will show it.
        let limit = 8 * self.settings.election.1;
        match timeout(limit, self.raft.change_membership(change, true)).await {
            Ok(Ok(_)) => self.wake.notify_one(),
            Ok(Err(error)) => tracing::debug!("the membership stays as it is: {error}"),
            Err(_) => tracing::debug!("the membership did not change in time"),
        }
    }

    /// Drops the requests of stores that have been admitted. If they are removed later, they must request to join
    /// again.
    fn forget_joiners(&self, membership: &LeaderMembership) {
        let mut joiners = locked(&self.joiners);
        joiners.retain(|&store, node| membership.is_new(store, node));
    }

    /// The membership as the leader sees it. `None` if this store does not lead.
    pub(super) fn membership(&self) -> Option<LeaderMembership> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let term = leading(&metrics)?;
        let membership = metrics.membership_config.membership();
        self.reset_reply_times(term, membership.voter_ids());
        let end = metrics.last_log_index.unwrap_or(0);
        let replication = metrics.replication.as_ref()?;
        let near = |at: &Option<super::types::LogId>| at.is_some_and(|at| at.index + CATCH_UP_LAG >= end);
        let voters = membership.get_joint_config().clone();
        let replied = |silence_limit: Duration| {
            self.network.replied_within(silence_limit).into_iter().collect::<BTreeSet<_>>()
        };
        let mut live = replied(self.silence_limit());
        live.insert(self.store.name());
        let replied_at_all = replied(10 * self.silence_limit());
        let silent = membership.voter_ids().filter(|store| !replied_at_all.contains(store)).collect();
        Some(LeaderMembership {
            me: self.store.name(),
            voters,
            nodes: membership.nodes().map(|(&store, node)| (store, node.clone())).collect(),
            live,
            silent,
            caught_up: replication.iter().filter(|(_, at)| near(at)).map(|(&store, _)| store).collect(),
            joiners: locked(&self.joiners).clone(),
            removed: locked(&self.removed).clone(),
            most_voters: self.settings.most_voters,
            transfers_vote: self.steps_down.load(Ordering::Relaxed) && membership.voter_ids().count() == 1,
        })
    }

    /// Time without an answer after which a store may be gone.
    pub(super) fn silence_limit(&self) -> Duration {
        2 * self.settings.election.1
    }

    /// Starts counting the voters' silence at the beginning of a term: they did not answer this leader before it.
    fn reset_reply_times(&self, term: u64, voters: impl Iterator<Item = StoreName>) {
        let mut since = locked(&self.replies_reset_in);
        if *since == Some(term) {
            return;
        }
        *since = Some(term);
        let mut last_replies = locked(&self.network.last_replies);
        last_replies.clear();
        last_replies.extend(voters.map(|store| (store, Instant::now())));
    }

    /// Reports changes of the leader to the member, until consensus stops.
    pub(super) async fn watch_leader(&self, mut stopping: watch::Receiver<bool>) {
        let mut metrics = self.raft.metrics();
        loop {
            let failure = self.report_metrics(&metrics.borrow_and_update().clone());
            if let Some(failure) = failure {
                tracing::error!(member = %self.settings.me, "consensus has stopped: {failure}");
                self.failure.send_replace(Some(failure));
                return;
            }
            tokio::select! {
                changed = metrics.changed() => if changed.is_err() {
                    self.events.leadership(None, None);
                    return;
                },
                _ = stopping.changed() => {
                    self.events.leadership(None, None);
                    return;
                }
            }
        }
    }

    fn report_metrics(&self, metrics: &Metrics) -> Option<String> {
        let failure = match &metrics.running_state {
            Ok(()) => {
                let membership = metrics.membership_config.membership();
                let leader = metrics.current_leader.and_then(|store| membership.get_node(&store));
                self.events.leadership(leader.map(|node| node.member), leading(metrics));
                None
            }
            Err(Fatal::Stopped) => None,
            Err(Fatal::StorageError(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if failure.is_some() {
            self.events.leadership(None, None);
        }
        let mut newest = BTreeMap::new();
        for (_, node) in metrics.membership_config.nodes() {
            let known = newest.entry(node.member).or_insert((node.since, node.address.clone()));
            if known.0 < node.since {
                *known = (node.since, node.address.clone());
            }
        }
        let addresses: BTreeMap<_, _> = newest.into_iter().map(|(id, (_, address))| (id, address)).collect();
        self.addresses.send_if_modified(|known| {
            let changed = *known != addresses;
            *known = addresses;
            changed
        });
        failure
    }
}
