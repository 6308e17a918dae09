//! The messages between client and daemon: the values in the frames.

use crate::{LockMode, ToClient, ToMember};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::string::String;
use std::vec::Vec;

/// The secret of a session's client: 128 random bits, the same over all its connections to all daemons. A session accepts
/// only messages of a connection with this secret and with a token of the same name as the token that opened it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Secret([u8; 16]);

impl Secret {
    /// Wraps these bits. They must come from a cryptographic random number generator.
    pub fn new(random: [u8; 16]) -> Self {
        Self(random)
    }

    /// The bits, for a daemon that computes a hash of them.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
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
    /// The client's secret. It proves that this is the client that opened the sessions.
    pub secret: Secret,
    /// The token, which decides about the client's permissions.
    pub token: Option<String>,
    /// Whether the client will request locks. Only a daemon that serves accepts such a client; other clients may query
    /// any daemon.
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

/// The daemon's answer to [`Hello`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Greeting {
    /// The client is accepted.
    Welcome(Welcome),
    /// The client cannot be served now, with the reason. Another daemon may serve it, or this one later.
    NotNow(String),
    /// The client is rejected, with the reason.
    Refused(String),
}

/// Facts about the daemon and its cluster that a client needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// The daemon's member.
    pub member: u32,
    /// Maximum promised lease of a session, in nanoseconds. The client renews more often than this.
    pub lease_ns: u64,
    /// Time that the acquisition of a free lock takes at most, from any member, in nanoseconds.
    pub moment_ns: u64,
    /// Current number of members of the cluster.
    pub members: u32,
    /// The shortest time to live of a recorded hold, in nanoseconds: a request for less gets this.
    pub shortest_ttl_ns: u64,
    /// The longest time to live of a recorded hold, in nanoseconds: a request for more gets this.
    pub longest_ttl_ns: u64,
}

/// A message from a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToDaemon {
    /// A message to the member, from the client's session with this number.
    Session(u64, ToMember),
    /// A query. Its number comes back with the answer.
    Query(u64, DaemonQuery),
    /// The client does not wait for the answer to this query any more. The daemon ends the query, and answers it all the
    /// same.
    Cancel(u64),
}

/// A query or a command. Commands are idempotent, so a client may repeat them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum DaemonQuery {
    /// Lists the holders and waiters of one lock, or of all locks, over the whole cluster.
    Locks(Option<String>),
    /// Sends [`FromDaemon::Changed`] whenever the answer to [`Locks`](Self::Locks) may have changed, until the
    /// connection ends.
    Watch,
    /// Reports the state of the cluster.
    Cluster,
    /// Revokes all current holds of a lock.
    ForceRelease(String),
    /// Explains why the waiters of this lock wait.
    Why(String),
    /// Removes a dead member from the cluster.
    Remove(u32),
    /// Makes the daemon's member leave the cluster, and then the daemon exit.
    Leave,
    /// Changes settings of the whole cluster, as pairs like `lease` and `2s`.
    Set(Vec<(String, String)>),
    /// Lists holders and waiters over the whole cluster page by page, ordered by the locks' names.
    LocksPage {
        /// The prefix of the names.
        prefix: String,
        /// Lists only locks whose names follow this one.
        after: Option<String>,
        /// Maximum number of locks. The daemon may send fewer.
        limit: u32,
    },
    /// Acquires a lock for a named owner, whose hold needs no session: see [`DetachedRequest`].
    HoldAs(DetachedRequest),
    /// Reads or changes the detached hold of an owner.
    Detached {
        /// The lock's name.
        lock: String,
        /// The owner's name.
        owner: String,
        /// The command on the hold.
        command: DetachedCommand,
    },
}

/// A request for a detached hold: it belongs to a named owner, and lasts until it is released or its deadline passes. If
/// the owner has the hold already, its deadline moves. The owner is one of the principal that requests the hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachedRequest {
    /// The lock's name.
    pub lock: String,
    /// The mode in which the lock is requested.
    pub mode: LockMode,
    /// The owner's name.
    pub owner: String,
    /// The purpose of the hold, for operators.
    pub purpose: String,
    /// The time from the grant to the deadline.
    pub lasts_ns: u64,
    /// The time to live for a process that works under the hold, which does not end before this time has passed since
    /// its last [keep-alive](DetachedCommand::KeepAlive). 0: there is no process.
    pub ttl_ns: u64,
    /// The timeout; `None` waits without limit.
    pub timeout_ns: Option<u64>,
}

/// A command about a detached hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DetachedCommand {
    /// Reads the hold. With a duration, first moves the deadline to that time from now.
    Find {
        /// The time from now to the new deadline.
        lasts_ns: Option<u64>,
    },
    /// Releases the hold for its owner, unless a process still works under it.
    Release,
    /// Keeps the hold alive for the process that works under it.
    KeepAlive,
    /// The process has ended its work: the hold lasts until its deadline, and ends now if that has passed.
    Leave,
    /// The process gives the hold back at once.
    Discard,
    /// The caller of a [`DaemonQuery::HoldAs`] has given up: its hold is released.
    Withdraw,
}

