//! Answers to the queries of other members.

use super::log::Log;
use super::maintenance::leading;
use super::types::{StoreName, StoreNode};
use super::wire::{ConsensusQuery, ConsensusReply, MemberIdentity, QueryMessage, Rpc};
use super::{Inner, locked};
use lockkeeper_member::MemberId;
use openraft::Snapshot;
use openraft::raft::AppendEntriesResponse;
use std::io::Cursor;
use std::sync::atomic::Ordering;

/// Limits on the number of members and the length of an address, since joiners choose these values.
const MOST_MEMBERS: usize = 1024;
const LONGEST_ADDRESS: usize = 256;

impl Inner {
    pub(super) async fn handle_query(&self, from: MemberId, message: QueryMessage) -> ConsensusReply {
        if from != message.member {
            return ConsensusReply::Refused(format!(
                "the query claims to be from {}, and it is not",
                message.member
            ));
        }
        if !self.network.stamps.accept(&message.stamp) {
            tracing::warn!(member = %message.member, "refuses a member whose disk was restored from a backup");
            return ConsensusReply::Restored;
        }
        match message.query {
            ConsensusQuery::Identity => self.identity().await,
            ConsensusQuery::Found { cluster } => match self.adopt_cluster(cluster).await {
                Ok(true) => ConsensusReply::Accepted { cluster },
                Ok(false) => ConsensusReply::Refused("it is part of another cluster".to_string()),
                Err(error) => ConsensusReply::Refused(error.to_string()),
            },
            ConsensusQuery::Join { node } if node.member == message.member => {
                self.join(message.stamp.store, node).await
            }
            ConsensusQuery::Join { .. } => {
                ConsensusReply::Refused("a member can only join for itself".to_string())
            }
            ConsensusQuery::Remove { member } => match self.remove_member(member).await {
                Ok(handle_query) => handle_query,
                Err(error) => ConsensusReply::Refused(error.to_string()),
            },
            ConsensusQuery::Write { write } if write.home.id == message.member => {
                match self.write_as_leader(write).await {
                    Some(outcomes) => ConsensusReply::Written(outcomes),
                    None => ConsensusReply::NotLeader(self.leader()),
                }
            }
            ConsensusQuery::Write { .. } => {
                ConsensusReply::Refused("a member records only holds of its own".to_string())
            }
            ConsensusQuery::Raft { cluster, to, rpc } => self.raft(cluster, to, rpc).await,
        }
    }

    async fn identity(&self) -> ConsensusReply {
        let cluster = *self.cluster.read().await;
        match self.store.run(Log::is_blank).await {
            Ok(blank) => ConsensusReply::Identity(MemberIdentity {
                member: self.settings.me,
                store: self.store.name(),
                cluster: cluster.filter(|_| !blank),
                first_members: self.settings.first_members.keys().copied().collect(),
                epoch_above: self.settings.epoch_above,
                settings: self.settings.cluster.clone(),
                leader: self.leader(),
            }),
            Err(error) => ConsensusReply::Refused(error.to_string()),
        }
    }

