//! The configuration of a member at its start.

use crate::error::Result;
use crate::join_token::{JoinToken, JoinTokenError};
use crate::net::{self, tls::Tls};
use lockkeeper_consensus as consensus;
use lockkeeper_member::{ClusterSettings, Config as MemberConfig, Fence, MemberId, SettingsError};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The reason why a configuration is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The configuration has both first members and members to join, or neither.
    #[error("give either the `first_members` of a new cluster or members of a cluster to `join`, not both")]
    FirstMembersOrJoin,
    /// The list of first members does not contain this member.
    #[error("{id} is not among the first members; add it there, or `join`")]
    NotAFirstMember {
        /// The number of this member.
        id: MemberId,
    },
    /// A member of several has no join token.
    #[error(
        "members of one cluster must have the same join token: give the file that `lockkeeper cluster init` or \
         `lockkeeper up --listen` wrote (`join_token`, --join-token)"
    )]
    NoJoinToken,
    /// Other members cannot reach this one at its address.
    #[error(
        "{address} means every address of this machine: set the address on which other members reach it (`advertise`, \
         --advertise HOST:PORT)"
    )]
    UnspecifiedAddress {
        /// The address that others cannot reach.
        address: String,
    },
    /// The number of voters is even or out of range.
    #[error("{voters} voters: an odd number from 1 to 7 is needed, since a majority decides")]
    Voters {
        /// The number of voters.
        voters: usize,
    },
    /// The member was started without a join token, and its cluster has other members.
    #[error(
        "this member's cluster has other members ({peer}), and it was started without the join token and does not listen \
         for them: start it as before (`lockkeeper up --listen IP:PORT`, or `join_token` in its configuration)"
    )]
    HasPeers {
        /// One of the other members.
        peer: MemberId,
    },
    /// The algorithm or the times cannot work.
    #[error(transparent)]
    Member(#[from] SettingsError),
    /// There is no join token.
    #[error(transparent)]
    JoinToken(#[from] JoinTokenError),
    /// The network cannot work with its settings or certificates.
    #[error(transparent)]
    Network(net::Error),
    /// Consensus cannot work with its settings.
    #[error(transparent)]
    Consensus(consensus::SettingsError),
}

/// The configuration of a member. All members of a cluster must agree on the algorithm and on the [`Times`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The cluster's name. Connections from members of another cluster are rejected.
    pub cluster: String,
    /// The id of this member.
    pub id: MemberId,
    /// The address on which it listens for other members, if it has a [`join_token`](Self::join_token). An address
    /// beyond loopback requires TLS or `insecure_no_tls`.
    pub listen: SocketAddr,
    /// The secret that all members of the cluster share. A process without it cannot connect as a member. `None` for a
    /// cluster of one that no other member joins; such a member does not listen for members at all.
    pub join_token: Option<JoinToken>,
    /// The address on which other members reach it, as `host:port`. Default: the address it listens on.
    pub advertise: Option<String>,
    /// The members that found a new cluster, including this one. All of them must be up at the same time once, at the
    /// very first start. Empty to join an existing cluster.
    pub first_members: BTreeMap<MemberId, String>,
    /// Members of an existing cluster, as `host:port`. The member requests one of them to admit it.
    pub join: Vec<String>,
    /// The directory for votes, views and epochs. No two members may share it.
    pub data: PathBuf,
    /// Certificates for the connections between members.
    pub tls: Option<Tls>,
    /// Allows connections without TLS beyond loopback. An attacker who can change packets on the network can then
    /// acquire and release every lock.
    pub insecure_no_tls: bool,
    /// The algorithm of the cluster's mutexes.
    pub algorithm: String,
    /// Options of the algorithm, such as `tree=line`.
    pub settings: Vec<(String, String)>,
    /// Maximum number of voters: an odd number up to 7.
    pub most_voters: usize,
    /// For use after the loss of all disks: the highest epoch of any fence ever seen, so that fences keep rising. The
    /// epochs of a new cluster start above the founder's wall clock in any case. If it is not 0, the new cluster grants
    /// nothing until every hold that the lost one may have recorded has certainly expired.
    pub epoch_above: u64,
    /// Leases, timeouts and bounds on delays.
    pub times: Times,
    /// How long a hold is in use before it is recorded in the consensus log, so that it survives this member. A shorter
    /// time makes more holds durable, at the cost of two writes for each. Default: 50 ms.
    pub record_after: Duration,
}

