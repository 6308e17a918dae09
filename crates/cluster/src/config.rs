//! What a member is told at its start.

use crate::consensus;
use crate::error::{Error, Result};
use crate::join_token::JoinToken;
use crate::net::{self, tls::Tls};
use lockkeeper_member::{ClusterSettings, Config as MemberConfig, Fence, MemberId};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A member's configuration. All members of a cluster must agree on the algorithm and on the [`Times`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's name: members of another one are refused.
    pub cluster: String,
    /// Which member this is.
    pub id: MemberId,
    /// Where it listens for other members, if it has a [`join_token`](Self::join_token). Beyond loopback it must have TLS, or
    /// `insecure_no_tls`.
    pub listen: SocketAddr,
    /// The secret that all members of the cluster share: no process without it can connect as a member. `None` for a cluster of
    /// one that no other member joins: it does not listen for members at all.
    pub join_token: Option<JoinToken>,
    /// Where the others reach it, as `host:port`; the address it listens on, unless said otherwise.
    pub advertise: Option<String>,
    /// With whom a new cluster begins, this member among them: all of them must be up once, at the very first start. Empty to join
    /// a cluster that exists.
    pub first_members: BTreeMap<MemberId, String>,
    /// Members of an existing cluster, as `host:port`, one of which is asked to let this one in.
    pub join: Vec<String>,
    /// Where votes, views and epochs are kept. Two members never share it.
    pub data: PathBuf,
    /// Certificates for the connections between members.
    pub tls: Option<Tls>,
    /// Accepts connections without TLS beyond loopback: who can change packets on the network can take and free every lock.
    pub insecure_no_tls: bool,
    /// The algorithm of the cluster's mutexes.
    pub algorithm: String,
    /// Its settings, as `tree=line`.
    pub settings: Vec<(String, String)>,
    /// How many members vote on views at most: an odd number up to 7.
    pub most_voters: usize,
    /// After the loss of all disks: the highest epoch of any fence ever seen, so that fences rise on. The epochs of a new
    /// cluster begin above the founder's wall clock in any case.
    pub epoch_above: u64,
    /// How long things take and last.
    pub times: Times,
}

impl Config {
    /// One member alone. It does not listen for other members; with a [`join_token`](Self::join_token) it does, on loopback at a
    /// port that the system chooses.
    pub fn alone(data: impl Into<PathBuf>) -> Self {
        let id = MemberId(1);
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { first_members: BTreeMap::from([(id, listen.to_string())]), ..Self::new(id, listen, data) }
    }