    /// The leader and its address, as far as this member knows.
    pub(super) fn leader(&self) -> Option<(MemberId, String)> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let node = metrics.membership_config.membership().get_node(&metrics.current_leader?)?;
        Some((node.member, node.address.clone()))
    }

    /// Handles the request of a store to join the cluster.
    pub(super) async fn join(&self, store: StoreName, mut node: StoreNode) -> ConsensusReply {
        let cluster = *self.cluster.read().await;
        let (Some(cluster), Some(membership)) = (cluster, self.membership()) else {
            return ConsensusReply::NotLeader(self.leader());
        };
        if node.address.len() > LONGEST_ADDRESS || membership.nodes.len() >= MOST_MEMBERS {
            return ConsensusReply::Refused(format!(
                "a cluster has at most {MOST_MEMBERS} members, and an address at most {LONGEST_ADDRESS} bytes"
            ));
        }
        let twin = |(other, known): (&StoreName, &StoreNode)| {
            *other != store && known.member == node.member && membership.live.contains(other)
        };
        if membership.nodes.iter().any(twin) {
            return ConsensusReply::Refused(format!(
                "{} is here already, with another disk: if its disk was replaced just now, it is let in soon; \
                 if two processes have this number, stop one",
                node.member
            ));
        }
        node.since = self.raft.metrics().borrow().last_log_index.unwrap_or(0) + 1;
        let mut joiners = locked(&self.joiners);
        joiners.retain(|_, other| other.member != node.member);
        if joiners.len() < MOST_MEMBERS {
            joiners.insert(store, node);
        }
        self.wake.notify_one();
        ConsensusReply::Accepted { cluster }
    }

    async fn raft(&self, cluster: u64, to: StoreName, rpc: Rpc) -> ConsensusReply {
        // Locked until the answer is complete, so that this store does not change to another cluster meanwhile.
        let present = self.cluster.read().await;
        if *present != Some(cluster) {
            return ConsensusReply::Refused("this store is not part of that cluster".to_string());
        }
        if to != self.store.name() {
            return ConsensusReply::Refused("the store of that name is not here any more".to_string());
        }
        if !rpc.is_valid() {
            self.malformed.fetch_add(1, Ordering::Relaxed);
            return ConsensusReply::Refused("this is not a valid Raft message".to_string());
        }
        let handle_query = match rpc {
            Rpc::Append(append) => self
                .raft
                .append_entries(append)
                .await
                .map(ConsensusReply::Append)
                .map_err(|error| error.to_string()),
            Rpc::Vote(vote) => {
                self.raft.vote(vote).await.map(ConsensusReply::Vote).map_err(|error| error.to_string())
            }
            Rpc::Snapshot { vote, meta, state } => {
                let snapshot = Snapshot { meta, snapshot: Box::new(Cursor::new(state)) };
                let installed = self.raft.install_full_snapshot(vote, snapshot).await;
                installed.map(ConsensusReply::Snapshot).map_err(|error| error.to_string())
            }
        };
        match &handle_query {
            Ok(ConsensusReply::Append(AppendEntriesResponse::HigherVote(_))) => {}
            Ok(ConsensusReply::Append(_) | ConsensusReply::Snapshot(_)) => self.leader_message_received(),
            Ok(ConsensusReply::Vote(handle_query)) if handle_query.vote_granted => {
                self.restart_election_timeout()
            }
            _ => {}
        }
        handle_query.unwrap_or_else(ConsensusReply::Refused)
    }

    /// As the leader: removes a member for good, and waits until that is done.
    pub(super) async fn remove_member(&self, member: MemberId) -> Result<ConsensusReply, super::Error> {
        let cluster = *self.cluster.read().await;
        let (Some(cluster), Some(_)) = (cluster, self.membership()) else {
            return Ok(ConsensusReply::NotLeader(self.leader()));
        };
        if member == self.settings.me {
            return Err(super::Error::Remove(format!(
                "{member} leads the cluster: stop it first, then remove it by way of another member"
            )));
        }
        locked(&self.removed).insert(member);
        self.wake.notify_one();
        let mut metrics = self.raft.metrics();
        let gone = metrics.wait_for(|metrics| {
            leading(metrics).is_none()
                || metrics.membership_config.nodes().all(|(_, node)| node.member != member)
        });
        let gone = tokio::time::timeout(8 * self.settings.election.1, gone).await;
        let done = matches!(gone, Ok(Ok(metrics)) if leading(&metrics).is_some());
        locked(&self.removed).remove(&member);
        if done {
            Ok(ConsensusReply::Accepted { cluster })
        } else {
            Err(super::Error::Remove(format!("{member} may still be there: the leader changed; try again")))
        }
    }
}
