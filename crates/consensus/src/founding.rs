//! How a store becomes part of a cluster: by founding one or by joining one.
//!
//! # Why there is never a second cluster
//! Each cluster has a random id. A store belongs to one cluster only, whose id is on its disk, and accepts Raft
//! messages of that cluster alone. It may change to another cluster only while its log is blank.
//!
//! - Only the first member with the lowest number founds. It queries ALL first members; none may have an entry in its log,
//!   and each must adopt the new cluster's id. Then it initialises Raft with exactly the stores that answered.
//! - Every decision of a cluster is in the logs of a majority of its voters, which were first members or were admitted
//!   by such a decision. A founder that starts again with a new disk queries all first members: if one of them has an
//!   entry, the founder joins that cluster instead. So a lost disk never founds a second cluster, unless every first
//!   member has lost its disk.
//! - Two processes with the same number might both found. Each needs every first member, with a blank log at that time.
//!   Suppose that all others adopted id A and then id B: then none of them had an entry of A, and none will accept one.
//!   So A never decides anything without them.
//! - A cluster with one voter has one disk; with the disk, everything is lost. In that case, and if all disks are lost,
//!   epochs must start higher than before: above the founder's wall clock in seconds, and above `epoch_above`. The
//!   first view starts after one lease, since clients of the lost cluster may still hold locks.
//!
//! Later starts need no founding: the store knows its cluster, and a majority is enough.

