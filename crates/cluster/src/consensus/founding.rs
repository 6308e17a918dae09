//! How a store becomes part of a cluster: by founding one or by joining one.
//!
//! # Why there is never a second cluster
//! Each cluster has a random id. A store belongs to one cluster only, whose id is on its disk, and accepts Raft
//! messages of that cluster alone. It may change to another cluster only while its log is blank.
//!
//! - Only the first member with the lowest number founds. It asks ALL first members; none may have an entry in its log,
//!   and each must adopt the new cluster's id. Then it initialises Raft with exactly the stores that answered.
//! - Every decision of a cluster is in the logs of a majority of its voters, which were first members or were admitted
//!   by such a decision. A founder that starts again with a new disk asks all first members: if one of them has an
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
use super::types::{Place, StoreName};
use super::voters::odd;
use super::wire::{Answer, Hello, Question};
use crate::store::{Change, Record, StoreError, encode};
use lockkeeper_member::MemberId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The unit of the wall clock from which the first epoch is derived.
const EPOCH_UNIT: Duration = Duration::from_secs(1);

impl Inner {
    /// Tries once to become part of a cluster. The error contains the obstacle.
    pub(super) async fn arrive(&self) -> Result<(), String> {
        // A leader whose address has changed sends the request to itself: a cluster of one has no other member.
        if self.picture().is_some() {
            return match self.join(self.store.name(), self.own_place()).await {
                Answer::Refused(why) => Err(why),
                _ => Ok(()),
            };
        }
        let blank = self.store.run(Log::is_blank).await.map_err(|error| error.to_string())?;
        let mine = if blank { None } else { *self.cluster.read().await };
        let hellos = self.look_around().await;
        let known: BTreeSet<u64> = hellos.iter().filter_map(|hello| hello.cluster).collect();
        // The cluster of this store, if it has one, and the number of clusters that the other members report.
        let cluster = match (mine, known.len()) {
            (Some(mine), _) if known.contains(&mine) => mine,
            (Some(_), 0) => return Err("no other member of this member's cluster answers yet".to_string()),
            (Some(_), _) => {
                return Err("the others are another cluster than the one of this member's disk: \
                            correct the addresses, or start this member with an empty directory"
                    .to_string());
            }
            (None, 0) => return self.found(&hellos).await,
            (None, 1) => known.first().copied().unwrap_or_default(),
            (None, _) => {
                return Err("the addresses given to this member belong to more than one cluster: \
                            give it those of one"
                    .to_string());
            }
        };
        let leaders: BTreeSet<(MemberId, String)> = hellos
            .into_iter()
            .filter(|hello| hello.cluster == Some(cluster))
            .filter_map(|hello| hello.leader)
            .collect();
        let mut trouble = "the cluster has no leader at the moment".to_string();
        for (leader, address) in leaders {
            match self.ask_to_join(leader, &address, cluster).await {
                Ok(()) => return Ok(()),
                Err(why) => trouble = why,
            }
        }
        Err(trouble)
    }

    /// Asks all members that this member knows for their identity.
    async fn look_around(&self) -> Vec<Hello> {
        let settings = &self.settings;
        let mut contacts: BTreeMap<String, Option<MemberId>> =
            settings.join.iter().map(|address| (address.clone(), None)).collect();
        let first = settings.first_members.iter().map(|(&id, address)| (address.clone(), Some(id)));
        contacts.extend(first.filter(|(_, id)| *id != Some(settings.me)));
        for (_, place) in self.raft.metrics().borrow().membership_config.nodes() {
            if place.member != settings.me {
                contacts.insert(place.address.clone(), Some(place.member));
            }
        }
        contacts.remove(&settings.address);
        let mut asking = tokio::task::JoinSet::new();
        for (address, id) in contacts {
            let (network, within) = (self.network.clone(), settings.election.1);
            asking.spawn(async move {
                match network.question(id, &address, Question::Hello, within).await {
                    Ok(Answer::Hello(hello)) if id.is_none_or(|id| id == hello.member) => Some(hello),
                    _ => None,
                }
            });
        }
        asking.join_all().await.into_iter().flatten().collect()
    }

