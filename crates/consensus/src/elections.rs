//! Election timeouts: the time at which a voter stands for election.
//!
//! The library picks one election timeout per process and checks it at fixed intervals. Two voters whose intervals
//! coincide request votes at the same time in every term, for ever. (Terms with several leaders would hide that; ours
//! have one.) So this module triggers elections itself, after a timeout that is drawn anew each time, as in Raft's
//! paper. Voters reject candidates while they receive messages of a leader; that check stays with the library, whose
//! lease is the shortest timeout.

use super::{Inner, locked};
use openraft::ServerState;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

impl Inner {
    /// Called when a message of a leader arrives.
    pub(super) fn leader_message_received(&self) {
        *locked(&self.last_leader_message) = Some(Instant::now());
        self.restart_election_timeout();
    }

    /// Restarts the election timeout. Called when a message of a leader arrives, or when this store has granted its
    /// vote and the candidate needs time.
    pub(super) fn restart_election_timeout(&self) {
        *locked(&self.silence_since) = Instant::now();
    }

    /// Starts an election whenever the timeout expires, until consensus stops.
    pub(super) async fn elect(&self, mut stopping: watch::Receiver<bool>) {
        loop {
            let since = *locked(&self.silence_since);
            let until = since + self.election_timeout();
            tokio::select! {
                () = sleep_until(until) => {}
                _ = stopping.changed() => return,
            }
            if since != *locked(&self.silence_since) {
                // A leader or candidate was active meanwhile: wait again, with a new random timeout.
                continue;
            }
            self.restart_election_timeout();
            let (voter, leads) = self.is_voter_and_leader();
            let starts = voter && !leads && !self.steps_down.load(Ordering::Relaxed);
            if starts && self.raft.trigger().elect().await.is_err() {
                return;
            }
        }
    }

    /// Whether this store is a voter, and whether it leads.
    fn is_voter_and_leader(&self) -> (bool, bool) {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let voter = metrics.membership_config.voter_ids().any(|store| store == self.store.name());
        (voter, metrics.state == ServerState::Leader)
    }

    /// A new random election timeout.
    fn election_timeout(&self) -> Duration {
        let (shortest, longest) = self.settings.election;
        let alone = self.raft.metrics().borrow().membership_config.voter_ids().eq([self.store.name()]);
        if alone {
            // There is no other voter to wait for.
            return self.settings.heartbeat;
        }
        let random = getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX));
        shortest + (longest - shortest).mul_f64(random)
    }
}
