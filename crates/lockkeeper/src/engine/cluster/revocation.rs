//! Holds that an operator revokes: the holder is notified, and has the rest of its lease to stop.
//!
//! The member keeps a revoked lock until the client releases it, or until every promise to the client has expired. A
//! [`ClientSession`](lockkeeper_session::ClientSession) releases a revoked hold at once, because it cannot know whether
//! it is in use. So the link withholds the revocation from the session until the holder has released the lock or its
//! lease has expired:
//!
//! ```text
//! operator   release --force
//! member     Ended(Revoked) ── keeps the lock ──────────────┬ free
//! link                 └ Guard::lost()                      │
//! holder                  └ SIGTERM … stops … release() ────┘ or the end of its lease
//! ```

use crate::Loss;
use crate::lease::Lease;
use lockkeeper_session::{Ended, LockName, ToClient};
use std::collections::BTreeMap;

/// A hold in a link's session.
pub(super) struct LinkHold {
    pub lease: Lease,
    pub lock: LockName,
    /// Whether the holder was notified that the hold is revoked.
    pub revoked: bool,
    /// The operator that revokes it, as far as the member has named one.
    pub revoked_by: Option<String>,
}

impl LinkHold {
    /// The reason for the loss if the hold is revoked.
    pub fn revocation(&self) -> Loss {
        Loss::Revoked { by: self.revoked_by.clone() }
    }

    /// Whether the hold was revoked and the member may have granted the lock to another client since.
    pub fn is_over(&self) -> bool {
        self.revoked && self.lease.valid_for().is_zero()
    }
}

/// Notifies the holders of revoked holds. Returns what is left of the message for the session: nothing about holds that
/// their holders may still use.
pub(super) fn withhold(held: &mut BTreeMap<u64, LinkHold>, message: ToClient) -> Option<ToClient> {
    match message {
        ToClient::RevokedBy { number, by } => {
            if let Some(hold) = held.get_mut(&number) {
                hold.revoked_by = Some(by);
            }
            None
        }
        ToClient::Ended { number, outcome: Ended::Revoked } if in_use(held, number) => None,
        ToClient::Alive { generation, sent_ns, duration_ns, mut revoked, recorded } => {
            revoked.retain(|number| !in_use(held, *number));
            Some(ToClient::Alive { generation, sent_ns, duration_ns, revoked, recorded })
        }
        other => Some(other),
    }
}

/// Notifies the holder of a revoked hold. Returns whether it may still use the hold. No renewal has an effect from here
/// on: the member does not count it.
fn in_use(held: &mut BTreeMap<u64, LinkHold>, number: u64) -> bool {
    let Some(hold) = held.get_mut(&number) else { return false };
    hold.lease.revoke(hold.revocation());
    hold.revoked = true;
    !hold.is_over()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease;
    use lockkeeper_session::Generation;
    use std::time::Duration;

    fn held(ttl: Duration) -> BTreeMap<u64, LinkHold> {
        let lease = Lease::expiring(lease::now(), ttl);
        [(7, LinkHold { lease, lock: LockName::new("a"), revoked: false, revoked_by: None })].into()
    }

    fn alive(revoked: Vec<u64>) -> ToClient {
        let generation = Generation::default();
        ToClient::Alive { generation, sent_ns: 1, duration_ns: 2, revoked, recorded: None }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_revoked_hold_stays_with_its_holder_for_the_rest_of_its_lease() {
        let ended = ToClient::Ended { number: 7, outcome: Ended::Revoked };
        for (message, passed_on) in [(ended, None), (alive(vec![6, 7, 8]), Some(alive(vec![6, 8])))] {
            let mut held = held(HOUR);
            assert_eq!(withhold(&mut held, message.clone()), passed_on);
            let hold = &held[&7];
            assert!(hold.revoked && !hold.lease.is_valid(), "its holder has to stop");
            assert!(hold.lease.valid_for() > HOUR / 2, "the lock is not free before");
            assert!(!hold.lease.renewed(lease::now(), HOUR * 2), "the member counts no renewal");
            assert_eq!(withhold(&mut held, message), passed_on, "messages are repeated");
        }
    }

    #[tokio::test]
    async fn the_loss_names_the_operator_that_the_member_has_named_before() {
        let mut held = held(HOUR);
        let named = ToClient::RevokedBy { number: 7, by: String::from("root") };
        assert_eq!(withhold(&mut held, named), None);
        assert!(held[&7].lease.is_valid(), "the revocation itself follows");
        withhold(&mut held, ToClient::Ended { number: 7, outcome: Ended::Revoked });
        assert_eq!(held[&7].lease.lost().await, Loss::Revoked { by: Some(String::from("root")) });
        let unknown = ToClient::RevokedBy { number: 8, by: String::from("root") };
        assert_eq!(withhold(&mut held, unknown), None);
    }

    #[test]
    fn a_revoked_hold_is_given_up_when_its_lease_is_over_or_it_is_not_in_use() {
        let mut over = held(Duration::ZERO);
        assert_eq!(withhold(&mut over, alive(vec![7])), Some(alive(vec![7])));
        assert!(over[&7].is_over());
        let mut none = BTreeMap::new();
        let ended = ToClient::Ended { number: 7, outcome: Ended::Revoked };
        assert_eq!(withhold(&mut none, ended.clone()), Some(ended));
        let released = ToClient::Ended { number: 7, outcome: Ended::Released };
        assert_eq!(withhold(&mut held(HOUR), released.clone()), Some(released));
    }
}