    /// One member of several, which all have the same [`join_token`](Self::join_token); say with whom it begins
    /// ([`first_members`](Self::first_members)) or whom it [joins](Self::join).
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
        }
    }

    /// Refuses what cannot work.
    pub fn check(&self) -> Result<()> {
        let bad = |reason: String| Err(Error::Config(reason));
        if self.first_members.is_empty() == self.join.is_empty() {
            return bad(String::from(
                "say either with whom the cluster begins (`first_members`) or whom to `join`, and not both",
            ));
        }
        if !self.first_members.is_empty() && !self.first_members.contains_key(&self.id) {
            return bad(format!("{} is not among the first members; add it there, or `join`", self.id));
        }
        if self.join_token.is_none() && (self.first_members.len() > 1 || !self.join.is_empty()) {
            return bad(String::from(
                "members of one cluster must have the same join token: give the file that `lockkeeper cluster init` or \
                 `lockkeeper up --listen` wrote (`join_token`, --join-token)",
            ));
        }
        let everywhere =
            |address: &str| address.parse().is_ok_and(|address: SocketAddr| address.ip().is_unspecified());
        let address = self.advertise.clone().unwrap_or_else(|| self.listen.to_string());
        if self.join_token.is_some() && everywhere(&address) {
            return bad(format!(
                "{address} is every address of this machine and no address for the others: say where they reach it \
                 (`advertise`, --advertise HOST:PORT)"
            ));
        }
        if !(1..=7).contains(&self.most_voters) || self.most_voters.is_multiple_of(2) {
            let voters = self.most_voters;
            return bad(format!(
                "{voters} voters: an odd number from 1 to 7 is needed, since a majority decides"
            ));
        }
        self.member().check().map_err(Error::Config)
    }

    /// The same for the network.
    pub(crate) fn net(&self) -> Result<net::Settings> {
        // A member without peers has a token that no process knows.
        let token = match &self.join_token {
            Some(token) => token.clone(),
            None => JoinToken::random().map_err(Error::Config)?,
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

    /// The same for consensus. The longest election is one that begins again once.
    pub(crate) fn consensus(&self, address: String) -> consensus::Settings {
        let election = self.times.election;
        let mut first_members = self.first_members.clone();
        // The system may have chosen the port.
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

    /// The settings with which this member founds a cluster. A cluster that exists has its own, which every member takes over.
    pub(crate) fn cluster_settings(&self) -> ClusterSettings {
        let algorithm = (String::from(lockkeeper_core::any::ALGORITHM), self.algorithm.clone());
        let times = &self.times;
        ClusterSettings {
            algorithm: std::iter::once(algorithm).chain(self.settings.iter().cloned()).collect(),
            lease_ns: nanoseconds(times.lease),
            longest_lease_ns: nanoseconds(times.longest_lease.max(times.lease)),
            renewal_ns: nanoseconds(times.renewal),
            silence_ns: nanoseconds(times.silence),
            settle_ns: nanoseconds(times.settle),
            drift_ppm: times.drift_ppm,
        }
    }

    /// The same for the state machine.
    pub(crate) fn member(&self) -> MemberConfig {
        let ns = nanoseconds;
        let times = &self.times;
        MemberConfig {
            cluster: self.cluster_settings(),
            election_ns: ns(times.election),
            round_trip_ns: ns(times.round_trip),
            resend_ns: ns(times.resend),
            acknowledge_ns: ns(times.resend / 4),
            unix_ns_at_zero: crate::clock::unix_ns_at_zero(),
            ..MemberConfig::new(self.first_members.keys().copied())
        }
    }
}

/// The epochs of a new cluster begin above this: the seconds since the beginning of 2024, by this machine's wall clock. The members may have been
/// a cluster before that lost all its disks; its epochs were lower, unless it changed its view more often than once a second.
fn epoch_floor() -> u64 {
    const BEGINNING: Duration = Duration::from_secs(1_704_067_200);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(BEGINNING).as_secs().min(Fence::LARGEST_EPOCH / 2)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How long things take and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long a member may let its clients hold locks after it was last heard. A crash costs this much, and a moment.
    pub lease: Duration,
    /// The longest lease that the members may ever have had. A new cluster grants nothing for so long, because all members may have
    /// lost their data just before.
    pub longest_lease: Duration,
    /// How often a member renews its lease.
    pub renewal: Duration,
    /// After how long without a word a member is taken for dead.
    pub silence: Duration,
    /// The longest time in which the voters elect a new leader.
    pub election: Duration,
    /// The longest time for a question and its answer, or a decision of the voters.
    pub round_trip: Duration,
    /// After how long something unanswered is sent again.
    pub resend: Duration,
    /// For how long a view runs before somebody may join it.
    pub settle: Duration,
    /// By how much the machines' clocks run fast or slow at most, in millionths.
    pub drift_ppm: u64,
}

impl Default for Times {
    /// For a local network: others go on within two seconds of a crash.
    fn default() -> Self {
        Self {
            lease: Duration::from_millis(1200),
            longest_lease: Duration::from_millis(1200),
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
    /// For machines side by side that are never paused for long: others go on within half a second of a crash.
    pub fn tuned() -> Self {
        Self {
            lease: Duration::from_millis(300),
            longest_lease: Duration::from_millis(300),
            renewal: Duration::from_millis(50),
            silence: Duration::from_millis(150),
            election: Duration::from_millis(100),
            round_trip: Duration::from_millis(20),
            resend: Duration::from_millis(20),
            settle: Duration::from_millis(200),
            drift_ppm: 500,
        }
    }

    /// Everything so many times as long, for slow networks and loaded machines.
    pub fn times(self, factor: u32) -> Self {
        Self {
            lease: self.lease * factor,
            longest_lease: self.longest_lease * factor,
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
