//! The part of a driver that all drivers share: messages of a site to itself, and fences.
//!
//! # Fences
//! Each message of a lock carries the sender's *fence clock*, and a site that enters takes its clock plus one as the
//! fence of that entry. In an asynchronous system, the exit from one critical section happens before the next entry
//! that [conflicts](crate::Sharing::conflict) with it; nothing else could order the two. The clock travels along the
//! messages that ordered them, so fences rise strictly from one conflicting entry to the next, under every algorithm:
//!
//! ```text
//! S1 enters with fence 1, leaves      its clock is 1
//! S1 sends TOKEN to S2                the message carries 1; the clock of S2 becomes at least 1
//! S2 enters with fence 2
//! ```
//!
//! Entries that may overlap (readers, the permits of a semaphore) are not ordered and may have equal fences. Only
//! algorithms that continue after a crash have to know about fences: no message has travelled from the entry of the
//! dead holder, so they skip the number that it may have used ([`Out::skip_fence`]) or raise the clock
//! ([`Out::raise_fence`]).

use crate::{Inspect, Out, Protocol, SiteId};

/// One site as a driver stores it: the state of the protocol and the fence clock of its lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site<P> {
    id: SiteId,
    protocol: P,
    fence: u64,
}

impl<P: Protocol> Site<P> {
    /// Creates a site with a fence clock of 0. `out` receives the actions of the protocol's start.
    pub fn new(id: SiteId, out: &mut Out<P>, start: impl FnOnce(&mut Out<P>) -> P) -> Self {
        out.begin(id);
        let protocol = start(out);
        let mut site = Self { id, protocol, fence: 0 };
        site.settle(out);
        site
    }

    /// The state of the algorithm.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// The state of the algorithm, mutable for checkers that renumber its counters to keep them small.
    pub fn protocol_mut(&mut self) -> &mut P {
        &mut self.protocol
    }

    /// Replaces every site number; see [`Inspect::rename`].
    pub fn rename(&mut self, to: &dyn Fn(SiteId) -> SiteId)
    where
        P: Inspect,
    {
        self.id = to(self.id);
        self.protocol.rename(to);
    }

    /// The fence clock, which the driver sends with every message.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// The fence of an entry. The driver calls this once for each entry, BEFORE it sends the messages of that step.
    pub fn stamp(&mut self) -> u64 {
        self.fence += 1;
        self.fence
    }

    /// Reserves the next `stamps` fences for the site inside, which may use them for further entries of its own. No
    /// other entry gets one of them or a lower one.
    pub fn set_aside(&mut self, stamps: u64) {
        self.fence += stamps;
    }

    /// Handles a request or release of the application.
    pub fn input(&mut self, input: P::Input, out: &mut Out<P>) {
        out.begin(self.id);
        self.protocol.input(input, out);
        self.settle(out);
    }

    /// Runs one step through a method of the protocol itself, for requests that [`Protocol::Input`] cannot express.
    pub fn step(&mut self, out: &mut Out<P>, act: impl FnOnce(&mut P, &mut Out<P>)) {
        out.begin(self.id);
        act(&mut self.protocol, out);
        self.settle(out);
    }

    /// Handles a message and the sender's fence clock.
    pub fn deliver(&mut self, from: SiteId, fence: u64, message: P::Message, out: &mut Out<P>) {
        self.fence = self.fence.max(fence);
        out.begin(self.id);
        self.protocol.message(from, message, out);
        self.settle(out);
    }

    /// Handles a timer that has expired.
    pub fn timer(&mut self, timer: P::Timer, out: &mut Out<P>) {
        out.begin(self.id);
        self.protocol.timer(timer, out);
        self.settle(out);
    }

    /// Handles a suspicion of the failure detector.
    pub fn suspect(&mut self, suspect: SiteId, out: &mut Out<P>) {
        out.begin(self.id);
        self.protocol.suspect(suspect, out);
        self.settle(out);
    }

    /// Delivers the messages of the site to itself until none is left, then applies the step's changes of the fence
    /// clock.
    fn settle(&mut self, out: &mut Out<P>) {
        while let Some(message) = out.local.pop_front() {
            self.protocol.message(self.id, message, out);
        }
        self.fence = self.fence.max(out.fence_floor) + out.skipped_fences;
    }
}