impl Config {
    /// The configuration of a cluster of one member. It does not listen for other members, unless it gets a
    /// [`join_token`](Self::join_token); then it listens on loopback, on a port that the system chooses.
    pub fn alone(data: impl Into<PathBuf>) -> Self {
        let id = MemberId(1);
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { first_members: BTreeMap::from([(id, listen.to_string())]), ..Self::new(id, listen, data) }
    }

    /// The configuration of one member of several. The caller must also set the [`join_token`](Self::join_token) that
    /// all of them share, and either [`first_members`](Self::first_members) or [`join`](Self::join).
    pub fn new(id: MemberId, listen: SocketAddr, data: impl Into<PathBuf>) -> Self {
        Self {
            cluster: String::from("lockkeeper"),
            id,
            listen,
            join_token: None,
            advertise: None,
            first_members: BTreeMap::new(),
            join: Vec::new(),
            data: data.into(),
            tls: None,
            insecure_no_tls: false,
            algorithm: String::from("naimi-trehel"),
            settings: Vec::new(),
            most_voters: 5,
            epoch_above: 0,
            times: Times::default(),
            record_after: Duration::from_nanos(MemberConfig::new([]).record_after_ns),
        }
    }

    /// Validates the configuration.
    pub fn check(&self) -> Result<()> {
        if self.first_members.is_empty() == self.join.is_empty() {
            return Err(ConfigError::FirstMembersOrJoin.into());
        }
        if !self.first_members.is_empty() && !self.first_members.contains_key(&self.id) {
            return Err(ConfigError::NotAFirstMember { id: self.id }.into());
        }
        if self.join_token.is_none() && (self.first_members.len() > 1 || !self.join.is_empty()) {
            return Err(ConfigError::NoJoinToken.into());
        }
        let everywhere =
            |address: &str| address.parse().is_ok_and(|address: SocketAddr| address.ip().is_unspecified());
        let address = self.advertise.clone().unwrap_or_else(|| self.listen.to_string());
        if self.join_token.is_some() && everywhere(&address) {
            return Err(ConfigError::UnspecifiedAddress { address }.into());
        }
        if !(1..=7).contains(&self.most_voters) || self.most_voters.is_multiple_of(2) {
            return Err(ConfigError::Voters { voters: self.most_voters }.into());
        }
        Ok(self.member().check().map_err(ConfigError::Member)?)
    }

    /// The settings of the network.
    pub(crate) fn net(&self) -> Result<net::Settings> {
        // A member without peers uses a random token, which no other process knows.
        let token = match &self.join_token {
            Some(token) => token.clone(),
            None => JoinToken::random().map_err(ConfigError::JoinToken)?,
        };
        Ok(net::Settings {
            me: self.id,
            cluster: self.cluster.clone(),
            listen: self.join_token.as_ref().map(|_| self.listen),
            token,
            tls: self.tls.clone(),
            insecure_no_tls: self.insecure_no_tls,
            limits: net::Limits::default(),
        })
    }

    /// The settings of consensus. The longest election is one that has to be repeated once.
    pub(crate) fn consensus(&self, address: String) -> consensus::Settings {
        let election = self.times.election;
        let mut first_members = self.first_members.clone();
        // With port 0, the system has chosen the port.
        if let Some(own) = first_members.get_mut(&self.id) {
            own.clone_from(&address);
        }
        consensus::Settings {
            me: self.id,
            address,
            first_members,
            join: self.join.clone(),
            directory: self.data.clone(),
            heartbeat: election / 8,
            election: (election / 2, election),
            most_voters: self.most_voters,
            epoch_above: self.epoch_above.max(epoch_floor()),
            cluster: self.cluster_settings(),
        }
    }

    /// The settings with which this member founds a cluster. An existing cluster has its own, which every member
    /// adopts.
    pub(crate) fn cluster_settings(&self) -> ClusterSettings {
        let algorithm = (String::from(lockkeeper_core::any::ALGORITHM), self.algorithm.clone());
        let times = &self.times;
        ClusterSettings {
            algorithm: std::iter::once(algorithm).chain(self.settings.iter().cloned()).collect(),
            lease_ns: nanoseconds(times.lease),
            longest_lease_ns: nanoseconds(times.longest_lease.max(times.lease)),
            shortest_ttl_ns: nanoseconds(times.shortest_ttl),
            longest_ttl_ns: nanoseconds(times.longest_ttl.max(times.shortest_ttl)),
            renewal_ns: nanoseconds(times.renewal),
            silence_ns: nanoseconds(times.silence),
            settle_ns: nanoseconds(times.settle),
            drift_ppm: times.drift_ppm,
        }
    }

