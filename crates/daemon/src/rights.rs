//! What a principal may do: every action of every protocol, and the right that it needs.
//!
//! Handlers call [`Action::check`] before they do anything. The table in `docs/security.md` is written by [`table`], which calls the same
//! function.

use crate::access::{Denied, Permission, Principal};
use std::fmt::Write;

/// Something that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Whether the daemon works, its counters without names of locks, and descriptions of its API.
    Health,
    /// Times that locks were waited for and held, by the first part of their names.
    MetricsOfLocks,
    /// Members, views and leases; what the caller's own token allows.
    Cluster,
    /// A session of the caller's own.
    NewSession,
    /// Keeping a session alive, ending it, looking at it; by the native protocol also releasing what it holds.
    UseSession,
    /// Acquiring a lock, also as the leader of an election.
    Acquire,
    /// Releasing what a session of the caller holds.
    Release,
    /// Holders and waiters of a lock, and why they wait. Lists and streams leave out what the caller may not see.
    See,
    /// Taking a lock away from its holders.
    ForceRelease,
    /// Removing a dead member.
    RemoveMember,
    /// Changing the settings of the whole cluster.
    ChangeSettings,
    /// Making the daemon leave its cluster and end.
    Leave,
}

/// What an action needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    /// Nothing: also callers without a token.
    Nothing,
    /// Any valid token.
    Token,
    /// `acquire` on some locks.
    HoldSomething,
    /// This permission on the lock.
    On(Permission),
    /// `observe` or `acquire` on the lock.
    See,
    /// `admin` on every lock.
    AdminOfAll,
    /// The token that created the session, or `admin` on every lock.
    OwnSession,
    /// Both: the session, and `acquire` on the lock.
    OwnSessionAndAcquire,
}

impl Right {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Token => "any valid token",
            Self::HoldSomething => "`acquire` on some locks",
            Self::On(Permission::Acquire) => "`acquire` on the lock",
            Self::On(Permission::Observe) => "`observe` on the lock",
            Self::On(Permission::Admin) => "`admin` on the lock",
            Self::See => "`observe` or `acquire` on the lock",
            Self::AdminOfAll => "`admin` on every lock (`\"\"`)",
            Self::OwnSession => "the token of the session, or `admin` on every lock",
            Self::OwnSessionAndAcquire => "the token of the session, and `acquire` on the lock",
        }
    }
}

