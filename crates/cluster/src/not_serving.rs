//! [`NotServing`]: the reason why a member grants no locks at the moment.

use lockkeeper_member::MemberId;
use std::fmt;
use std::time::Duration;

/// A report of why a member grants no locks, for how long, and which members it cannot reach. Its `Display` form is a
/// sentence for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotServing {
    /// The member that grants no locks.
    pub member: MemberId,
    /// The reason why it grants no locks.
    pub reason: NotServingReason,
    /// Whether it has a lease nevertheless. Then it only waits for the end of a view change, which is short.
    pub has_lease: bool,
    /// Time without a lease. `None` if it has a lease, has left or has stopped.
    pub lasts: Option<Duration>,
    /// Members of the cluster to which it has no connection.
    pub unreachable: Vec<MemberId>,
}

/// A reason why a member grants no locks, as far as the member knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotServingReason {
    /// The member has just started.
    Starts,
    /// The founding of the cluster, a join, or consensus is waiting. The text names what for.
    Waits(String),
    /// No leader is known.
    NoLeader {
        /// Number of voters.
        voters: usize,
        /// Number of voters without a connection to this member.
        missing: usize,
    },
    /// A leader is known, but this member has no connection to it.
    LeaderUnreachable(MemberId),
    /// A leader is known, but grants no lease because it does not reach a majority of the voters.
    NoQuorum {
        /// The leader of the voters.
        leader: MemberId,
        /// Number of voters.
        voters: usize,
        /// Number of voters without a connection to this member.
        missing: usize,
    },
    /// The member is in no view, and waits for the leader to admit it.
    Joins {
        /// The leader of the voters.
        leader: MemberId,
        /// Whether it was in a view before and was excluded because it had been silent for too long.
        excluded: bool,
    },
    /// The cluster is new, and its first view starts after one lease. Its members may be those of a cluster that lost
    /// its disks, and leases of that cluster must expire first.
    Founds,
    /// A view change is in progress.
    ViewChanges,
    /// The member has left its cluster.
    Left,
    /// The member has stopped, for this reason.
    Stopped(String),
}

impl fmt::Display for NotServing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { member, reason, lasts, unreachable, .. } = self;
        match reason {
            NotServingReason::Left => return write!(f, "member {} has left its cluster", member.0),
            NotServingReason::Stopped(why) => return write!(f, "member {} has stopped: {why}", member.0),
            NotServingReason::Founds => {
                return write!(
                    f,
                    "member {} grants no lock yet: the cluster is new, and its first view waits for one lease",
                    member.0
                );
            }
            NotServingReason::ViewChanges => {
                return write!(f, "member {} grants no lock while its view changes: try again", member.0);
            }
            _ => {}
        }
        match lasts {
            Some(lasts) => {
                write!(f, "member {} has had no lease for {:.1} s", member.0, lasts.as_secs_f64())?
            }
            None => write!(f, "member {} has no lease", member.0)?,
        }
        let majority = |voters: usize| voters / 2 + 1;
        match reason {
            NotServingReason::Starts => write!(f, ": it has just started")?,
            NotServingReason::Waits(why) => write!(f, ": {}", why.trim_end_matches('.'))?,
            NotServingReason::NoLeader { voters, .. } => {
                let needed = majority(*voters);
                write!(f, ": no leader is known; {needed} of {voters} voters must reach each other")?;
            }
            NotServingReason::LeaderUnreachable(leader) => {
                write!(f, ": the leader, member {}, cannot be reached", leader.0)?;
            }
            NotServingReason::NoQuorum { leader, voters, .. } => {
                let needed = majority(*voters);
                let who = if leader == member {
                    String::from("it leads")
                } else {
                    format!("member {} leads", leader.0)
                };
                write!(f, ": {who}, and does not reach a majority ({needed} of {voters} voters)")?;
            }
            NotServingReason::Joins { leader, excluded } => {
                let was =
                    if *excluded { "it was excluded from the view, and" } else { "it is in no view, and" };
                write!(f, ": {was} waits for the leader, member {}, to let it in", leader.0)?;
            }
            NotServingReason::Founds
            | NotServingReason::ViewChanges
            | NotServingReason::Left
            | NotServingReason::Stopped(_) => {}
        }
        match &unreachable[..] {
            [] => Ok(()),
            [one] => write!(f, "; it has no connection to member {}", one.0),
            [first @ .., last] => {
                let first: Vec<String> = first.iter().map(|id| id.0.to_string()).collect();
                write!(f, "; it has no connection to members {} and {}", first.join(", "), last.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_names_the_reason_the_time_and_the_members_that_cannot_be_reached() {
        let trouble = |reason, unreachable: &[u32]| NotServing {
            member: MemberId(1),
            reason,
            has_lease: false,
            lasts: Some(Duration::from_millis(3210)),
            unreachable: unreachable.iter().copied().map(MemberId).collect(),
        };
        let no_leader = trouble(NotServingReason::NoLeader { voters: 3, missing: 2 }, &[2, 3]);
        assert_eq!(
            no_leader.to_string(),
            "member 1 has had no lease for 3.2 s: no leader is known; 2 of 3 voters must reach each other; it has no connection to \
             members 2 and 3"
        );
        let leads = trouble(NotServingReason::NoQuorum { leader: MemberId(1), voters: 5, missing: 3 }, &[4]);
        assert_eq!(
            leads.to_string(),
            "member 1 has had no lease for 3.2 s: it leads, and does not reach a majority (3 of 5 voters); it has no connection to \
             member 4"
        );
        let waits = trouble(NotServingReason::Waits(String::from("waits for member 2.")), &[]);
        assert_eq!(waits.to_string(), "member 1 has had no lease for 3.2 s: waits for member 2");
    }
}