/// The state of a detached hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachedLine {
    /// The mode of the hold.
    pub mode: LockMode,
    /// The fence; `None` for a permit.
    pub fence: Option<u64>,
    /// The time until the deadline.
    pub left_ns: u64,
    /// The time for which a process may rely on the hold without another keep-alive.
    pub valid_for_ns: u64,
}

/// A message from a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromDaemon {
    /// A message from the member, to the client's session with this number.
    Session(u64, ToClient),
    /// The daemon rejects a request, or a session, before it reaches the member.
    Refuse {
        /// The number of the session.
        session: u64,
        /// The number of the acquisition; 0 is the session itself.
        number: u64,
        /// The reason for the refusal.
        why: Refusal,
    },
    /// The answer to the query with that number.
    Reply(u64, DaemonReply),
    /// The locks may have changed.
    Changed,
}

/// The reason why the daemon rejects a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The name is in use in another mode. A name is either a mutex (exclusive and shared) or a semaphore with one
    /// number of permits.
    InUseAs(LockMode),
    /// The request is not permitted, or it exceeds a limit.
    Because(String),
}

/// The answer to a query.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum DaemonReply {
    /// The command has been carried out.
    Done,
    /// The command was rejected, with the reason.
    Refused(String),
    /// The locks with their holders and waiters.
    Locks(Vec<LockLine>),
    /// The state of the cluster.
    Cluster(ClusterLine),
    /// Number of revoked holds.
    Released(u32),
    /// Sentences that describe which clients wait for which holders.
    Why(Vec<String>),
    /// A page of the list of locks.
    LocksPage {
        /// The locks of this page with their holders and waiters.
        locks: Vec<LockLine>,
        /// The name after which the next page begins. `None` if this is the last page.
        next: Option<String>,
        /// Approximate number of locks after this page.
        left_out: u64,
    },
    /// The command has an invalid value, with the reason. Repeating it cannot succeed.
    Invalid(String),
    /// The state of a detached hold after the command.
    Detached {
        /// The hold; `None` if the owner has none, or the lock was not free in time.
        hold: Option<DetachedLine>,
        /// Whether the command has released the hold, or ended the work of its process.
        released: bool,
        /// The reason why the process has lost the hold.
        lost: Option<String>,
        /// The operator that has revoked it.
        revoked_by: Option<String>,
    },
}

/// One lock with its holders and waiters in the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockLine {
    /// The lock's name.
    pub name: String,
    /// The present holders of the lock.
    pub holders: Vec<ParticipantLine>,
    /// The waiters. The one that has waited longest comes first.
    pub waiters: Vec<ParticipantLine>,
}

/// A holder or a waiter of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParticipantLine {
    /// The acquisition as text, for display.
    pub acquisition: String,
    /// The member that serves the client.
    pub member: u32,
    /// The mode of the hold or of the request.
    pub mode: LockMode,
    /// The name that the client gives itself.
    pub owner: String,
    /// The purpose that the client states.
    pub purpose: String,
    /// The fence of the hold. `None` for a waiter, and for a mode without fences.
    pub fence: Option<u64>,
    /// Time of the grant or of the request, in milliseconds of Unix time on the machine of its member.
    pub since_ms: u64,
    /// The deadline of a detached hold, in milliseconds of Unix time: `owner` holds the lock until then without a client.
    pub detached_until_ms: Option<u64>,
    /// Whether the client of the hold is disconnected, or has sent nothing since its member crashed or left: the hold
    /// ends with its time to live if the client does not come back.
    pub in_jeopardy: bool,
}

/// The state of the cluster as one member sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterLine {
    /// The cluster's name.
    pub cluster: String,
    /// The algorithm of its locks.
    pub algorithm: String,
    /// The member that reports this state.
    pub member: u32,
    /// Whether it grants locks.
    pub serves: bool,
    /// The reason why it does not grant locks or does not take part. `None` if it does both.
    pub trouble: Option<String>,
    /// The epoch of its view; 0 if it is in no view.
    pub epoch: u64,
    /// Remaining time of its lease, in milliseconds.
    pub lease_ms: u64,
    /// The leader of the voters, if it knows one.
    pub leader: Option<u32>,
    /// All members known to the cluster.
    pub members: Vec<MemberLine>,
    /// The settings that all members share, as pairs like `lease` and `1200ms`.
    pub settings: Vec<(String, String)>,
}

/// One member as another one sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberLine {
    /// The member's number.
    pub id: u32,
    /// The address on which other members reach it; `none` if it does not listen for members.
    pub address: String,
    /// Whether it votes on views.
    pub votes: bool,
    /// Whether it is in the view.
    pub in_view: bool,
    /// Whether the reporting member has a connection to it now.
    pub connected: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn hello_has_this_form_and_hides_its_secrets() {
        let secret = Secret::new([7; 16]);
        let hello = Hello { secret, token: Some(String::from("lk_x")), for_locks: true };
        let mut bytes = Vec::new();
        crate::protocol::encode(&hello, &mut bytes);
        let golden = [&[0, 0, 0, 23][..], &[7; 16], &[1, 4], b"lk_x", &[1]].concat();
        assert_eq!(bytes, golden);
        assert_eq!(format!("{hello:?}"), "Hello { secret: Secret(…), token: Some(\"…\"), for_locks: true }");
    }
}