    /// The configuration of the state machine.
    pub(crate) fn member(&self) -> MemberConfig {
        let ns = nanoseconds;
        let times = &self.times;
        MemberConfig {
            cluster: self.cluster_settings(),
            election_ns: ns(times.election),
            round_trip_ns: ns(times.round_trip),
            resend_ns: ns(times.resend),
            acknowledge_ns: ns(times.resend / 4),
            // An operator names the last epoch when all disks are lost: then holds of the lost cluster may be in use.
            is_new: self.epoch_above == 0,
            record_after_ns: ns(self.record_after),
            unix_ns_at_zero: lockkeeper_system::lease_clock::unix_ns_at_zero(),
            ..MemberConfig::new(self.first_members.keys().copied())
        }
    }
}

/// The lower bound of the epochs of a new cluster: the seconds since the beginning of 2024 on this machine's wall
/// clock. The same members may have been a cluster before that lost all its disks. Its epochs were lower, unless it
/// changed its view more often than once per second on average.
fn epoch_floor() -> u64 {
    const BEGINNING: Duration = Duration::from_secs(1_704_067_200);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(BEGINNING).as_secs().min(Fence::LARGEST_EPOCH / 2)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Leases, timeouts and bounds on delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Times {
    /// Length of a member's lease, counted from its last renewal. Holds of a crashed member are released after this
    /// time plus a view change.
    pub lease: Duration,
    /// The longest lease that the members may ever have had. A new cluster grants nothing for this long, because all
    /// members may have lost their data just before, while their leases were running.
    pub longest_lease: Duration,
    /// The shortest time to live of a hold that survives its member.
    pub shortest_ttl: Duration,
    /// The longest time to live of a hold that survives its member: a waiter waits this long after a crash of the holder.
    pub longest_ttl: Duration,
    /// Interval between renewals of the lease.
    pub renewal: Duration,
    /// Time without a message after which a member is suspected to have crashed.
    pub silence: Duration,
    /// Maximum duration of an election among the voters.
    pub election: Duration,
    /// Maximum duration of a query and its reply, or of a decision of the voters.
    pub round_trip: Duration,
    /// Time after which an unacknowledged message is sent again.
    pub resend: Duration,
    /// Minimum duration of a view before another member may join.
    pub settle: Duration,
    /// Maximum drift of the machines' clocks, in parts per million.
    pub drift_ppm: u64,
}

impl Default for Times {
    /// Times for a local network. After a crash, the other members grant again within two seconds.
    fn default() -> Self {
        Self {
            lease: Duration::from_millis(1200),
            longest_lease: Duration::from_millis(1200),
            shortest_ttl: Duration::from_secs(1),
            longest_ttl: Duration::from_secs(60),
            renewal: Duration::from_millis(200),
            silence: Duration::from_millis(700),
            election: Duration::from_millis(400),
            round_trip: Duration::from_millis(100),
            resend: Duration::from_millis(50),
            settle: Duration::from_millis(500),
            drift_ppm: 500,
        }
    }
}

impl Times {
    /// Times for machines on one network segment that are never paused for long. After a crash, the other members grant
    /// again within half a second.
    pub fn tuned() -> Self {
        Self {
            lease: Duration::from_millis(300),
            longest_lease: Duration::from_millis(300),
            shortest_ttl: Duration::from_secs(1),
            longest_ttl: Duration::from_secs(60),
            renewal: Duration::from_millis(50),
            silence: Duration::from_millis(150),
            election: Duration::from_millis(100),
            round_trip: Duration::from_millis(20),
            resend: Duration::from_millis(20),
            settle: Duration::from_millis(200),
            drift_ppm: 500,
        }
    }

    /// Multiplies all durations by a factor, for slow networks and loaded machines.
    pub fn times(self, factor: u32) -> Self {
        Self {
            lease: self.lease * factor,
            longest_lease: self.longest_lease * factor,
            shortest_ttl: self.shortest_ttl,
            longest_ttl: self.longest_ttl,
            renewal: self.renewal * factor,
            silence: self.silence * factor,
            election: self.election * factor,
            round_trip: self.round_trip * factor,
            resend: self.resend * factor,
            settle: self.settle * factor,
            drift_ppm: self.drift_ppm,
        }
    }
}
