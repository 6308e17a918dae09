//! States up to the names of the sites, the distances of timestamps, and deliveries that change nothing yet.
//!
//! Lamport's algorithm and the bakery compare requests by (time, site). With clocks that advance by exactly one, equal
//! times occur, and the site number decides: sites are not alike. But the papers ask only that a later event has a
//! *larger* time. This search therefore explores a larger system, in which a clock may advance by any amount at any
//! time, and in which every run of the original has a counterpart: the pair (time, site) becomes one of the distinct
//! times of the larger system, in the same order. In it, only the order of the requests matters, no two are equal, and
//! the sites are alike. docs/checker.md has the argument in full.
//!
//! A state is stored in a canonical form:
//! - the requests that still occur somewhere have the times 8, 16, 24, …, in their order;
//! - a clock is 8k + 1, if k of these requests precede it. Where a clock lies between two requests makes no difference,
//!   since it may advance;
//! - a message whose time the receiver compares with its own request is later than that request, or has time 0;
//! - what matters only for further requests is dropped at a site that makes none;
//! - of the states that differ in the names of the sites, one is chosen.
//!
//! Example: S1 has requested at time 5 with its clock at 9, and S3's clock is 4. In the canonical form, the request has
//! the time 8, S1's clock is 9, and S3's is 1: it has not seen the request, and may request before it or after it.
//!
//! A step explores each relevant choice of the clock: a request is placed between any two requests that the clock does
//! not exclude, and a message to a waiting site may be later than its request, whether its sender has seen that or not.
//! A request is also placed among the messages that are under way to its site.
//!
//! Silent deliveries are deferred as in [`super::reduce`], and further: a silent delivery before a step is explored only
//! if it changes what the step does.

pub(super) mod assumptions;
mod canonical;
mod commute;
mod expand;

use super::net::{Explorer, Net};
use crate::checker::explore::intern::Known;
use crate::checker::explore::{Goals, Model};
use canonical::Canonical;
use commute::Prefixes;
use lockkeeper_core::Stamp;

/// The distance of the requests' times in a canonical state.
const APART: u64 = 8;
/// A new request is placed this far behind the request before it.
const HALF: u64 = APART / 2;

/// The clock of a site that follows the request with this time.
const fn just_after(time: u64) -> u64 {
    time + 1
}

/// Sets a clock to the start of its half of the interval between two requests, after a step that has advanced it by a
/// few ticks. Two clocks of the same half admit the same steps.
pub(super) fn round(stamp: Stamp<'_>) {
    if let Stamp::Clock(time) = stamp {
        *time = just_after(*time / HALF * HALF);
    }
}

/// A system of machines that are alike, ready for a search by symmetry.
pub struct Symmetric {
    /// The machines. The net is [`Net::symmetric`].
    pub net: Net,
}

impl Model for Symmetric {
    type Worker<'m> = Symmetrical<'m>;

    fn slots(&self) -> usize {
        self.net.slots()
    }

    fn tallies(&self) -> usize {
        self.net.tallies()
    }

    fn goals(&self) -> Goals {
        self.net.goals()
    }

    fn worker(&self) -> Symmetrical<'_> {
        let explorer = Explorer::new(&self.net);
        Symmetrical {
            canonical: Canonical::new(explorer.machines),
            prefixes: Prefixes::new(explorer.machines),
            rows: Vec::new(),
            here: Vec::new(),
            times: Vec::new(),
            new_requests: Known::default(),
            message_times: Known::default(),
            explorer,
        }
    }
}

/// The most machines of a search by symmetry: each local step is verified under every permutation of them.
pub const MOST_MACHINES: usize = 5;

/// Expands states of a [`Symmetric`] system.
pub struct Symmetrical<'m> {
    explorer: Explorer<'m>,
    canonical: Canonical,
    prefixes: Prefixes,
    /// Buffers: the successors of one step before they are made canonical, the state after silent deliveries, and
    /// the times to which the clock may advance before a step.
    rows: Vec<u32>,
    here: Vec<u32>,
    times: Vec<u64>,
    /// For each outcome of a step, the time of the request that it makes.
    new_requests: Known<Option<u64>>,
    /// For each message, the time that its receiver compares with its own request.
    message_times: Known<Option<u64>>,
}

impl Symmetrical<'_> {
    /// The coverage so far. If one site enters, then some run has any other enter instead.
    pub fn seen(&self) -> super::seen::Seen {
        let mut seen = self.explorer.seen().clone();
        if seen.entered != 0 {
            seen.entered = (1 << self.explorer.machines) - 1;
        }
        seen
    }
}
