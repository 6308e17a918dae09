//! When a voter wants to lead.
//!
//! The library picks one election timeout for the whole life of a process, and looks at it at fixed intervals: two voters whose intervals
//! coincide ask for votes at the same time, in every term, for ever. (Terms with several leaders would hide that; ours have one.) So it is
//! told when to elect: after a silence that is drawn anew each time, as Raft's paper says. Voters refuse whoever asks while they hear a leader:
//! that stays with the library, whose lease is the shortest silence.

use super::{Inner, locked};
use openraft::ServerState;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

impl Inner {
    /// A leader was heard.
    pub(super) fn leader_is_heard(&self) {
        *locked(&self.leader_heard) = Some(Instant::now());
        self.silence_ends();
    }

    /// A leader was heard, or somebody got this store's vote and has to be given time.
    pub(super) fn silence_ends(&self) {
        *locked(&self.silence_since) = Instant::now();
    }

    /// Elects when it is quiet for too long, until consensus stops.
    pub(super) async fn elect(&self, mut stopping: watch::Receiver<bool>) {
        loop {
            let since = *locked(&self.silence_since);
            let until = since + self.patience();
            tokio::select! {
                () = sleep_until(until) => {}
                _ = stopping.changed() => return,
            }
            if since != *locked(&self.silence_since) {
                continue;
            }
            self.silence_ends();
            let (voter, leads) = self.standing();
            let stands = voter && !leads && !self.steps_down.load(Ordering::Relaxed);
            if stands && self.raft.trigger().elect().await.is_err() {
                return;
            }
        }
    }

    /// Whether this store has a vote, and whether it leads.
    fn standing(&self) -> (bool, bool) {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let voter = metrics.membership_config.voter_ids().any(|store| store == self.store.name());
        (voter, metrics.state == ServerState::Leader)
    }

    /// How long a silence is borne this time.
    fn patience(&self) -> Duration {
        let (shortest, longest) = self.settings.election;
        let alone = self.raft.metrics().borrow().membership_config.voter_ids().eq([self.store.name()]);
        if alone {
            // Nobody else to wait for.
            return self.settings.heartbeat;
        }
        let random = getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX));
        shortest + (longest - shortest).mul_f64(random)
    }
}
