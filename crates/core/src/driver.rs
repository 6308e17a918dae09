//! The half of a driver that all drivers share.
//!
//! # Fences for free
//! Each message of a lock carries the sender's *fence clock*, and a site that enters stamps the entry
//! with its clock plus one. In an asynchronous system the exit from one critical section must happen
//! before the next entry that [conflicts](crate::Sharing::conflict) with it, or nothing could have ordered
//! the two; so along the messages that ordered them the clock has travelled, and fences rise strictly from
//! one conflicting entry to the next, whatever the algorithm. Entries that may be inside together, readers or the
//! permits of a semaphore, are not ordered by anything. No algorithm knows of it, but for those that go on after a
//! crash: nothing has travelled from the dead holder's entry, so they leave out the number that it may have used
//! ([`Out::skip_fence`]), or raise the clock themselves ([`Out::raise_fence`]).

use crate::{Out, Protocol, SiteId};

/// A site as a driver keeps it: the protocol's state and the fence clock of its lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site<P> {
    id: SiteId,
    protocol: P,
    fence: u64,
}

impl<P: Protocol> Site<P> {
    /// A site with a fresh fence clock. `out` holds what the protocol did at its start.
    pub fn new(id: SiteId, out: &mut Out<P>, start: impl FnOnce(&mut Out<P>) -> P) -> Self {
        out.begin(id);
        let protocol = start(out);
        let mut site = Self { id, protocol, fence: 0 };
        site.settle(out);
        site
    }

    /// The algorithm's state.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// The algorithm's state, for checkers that keep its numbers small.
    pub fn protocol_mut(&mut self) -> &mut P {
        &mut self.protocol
    }

    /// The fence clock, to be sent along with every message.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Stamps an entry: to be called for each entry BEFORE the messages of that step are sent.
    pub fn stamp(&mut self) -> u64 {
        self.fence += 1;
        self.fence
    }

    /// Sets so many stamps aside that follow the last one: whoever is inside may use them for further entries of its own, and nobody
    /// else ever gets one of them or a lower one.
    pub fn set_aside(&mut self, stamps: u64) {
        self.fence += stamps;
    }

    /// The application asks for something.
    pub fn input(&mut self, input: P::Input, out: &mut Out<P>) {
        self.step(out, |protocol, out| protocol.input(input, out));
    }

    /// The application asks for something by a method of the protocol's own.
    pub fn step(&mut self, out: &mut Out<P>, act: impl FnOnce(&mut P, &mut Out<P>)) {
        out.begin(self.id);
        act(&mut self.protocol, out);
        self.settle(out);
    }

    /// A message arrives, with the sender's fence clock.
    pub fn deliver(&mut self, from: SiteId, fence: u64, message: P::Message, out: &mut Out<P>) {
        self.fence = self.fence.max(fence);
        self.step(out, |protocol, out| protocol.message(from, message, out));
    }

    /// A timer has run out.
    pub fn timer(&mut self, timer: P::Timer, out: &mut Out<P>) {
        self.step(out, |protocol, out| protocol.timer(timer, out));
    }

    /// The failure detector suspects a site.
    pub fn suspect(&mut self, suspect: SiteId, out: &mut Out<P>) {
        self.step(out, |protocol, out| protocol.suspect(suspect, out));
    }

    /// Delivers what the site sent to itself, until nothing is left; then leaves out the fences that the step wants left out.
    fn settle(&mut self, out: &mut Out<P>) {
        while let Some(message) = out.local.pop_front() {
            self.protocol.message(self.id, message, out);
        }
        self.fence = self.fence.max(out.fence_floor) + out.skipped_fences;
    }
}