    fn own_place(&self) -> Place {
        let settings = &self.settings;
        let (member, address) = (settings.me, settings.address.clone());
        Place { member, address, epoch_above: settings.epoch_above, since: 0 }
    }

    async fn ask_to_join(&self, leader: MemberId, address: &str, cluster: u64) -> Result<(), String> {
        let (settings, place) = (&self.settings, self.own_place());
        let asking =
            self.network.question(Some(leader), address, Question::Join { place }, settings.election.1);
        match asking.await {
            Ok(Answer::Yes { cluster: joined }) if joined == cluster => {
                self.belong(cluster).await.map(|_| ()).map_err(|error| error.to_string())
            }
            Ok(Answer::Refused(why)) => Err(why),
            Ok(_) => Err("the leader is changing".to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Adopts this cluster's id if the store is blank or has it already. The id is on disk when this returns.
    pub(super) async fn belong(&self, cluster: u64) -> Result<bool, StoreError> {
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
    async fn found(&self, hellos: &[Hello]) -> Result<(), String> {
        let settings = &self.settings;
        let first: Vec<MemberId> = settings.first_members.keys().copied().collect();
        if !first.contains(&settings.me) {
            return Err("no member of a cluster answers yet at the addresses to join".to_string());
        }
        for hello in hellos.iter().filter(|hello| first.contains(&hello.member)) {
            let differences = hello.settings.differences(&settings.cluster);
            if !differences.is_empty() {
                return Err(format!(
                    "{} is configured with other settings than {}: {differences}; give all first members the same \
                     settings",
                    hello.member, settings.me
                ));
            }
        }
        if first.first() != Some(&settings.me) {
            return Err(format!("waits for {} to begin the cluster", first[0]));
        }
        let mut stores: BTreeMap<MemberId, StoreName> = BTreeMap::from([(settings.me, self.store.name())]);
        let mut epoch_above = settings.epoch_above;
        for hello in hellos.iter().filter(|hello| first.contains(&hello.member)) {
            if hello.first_members != first {
                return Err(format!(
                    "{} was given other first members than this one: give the same list to all of them",
                    hello.member
                ));
            }
            epoch_above = epoch_above.max(hello.epoch_above);
            stores.insert(hello.member, hello.store);
        }
        let missing: Vec<String> =
            first.iter().filter(|id| !stores.contains_key(id)).map(ToString::to_string).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            return Err(format!(
                "waits for {missing}: a new cluster begins when all of its first members are there"
            ));
        }
        let cluster = getrandom::u64().map_err(|error| format!("no random numbers: {error}"))?.max(1);
        self.everybody_agrees(cluster).await?;
        let voters = odd(settings.most_voters.min(stores.len()));
        let place = |(member, store): (MemberId, StoreName)| {
            let address = settings.first_members[&member].clone();
            (store, Place { member, address, epoch_above, since: 0 })
        };
        let places: BTreeMap<StoreName, Place> = stores.into_iter().take(voters).map(place).collect();
        // Epochs start at the wall clock in seconds. A cluster that succeeds this one must start in a later second than
        // this one's first grant, which happens after one lease.
        let lease = Duration::from_nanos(settings.cluster.lease_ns);
        tokio::time::sleep(EPOCH_UNIT.saturating_sub(lease)).await;
        tracing::info!(cluster, voters, "founds a cluster");
        self.raft.initialize(places).await.map_err(|error| format!("the cluster cannot begin: {error}"))
    }

    async fn everybody_agrees(&self, cluster: u64) -> Result<(), String> {
        let settings = &self.settings;
        for (&id, address) in settings.first_members.iter().filter(|&(&id, _)| id != settings.me) {
            let question = Question::Found { cluster };
            match self.network.question(Some(id), address, question, settings.election.1).await {
                Ok(Answer::Yes { cluster: agreed }) if agreed == cluster => {}
                Ok(Answer::Refused(why)) => return Err(format!("{id} does not begin a new cluster: {why}")),
                Ok(_) => return Err(format!("{id} sent an answer that does not fit the query")),
                Err(error) => return Err(format!("waits for {id}: {error}")),
            }
        }
        match self.belong(cluster).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("this member has become part of another cluster".to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}
