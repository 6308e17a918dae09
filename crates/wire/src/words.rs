//! The values in the frames.

use lockkeeper_member::{Claim, ToClient, ToMember};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The secret of a client: 128 random bits, the same over all its connections to all daemons. Sessions can be used only with it, and
/// only with a token of the same name as the one that opened them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Secret([u8; 16]);

impl Secret {
    /// These bits, which nobody can guess.
    pub fn new(random: [u8; 16]) -> Self {
        Self(random)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The first message of a client.
#[derive(Clone, Serialize, Deserialize)]
pub struct Hello {
    /// Proves that this is the client that opened its sessions.
    pub secret: Secret,
    /// The token, which decides what the client may do.
    pub token: Option<String>,
    /// Whether it comes for locks, and so only to a daemon that serves; otherwise to look around.
    pub for_locks: bool,
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { secret, token, for_locks } = self;
        let token = token.as_ref().map(|_| "…");
        f.debug_struct("Hello")
            .field("secret", secret)
            .field("token", &token)
            .field("for_locks", for_locks)
            .finish()
    }
}

/// The daemon's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Greeting {
    /// At your service.
    Welcome(Welcome),
    /// Not now: another daemon may serve, or this one later.
    NotNow(String),
    /// Not here, and why.
    Refused(String),
}

/// What a client must know of the daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Which member of the cluster it is.
    pub member: u32,
    /// How long a session is promised to live on, at most, in nanoseconds: it is kept alive more often than that.
    pub lease_ns: u64,
    /// In how many nanoseconds a free lock can be had, whichever member has it.
    pub moment_ns: u64,
    /// How many members the cluster has now.
    pub members: u32,
}

/// From a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToDaemon {
    /// To the member, by the client's session of this number.
    Say(u64, ToMember),
    /// A question, under a number that comes back with the answer.
    Ask(u64, Ask),
}

/// Questions. Asking again does nothing twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Who holds and waits, over the whole cluster; one lock, or all.
    Locks(Option<String>),
    /// From now on, tell when the answer to [`Locks`](Self::Locks) may have changed, until the connection ends.
    Watch,
    /// How the cluster stands.
    Cluster,
    /// Take a lock away from all who hold it now.
    ForceRelease(String),
    /// Why whoever waits for this lock waits.
    Why(String),
    /// Give a dead member up.
    Remove(u32),
    /// The daemon's member leaves the cluster, and the daemon ends.
    Leave,
    /// Change the settings of the whole cluster, as `lease` and `2s`.
    Set(Vec<(String, String)>),
    /// Who holds and waits, over the whole cluster, page by page in the order of the locks' names.
    LocksPage {
        /// How the names begin.
        prefix: String,
        /// Only the locks whose names follow this one.
        after: Option<String>,
        /// At most so many locks. The daemon may send fewer.
        limit: u32,
    },
}

/// From a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromDaemon {
    /// From the member, to the client's session of this number.
    Hear(u64, ToClient),
    /// A wish, or a session, is refused before the member hears of it, and why.
    Refuse {
        /// The number of the session.
        session: u64,
        /// Which acquisition; 0 is the session itself.
        number: u64,
        /// What stands in the way.
        why: Refusal,
    },
    /// The answer to the question of that number.
    Answer(u64, Answer),
    /// The locks may have changed.
    Changed,
}

/// Why a wish is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The name is in use in another way: a name is a mutex, alone or shared, or one semaphore.
    InUseAs(How),
    /// It is not allowed, or too much.
    Because(String),
}

/// Answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Done, or from now on so.
    Done,
    /// Not done, and why.
    Refused(String),
    /// Who holds and waits.
    Locks(Vec<LockLine>),
    /// How the cluster stands.
    Cluster(ClusterLine),
    /// How many holds were taken away.
    Released(u32),
    /// Sentences that say who waits for whom.
    Why(Vec<String>),
    /// A page of the list of locks.
    LocksPage {
        /// Who holds and waits.
        locks: Vec<LockLine>,
        /// The next page follows this name; `None` if this is the last page.
        next: Option<String>,
        /// About how many locks follow.
        left_out: u64,
    },
}

/// One lock, as the whole cluster sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockLine {
    /// Its name.
    pub name: String,
    /// Who holds it.
    pub holders: Vec<Line>,
    /// Who waits, whoever has waited longest first.
    pub waiters: Vec<Line>,
}

/// How a lock is held or asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// Alone.
    Exclusive,
    /// Together with others who share.
    Shared,
    /// As one of so many permits.
    Permit(u32),
}

impl How {
    /// Whether two of these can be of one lock.
    pub fn goes_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Permit(one), Self::Permit(other)) => one == other,
            (Self::Permit(_), _) | (_, Self::Permit(_)) => false,
            _ => true,
        }
    }
}

impl From<Claim> for How {
    fn from(claim: Claim) -> Self {
        match claim {
            Claim::Alone => Self::Exclusive,
            Claim::Shared => Self::Shared,
            Claim::Permit(permits) => Self::Permit(permits),
        }
    }
}

/// Somebody who holds a lock or waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Which acquisition, for people.
    pub acquisition: String,
    /// Through which member.
    pub member: u32,
    /// How.
    pub how: How,
    /// Who it says it is.
    pub owner: String,
    /// What it says it is for.
    pub purpose: String,
    /// Its fence, if it holds the lock and there is one.
    pub fence: Option<u64>,
    /// Since when, in milliseconds of Unix time on its member's machine.
    pub since_ms: u64,
}

/// How the cluster stands, as one member sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterLine {
    /// The cluster's name.
    pub cluster: String,
    /// The algorithm of its locks.
    pub algorithm: String,
    /// Which member says this.
    pub member: u32,
    /// Whether it lets clients in.
    pub serves: bool,
    /// What keeps it from that, or from taking part.
    pub trouble: Option<String>,
    /// The epoch of its view; 0 if it is in none.
    pub epoch: u64,
    /// For how long its lease runs on, in milliseconds.
    pub lease_ms: u64,
    /// Who leads the voters, as far as it knows.
    pub leader: Option<u32>,
    /// Everybody known to the cluster.
    pub members: Vec<MemberLine>,
    /// The settings that all members share, as `lease` and `1200ms`.
    pub settings: Vec<(String, String)>,
}

/// One member, as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberLine {
    /// Its number.
    pub id: u32,
    /// Where members reach it.
    pub address: String,
    /// Whether it votes on views.
    pub votes: bool,
    /// Whether it is in the view.
    pub in_view: bool,
    /// Whether there is a connection to it now.
    pub connected: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_has_this_form_and_hides_its_secrets() {
        let secret = Secret::new([7; 16]);
        let hello = Hello { secret, token: Some(String::from("lk_x")), for_locks: true };
        let mut bytes = Vec::new();
        crate::encode(&hello, &mut bytes);
        let golden = [&[0, 0, 0, 23][..], &[7; 16], &[1, 4], b"lk_x", &[1]].concat();
        assert_eq!(bytes, golden);
        assert_eq!(format!("{hello:?}"), "Hello { secret: Secret(…), token: Some(\"…\"), for_locks: true }");
    }
}