/// An action's names: what it is, and what it is called in each protocol.
struct Names {
    what: &'static str,
    native: &'static [&'static str],
    http: &'static [&'static str],
    etcd: &'static [&'static str],
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Health,
        Self::MetricsOfLocks,
        Self::Cluster,
        Self::NewSession,
        Self::UseSession,
        Self::Acquire,
        Self::Release,
        Self::See,
        Self::ForceRelease,
        Self::RemoveMember,
        Self::ChangeSettings,
        Self::Leave,
    ];

    fn right(self) -> Right {
        match self {
            Self::Health => Right::Nothing,
            Self::Cluster => Right::Token,
            Self::NewSession => Right::HoldSomething,
            Self::UseSession => Right::OwnSession,
            Self::Acquire => Right::On(Permission::Acquire),
            Self::Release => Right::OwnSessionAndAcquire,
            Self::See | Self::MetricsOfLocks => Right::See,
            Self::ForceRelease => Right::On(Permission::Admin),
            Self::RemoveMember | Self::ChangeSettings | Self::Leave => Right::AdminOfAll,
        }
    }

    /// Whether a principal may do this to a lock. The daemon where a session lives
    /// checks (`owns_session`) that the principal may use it.
    pub fn check(self, who: &Principal, lock: &str) -> Result<(), Denied> {
        match self.right() {
            Right::Nothing => Ok(()),
            Right::Token | Right::OwnSession => who.check_valid(),
            Right::HoldSomething => who.check_valid().and_then(|()| who.check_holds()),
            Right::On(permission) => who.check(permission, lock),
            Right::OwnSessionAndAcquire => who.check(Permission::Acquire, lock),
            Right::AdminOfAll => who.check(Permission::Admin, ""),
            Right::See => {
                who.check(Permission::Acquire, lock).or_else(|_| who.check(Permission::Observe, lock))
            }
        }
    }

    /// The permission that a refusal names in the audit log.
    pub(crate) fn permission(self) -> Permission {
        match self.right() {
            Right::On(permission) => permission,
            Right::AdminOfAll => Permission::Admin,
            Right::See => Permission::Observe,
            _ => Permission::Acquire,
        }
    }

    fn names(self) -> Names {
        let names = |what, native, http, etcd| Names { what, native, http, etcd };
        match self {
            Self::Health => names(
                "health, counters without names of locks",
                &[],
                &["GET /healthz", "GET /readyz", "GET /metrics"],
                &["Auth/Authenticate"],
            ),
            Self::MetricsOfLocks => {
                names("times by the first part of names", &[], &["GET /metrics (with a token)"], &[])
            }
            Self::Cluster => names(
                "members, views, own rights",
                &["Cluster"],
                &["GET /v1/members", "GET /v1/status", "GET /v1/whoami"],
                &[],
            ),
            Self::NewSession => {
                names("create a session", &["session"], &["POST /v1/sessions"], &["Lease/LeaseGrant"])
            }
            Self::UseSession => names(
                "keep a session alive, end it",
                &["session", "release"],
                &["POST /v1/sessions/{session}/keep-alive", "DELETE /v1/sessions/{session}"],
                &["Lease/LeaseKeepAlive", "Lease/LeaseRevoke", "Lease/LeaseTimeToLive"],
            ),
            Self::Acquire => names(
                "acquire a lock",
                &["acquire"],
                &["POST /v1/locks/{name}/acquire"],
                &["Lock/Lock", "Election/Campaign"],
            ),
            Self::Release => names(
                "release a lock, say something as its leader",
                &[],
                &["POST /v1/locks/{name}/release"],
                &["Lock/Unlock", "Election/Proclaim", "Election/Resign"],
            ),
            Self::See => names(
                "see holders and waiters",
                &["Locks", "Watch", "Why"],
                &["GET /v1/locks", "GET /v1/locks/{name}", "GET /v1/locks/{name}/why", "GET /v1/watch"],
                &["Election/Leader", "Election/Observe", "Lease/LeaseLeases"],
            ),
            Self::ForceRelease => {
                names("take a lock away", &["ForceRelease"], &["POST /v1/locks/{name}/force-release"], &[])
            }
            Self::RemoveMember => names("remove a dead member", &["Remove"], &[], &[]),
            Self::ChangeSettings => names("change the cluster's settings", &["Set"], &[], &[]),
            Self::Leave => names("make the daemon leave", &["Leave"], &[], &[]),
        }
    }
}

/// Whether the sessions of `owner` may be used by a principal of this name, or by one with `admin` on every lock.
pub(crate) fn owns_session(owner: &str, who: &str, admin_of_all: bool) -> bool {
    admin_of_all || owner == who
}

/// The table of principals, rights and protocols, in Markdown.
pub fn table() -> String {
    let mut text = String::from(
        "| action | native | HTTP | etcd | needs | no token | no rights | `acquire` | `observe` | `admin` | `admin` on `\"\"` |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for action in Action::ALL {
        let Names { what, native, http, etcd } = action.names();
        let list = |names: &[&str]| {
            let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            if quoted.is_empty() { String::from("–") } else { quoted.join(", ") }
        };
        let right = action.right().name();
        let _ = write!(text, "| {what} | {} | {} | {} | {right} |", list(native), list(http), list(etcd));
        for who in examples() {
            let _ = write!(text, " {} |", cell(action, who.as_ref()));
        }
        text.push('\n');
    }
    text
}

/// Nobody, then principals with: no rights, one of the permissions on the lock, `admin` on every lock.
fn examples() -> [Option<Principal>; 6] {
    let with = |permissions: &[(Permission, &str)]| Some(Principal::example(permissions));
    [
        None,
        with(&[]),
        with(&[(Permission::Acquire, LOCKS)]),
        with(&[(Permission::Observe, LOCKS)]),
        with(&[(Permission::Admin, LOCKS)]),
        with(&[(Permission::Admin, "")]),
    ]
}

/// The prefix that the example principals have their rights on.
const LOCKS: &str = "a/";

fn cell(action: Action, who: Option<&Principal>) -> &'static str {
    let Some(who) = who else {
        return if action.right() == Right::Nothing { "yes" } else { "no" };
    };
    if action.check(who, "a/lock").is_err() {
        return "no";
    }
    let admin = who.check(Permission::Admin, "").is_ok();
    match action.right() {
        Right::OwnSession | Right::OwnSessionAndAcquire if owns_session("another", who.name(), admin) => {
            "any session"
        }
        Right::OwnSession | Right::OwnSessionAndAcquire => "own sessions",
        _ => "yes",
    }
}