use super::Inner;
use super::log::Log;
use super::network::QueryFailed;
use super::types::{StoreName, StoreNode};
use super::voters::odd;
use super::wire::{ConsensusQuery, ConsensusReply, MemberIdentity};
use crate::store::{Change, Record, StoreError, encode};
use lockkeeper_member::MemberId;
use openraft::error::{InitializeError, RaftError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The unit of the wall clock from which the first epoch is derived.
const EPOCH_UNIT: Duration = Duration::from_secs(1);

/// The reason why this member is not part of a cluster yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum Obstacle {
    /// The leader refuses this member, for this reason.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Query(#[from] QueryFailed),
    #[error("no other member of this member's cluster answers yet")]
    Alone,
    #[error(
        "the others are another cluster than the one of this member's disk: correct the addresses, or start this member \
         with an empty directory"
    )]
    OtherCluster,
    #[error("the addresses given to this member belong to more than one cluster: give it those of one")]
    SeveralClusters,
    #[error("the cluster has no leader at the moment")]
    NoLeader,
    #[error("the leader is changing")]
    LeaderChanges,
    #[error("no member of a cluster answers yet at the addresses to join")]
    NoMember,
    #[error(
        "{member} is configured with other settings than {me}: {differences}; give all first members the same settings"
    )]
    OtherSettings { member: MemberId, me: MemberId, differences: String },
    #[error("{member} was given other first members than this one: give the same list to all of them")]
    OtherFirstMembers { member: MemberId },
    #[error("waits for {founder} to begin the cluster")]
    WaitsForFounder { founder: MemberId },
    #[error("waits for {}: a new cluster begins when all of its first members are there", list(missing))]
    WaitsForFirstMembers { missing: Vec<MemberId> },
    #[error("waits for {member}: {source}")]
    NoAnswer { member: MemberId, source: QueryFailed },
    #[error("{member} does not begin a new cluster: {why}")]
    FoundingRefused { member: MemberId, why: String },
    #[error("{member} sent an answer that does not fit the query")]
    UnexpectedReply { member: MemberId },
    #[error("this member has become part of another cluster")]
    JoinedAnother,
    #[error("no random numbers: {0}")]
    Random(#[source] getrandom::Error),
    #[error("the cluster cannot begin: {0}")]
    Initialize(#[source] RaftError<StoreName, InitializeError<StoreName, StoreNode>>),
}

fn list(members: &[MemberId]) -> String {
    let members: Vec<String> = members.iter().map(ToString::to_string).collect();
    members.join(", ")
}

impl Inner {
    /// Tries once to become part of a cluster. The error contains the obstacle.
    pub(super) async fn join_or_found(&self) -> Result<(), Obstacle> {
        // A leader whose address has changed sends the request to itself: a cluster of one has no other member.
        if self.membership().is_some() {
            return match self.join(self.store.name(), self.own_node()).await {
                ConsensusReply::Refused(why) => Err(Obstacle::Refused(why)),
                _ => Ok(()),
            };
        }
        let blank = self.store.run(Log::is_blank).await?;
        let mine = if blank { None } else { *self.cluster.read().await };
        let identities = self.identify_members().await;
        let known: BTreeSet<u64> = identities.iter().filter_map(|identity| identity.cluster).collect();
        // The cluster of this store, if it has one, and the number of clusters that the other members report.
        let cluster = match (mine, known.len()) {
            (Some(mine), _) if known.contains(&mine) => mine,
            (Some(_), 0) => return Err(Obstacle::Alone),
            (Some(_), _) => return Err(Obstacle::OtherCluster),
            (None, 0) => return self.found_cluster(&identities).await,
            (None, 1) => known.first().copied().unwrap_or_default(),
            (None, _) => return Err(Obstacle::SeveralClusters),
        };
        let leaders: BTreeSet<(MemberId, String)> = identities
            .into_iter()
            .filter(|identity| identity.cluster == Some(cluster))
            .filter_map(|identity| identity.leader)
            .collect();
        let mut obstacle = Obstacle::NoLeader;
        for (leader, address) in leaders {
            match self.ask_to_join(leader, &address, cluster).await {
                Ok(()) => return Ok(()),
                Err(why) => obstacle = why,
            }
        }
        Err(obstacle)
    }

    /// Queries all members that this member knows for their identity.
    async fn identify_members(&self) -> Vec<MemberIdentity> {
        let settings = &self.settings;
        let mut contacts: BTreeMap<String, Option<MemberId>> =
            settings.join.iter().map(|address| (address.clone(), None)).collect();
        let first = settings.first_members.iter().map(|(&id, address)| (address.clone(), Some(id)));
        contacts.extend(first.filter(|(_, id)| *id != Some(settings.me)));
        for (_, node) in self.raft.metrics().borrow().membership_config.nodes() {
            if node.member != settings.me {
                contacts.insert(node.address.clone(), Some(node.member));
            }
        }
        contacts.remove(&settings.address);
        let mut pending = tokio::task::JoinSet::new();
        for (address, id) in contacts {
            let (network, within) = (self.network.clone(), settings.election.1);
            pending.spawn(async move {
                match network.query(id, &address, ConsensusQuery::Identity, within).await {
                    Ok(ConsensusReply::Identity(identity)) if id.is_none_or(|id| id == identity.member) => {
                        Some(identity)
                    }
                    _ => None,
                }
            });
        }
        pending.join_all().await.into_iter().flatten().collect()
    }

    fn own_node(&self) -> StoreNode {
        let settings = &self.settings;
        let (member, address) = (settings.me, settings.address.clone());
        StoreNode { member, address, epoch_above: settings.epoch_above, since: 0 }
    }

    async fn ask_to_join(&self, leader: MemberId, address: &str, cluster: u64) -> Result<(), Obstacle> {
        let (settings, node) = (&self.settings, self.own_node());
        let pending =
            self.network.query(Some(leader), address, ConsensusQuery::Join { node }, settings.election.1);
        match pending.await {
            Ok(ConsensusReply::Accepted { cluster: joined }) if joined == cluster => {
                Ok(self.adopt_cluster(cluster).await.map(|_| ())?)
            }
            Ok(ConsensusReply::Refused(why)) => Err(Obstacle::Refused(why)),
            Ok(_) => Err(Obstacle::LeaderChanges),
            Err(error) => Err(error.into()),
        }
    }

    /// Adopts this cluster's id if the store is blank or has it already. The id is on disk when this returns.
    pub(super) async fn adopt_cluster(&self, cluster: u64) -> Result<bool, StoreError> {
        // Locked, so that no Raft message is answered in between.
        let mut present = self.cluster.write().await;
        if *present == Some(cluster) {
            return Ok(true);
        }
        if !self.store.run(Log::is_blank).await? {
            return Ok(false);
        }
        let change = Change::Put(Record::Cluster, encode(&cluster)?);
        self.store.run(move |store| store.write(&[change])).await?;
        *present = Some(cluster);
        self.network.cluster.store(cluster, Ordering::SeqCst);
        Ok(true)
    }

    /// Founds a new cluster, if this member is the one to do so and all first members agree.
    async fn found_cluster(&self, identities: &[MemberIdentity]) -> Result<(), Obstacle> {
        let settings = &self.settings;
        let first: Vec<MemberId> = settings.first_members.keys().copied().collect();
        if !first.contains(&settings.me) {
            return Err(Obstacle::NoMember);
        }
        for identity in identities.iter().filter(|identity| first.contains(&identity.member)) {
            let differences = identity.settings.differences(&settings.cluster);
            if !differences.is_empty() {
                let (member, me) = (identity.member, settings.me);
                return Err(Obstacle::OtherSettings { member, me, differences });
            }
        }
        if first.first() != Some(&settings.me) {
            return Err(Obstacle::WaitsForFounder { founder: first[0] });
        }
        let mut stores: BTreeMap<MemberId, StoreName> = BTreeMap::from([(settings.me, self.store.name())]);
        let mut epoch_above = settings.epoch_above;
        for identity in identities.iter().filter(|identity| first.contains(&identity.member)) {
            if identity.first_members != first {
                return Err(Obstacle::OtherFirstMembers { member: identity.member });
            }
            epoch_above = epoch_above.max(identity.epoch_above);
            stores.insert(identity.member, identity.store);
        }
        let missing: Vec<MemberId> = first.into_iter().filter(|id| !stores.contains_key(id)).collect();
        if !missing.is_empty() {
            return Err(Obstacle::WaitsForFirstMembers { missing });
        }
        let cluster = getrandom::u64().map_err(Obstacle::Random)?.max(1);
        self.first_members_adopt(cluster).await?;
        let voters = odd(settings.most_voters.min(stores.len()));
        let node = |(member, store): (MemberId, StoreName)| {
            let address = settings.first_members[&member].clone();
            (store, StoreNode { member, address, epoch_above, since: 0 })
        };
        let nodes: BTreeMap<StoreName, StoreNode> = stores.into_iter().take(voters).map(node).collect();
        // Epochs start at the wall clock in seconds. A cluster that succeeds this one must start in a later second than
        // this one's first grant, which happens after one lease.
        let lease = Duration::from_nanos(settings.cluster.lease_ns);
        tokio::time::sleep(EPOCH_UNIT.saturating_sub(lease)).await;
        tracing::info!(cluster, voters, "founds a cluster");
        self.raft.initialize(nodes).await.map_err(Obstacle::Initialize)
    }

    async fn first_members_adopt(&self, cluster: u64) -> Result<(), Obstacle> {
        let settings = &self.settings;
        for (&member, address) in settings.first_members.iter().filter(|&(&id, _)| id != settings.me) {
            let query = ConsensusQuery::Found { cluster };
            match self.network.query(Some(member), address, query, settings.election.1).await {
                Ok(ConsensusReply::Accepted { cluster: agreed }) if agreed == cluster => {}
                Ok(ConsensusReply::Refused(why)) => {
                    return Err(Obstacle::FoundingRefused { member, why });
                }
                Ok(_) => return Err(Obstacle::UnexpectedReply { member }),
                Err(source) => return Err(Obstacle::NoAnswer { member, source }),
            }
        }
        match self.adopt_cluster(cluster).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Obstacle::JoinedAnother),
            Err(error) => Err(error.into()),
        }
    }
}
