//! Forwarding along a ring some of whose sites are dead.
//!
//! A site sends a message to its successor and waits for an acknowledgement. If none arrives in time, it takes the
//! successor for dead and sends the message to the next site. This needs no failure detector, only the bound on delays
//! that elections assume anyway; over TCP the acknowledgement would be the transport's. It is counted under its own
//! name, ACK, so that the counts of ELECTION and COORDINATOR are those of the papers. A site does not remember dead
//! successors: they may be back.
//!
//! No site knows the number of sites: it only needs the successor of a given site.

use crate::{MessageKind, MessageKinds, Out, Protocol, SiteId};
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The round of a site that has just come up and does not know the current round.
pub const UNKNOWN: u32 = 0;

/// A message along the ring: a forwarded message, or its acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RingMessage<B> {
    /// A forwarded message.
    Body {
        /// The sender's number for the message.
        number: u32,
        /// The content of the message.
        body: B,
    },
    /// The acknowledgement of a message.
    Ack {
        /// The sender's number for the message.
        number: u32,
    },
}

impl<B: MessageKinds> MessageKinds for RingMessage<B> {
    const KINDS: &'static [MessageKind] =
        &[MessageKind::enter("ELECTION"), MessageKind::enter("COORDINATOR"), MessageKind::enter("ACK")];

    fn kind(&self) -> usize {
        match self {
            Self::Body { body, .. } => body.kind(),
            Self::Ack { .. } => 2,
        }
    }
}

impl<B: fmt::Display> fmt::Display for RingMessage<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body { body, .. } => body.fmt(f),
            Self::Ack { .. } => f.write_str("ACK"),
        }
    }
}

/// The timer of a message whose acknowledgement is overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Overdue(pub u32);

/// The direction of the ring: the order of successors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// S1 → S2 → … → S1.
    #[default]
    Up,
    /// S1 ← S2 ← … ← S1.
    Down,
}

/// A site's position on the ring, and the messages that it has sent and that are not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Relay<B> {
    me: SiteId,
    sites: usize,
    direction: Direction,
    timeout_milli_t: u64,
    /// The messages by number. Numbers are reused, so that a site that repeats its actions returns to the same state.
    unacknowledged: Vec<Option<(SiteId, B)>>,
}

impl<B: Clone> Relay<B> {
    /// The position of a site that has not sent a message yet.
    pub fn new(me: SiteId, sites: usize, direction: Direction, timeout_milli_t: u64) -> Self {
        Self { me, sites, direction, timeout_milli_t, unacknowledged: Vec::new() }
    }

    fn after(&self, site: SiteId) -> SiteId {
        match self.direction {
            Direction::Up => site.next_on_ring(self.sites),
            Direction::Down => SiteId::new((site.index() + self.sites - 1) % self.sites),
        }
    }

    /// Sends a message to the successor.
    pub fn hand_on<P>(&mut self, body: B, out: &mut Out<P>)
    where
        P: Protocol<Message = RingMessage<B>, Timer = Overdue>,
    {
        self.hand_to(self.after(self.me), body, out);
    }

    /// Sends a message that `dead` did not acknowledge to the successor of `dead`.
    pub fn pass_over<P>(&mut self, dead: SiteId, body: B, out: &mut Out<P>)
    where
        P: Protocol<Message = RingMessage<B>, Timer = Overdue>,
    {
        self.hand_to(self.after(dead), body, out);
    }

    fn hand_to<P>(&mut self, to: SiteId, body: B, out: &mut Out<P>)
    where
        P: Protocol<Message = RingMessage<B>, Timer = Overdue>,
    {
        let free = self.unacknowledged.iter().position(Option::is_none);
        let place = free.unwrap_or(self.unacknowledged.len());
        if free.is_none() {
            self.unacknowledged.push(None);
        }
        self.unacknowledged[place] = Some((to, body.clone()));
        let number = u32::try_from(place).unwrap_or(u32::MAX);
        out.arm(Overdue(number), self.timeout_milli_t);
        out.send(to, RingMessage::Body { number, body });
    }

    /// Handles an acknowledgement.
    pub fn acknowledged<P>(&mut self, from: SiteId, number: u32, out: &mut Out<P>)
    where
        P: Protocol<Message = RingMessage<B>, Timer = Overdue>,
    {
        let place = self.unacknowledged.get_mut(number as usize);
        if place.is_some_and(|place| place.take_if(|(to, _)| *to == from).is_some()) {
            out.disarm(Overdue(number));
            self.forget_empty_places();
        }
    }

    /// Handles a missing acknowledgement: returns the silent site and the message.
    pub fn overdue(&mut self, Overdue(number): Overdue) -> Option<(SiteId, B)> {
        let message = self.unacknowledged.get_mut(number as usize)?.take();
        self.forget_empty_places();
        message
    }

    fn forget_empty_places(&mut self) {
        while self.unacknowledged.last().is_some_and(Option::is_none) {
            self.unacknowledged.pop();
        }
    }
}
