//! The order in which queued requests are granted: strictly first come, first served.

use crate::info::LockMode;

/// Whether a request of this mode may hold the lock, given the modes of all live requests ahead of it.
///
/// Example: behind two shared requests, a third shared one may hold the lock and an exclusive one may not.
pub(crate) fn may_hold(mode: LockMode, ahead: impl IntoIterator<Item = LockMode>) -> bool {
    mode.fits(ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_may_hold_only_if_no_request_ahead_conflicts() {
        let (exclusive, shared, permit) = (LockMode::Exclusive, LockMode::Shared, LockMode::Permit { of: 2 });
        for (mode, ahead, granted) in [
            (exclusive, vec![], true),
            (exclusive, vec![shared], false),
            (shared, vec![shared, shared], true),
            (shared, vec![shared, exclusive], false),
            (permit, vec![permit], true),
            (permit, vec![permit, permit], false),
        ] {
            assert_eq!(may_hold(mode, ahead.iter().copied()), granted, "{mode} behind {ahead:?}");
        }
    }
}
