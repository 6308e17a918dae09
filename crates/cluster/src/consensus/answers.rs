//! Answers to the queries of other members.

use super::keeper::leading;
use super::log::Log;
use super::types::{Place, StoreName};
use super::wire::{Answer, Asked, Hello, Question, Rpc};
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
    pub(super) async fn answer(&self, from: MemberId, asked: Asked) -> Answer {
        if from != asked.member {
            return Answer::Refused(format!("the query claims to be from {}, and it is not", asked.member));
        }
        if !self.network.disks.accept(&asked.disk) {
            tracing::warn!(member = %asked.member, "refuses a member whose disk was restored from a backup");
            return Answer::Restored;
        }
        match asked.question {
            Question::Hello => self.hello().await,
            Question::Found { cluster } => match self.belong(cluster).await {
                Ok(true) => Answer::Yes { cluster },
                Ok(false) => Answer::Refused("it is part of another cluster".to_string()),
                Err(error) => Answer::Refused(error.to_string()),
            },
            Question::Join { place } if place.member == asked.member => {
                self.join(asked.disk.store, place).await
            }
            Question::Join { .. } => Answer::Refused("a member can only join for itself".to_string()),
            Question::Remove { member } => match self.give_up(member).await {
                Ok(answer) => answer,
                Err(error) => Answer::Refused(error.to_string()),
            },
            Question::Raft { cluster, to, rpc } => self.raft(cluster, to, rpc).await,
        }
    }

    async fn hello(&self) -> Answer {
        let cluster = *self.cluster.read().await;
        match self.store.run(Log::is_blank).await {
            Ok(blank) => Answer::Hello(Hello {
                member: self.settings.me,
                store: self.store.name(),
                cluster: cluster.filter(|_| !blank),
                first_members: self.settings.first_members.keys().copied().collect(),
                epoch_above: self.settings.epoch_above,
                settings: self.settings.cluster.clone(),
                leader: self.leader(),
            }),
            Err(error) => Answer::Refused(error.to_string()),
        }
    }

    /// The leader and its address, as far as this member knows.
    pub(super) fn leader(&self) -> Option<(MemberId, String)> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let place = metrics.membership_config.membership().get_node(&metrics.current_leader?)?;
        Some((place.member, place.address.clone()))
    }

    /// Handles the request of a store to join the cluster.
    pub(super) async fn join(&self, store: StoreName, mut place: Place) -> Answer {
        let cluster = *self.cluster.read().await;
        let (Some(cluster), Some(picture)) = (cluster, self.picture()) else {
            return Answer::AskLeader(self.leader());
        };
        if place.address.len() > LONGEST_ADDRESS || picture.places.len() >= MOST_MEMBERS {
            return Answer::Refused(format!(
                "a cluster has at most {MOST_MEMBERS} members, and an address at most {LONGEST_ADDRESS} bytes"
            ));
        }
        let twin = |(other, known): (&StoreName, &Place)| {
            *other != store && known.member == place.member && picture.live.contains(other)
        };
        if picture.places.iter().any(twin) {
            return Answer::Refused(format!(
                "{} is here already, with another disk: if its disk was replaced just now, it is let in soon; \
                 if two processes have this number, stop one",
                place.member
            ));
        }
        place.since = self.raft.metrics().borrow().last_log_index.unwrap_or(0) + 1;
        let mut joiners = locked(&self.joiners);
        joiners.retain(|_, other| other.member != place.member);
        if joiners.len() < MOST_MEMBERS {
            joiners.insert(store, place);
        }
        self.wake.notify_one();
        Answer::Yes { cluster }
    }

    async fn raft(&self, cluster: u64, to: StoreName, rpc: Rpc) -> Answer {
        // Locked until the answer is complete, so that this store does not change to another cluster meanwhile.
        let present = self.cluster.read().await;
        if *present != Some(cluster) {
            return Answer::Refused("this store is not part of that cluster".to_string());
        }
        if to != self.store.name() {
            return Answer::Refused("the store of that name is not here any more".to_string());
        }
        if !rpc.makes_sense() {
            self.nonsense.fetch_add(1, Ordering::Relaxed);
            return Answer::Refused("this is not a valid Raft message".to_string());
        }
        let answer = match rpc {
            Rpc::Append(append) => {
                self.raft.append_entries(append).await.map(Answer::Append).map_err(|error| error.to_string())
            }
            Rpc::Vote(vote) => {
                self.raft.vote(vote).await.map(Answer::Vote).map_err(|error| error.to_string())
            }
            Rpc::Snapshot { vote, meta, state } => {
                let snapshot = Snapshot { meta, snapshot: Box::new(Cursor::new(state)) };
                let installed = self.raft.install_full_snapshot(vote, snapshot).await;
                installed.map(Answer::Snapshot).map_err(|error| error.to_string())
            }
        };
        match &answer {
            Ok(Answer::Append(AppendEntriesResponse::HigherVote(_))) => {}
            Ok(Answer::Append(_) | Answer::Snapshot(_)) => self.leader_is_heard(),
            Ok(Answer::Vote(answer)) if answer.vote_granted => self.silence_ends(),
            _ => {}
        }
        answer.unwrap_or_else(Answer::Refused)
    }

    /// As the leader: removes a member for good, and waits until that is done.
    pub(super) async fn give_up(&self, member: MemberId) -> Result<Answer, super::Error> {
        let cluster = *self.cluster.read().await;
        let (Some(cluster), Some(_)) = (cluster, self.picture()) else {
            return Ok(Answer::AskLeader(self.leader()));
        };
        if member == self.settings.me {
            return Err(super::Error::Remove(format!(
                "{member} leads the cluster: stop it first, then remove it by way of another member"
            )));
        }
        locked(&self.given_up).insert(member);
        self.wake.notify_one();
        let mut metrics = self.raft.metrics();
        let gone = metrics.wait_for(|metrics| {
            leading(metrics).is_none()
                || metrics.membership_config.nodes().all(|(_, place)| place.member != member)
        });
        let gone = tokio::time::timeout(8 * self.settings.election.1, gone).await;
        let done = matches!(gone, Ok(Ok(metrics)) if leading(&metrics).is_some());
        locked(&self.given_up).remove(&member);
        if done {
            Ok(Answer::Yes { cluster })
        } else {
            Err(super::Error::Remove(format!("{member} may still be there: the leader changed; try again")))
        }
    }
}
