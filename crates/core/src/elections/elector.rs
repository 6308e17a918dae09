//! An election embedded in another protocol that needs a new coordinator.
//!
//! The outer protocol owns an [`Elector`] and passes the events of the election to it. The election's messages and
//! timers travel inside those of the outer protocol. Its outcome is returned to the outer protocol only.

use super::bully::{self, Bully};
use super::ring_election::{self, RingElection};
use crate::election::Setup;
use crate::protocol::TimerChange;
use crate::{Elected, Election, MessageKind, MessageKinds, Out, Protocol, SiteId};
use core::fmt;
use serde::{Deserialize, Serialize};

/// The algorithm of the embedded election.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The bully election.
    #[default]
    Bully,
    /// The ring election with a list.
    Ring,
}

/// A message of the election.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// A message of a bully election.
    Bully(bully::Message),
    /// A message of a ring election.
    Ring(ring_election::Message),
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[
        MessageKind::enter("ELECTION"),
        MessageKind::enter("OK"),
        MessageKind::enter("COORDINATOR"),
        MessageKind::enter("ACK"),
    ];

    fn kind(&self) -> usize {
        match self {
            Self::Bully(message) => message.kind(),
            // A ring election has no OK.
            Self::Ring(message) => [0, 2, 3][message.kind()],
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bully(message) => message.fmt(f),
            Self::Ring(message) => message.fmt(f),
        }
    }
}

/// A timer of the election.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Timer {
    /// A timer of a bully election.
    Bully(<Bully as Protocol>::Timer),
    /// A timer of a ring election.
    Ring(<RingElection as Protocol>::Timer),
}

/// A protocol that contains an election.
pub trait Electorate: Protocol {
    /// Wraps a message of the election in one of this protocol.
    fn wrap(message: Message) -> Self::Message;

    /// Wraps a timer of the election in one of this protocol.
    fn wrap_timer(timer: Timer) -> Self::Timer;
}

/// An event of the election.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message of the election arrives.
    Message(SiteId, Message),
    /// A timer of the election expires.
    Timer(Timer),
    /// The failure detector suspects a site.
    Suspicion(SiteId),
}

/// One site's part of the election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Elector {
    /// A bully election.
    Bully(Bully),
    /// A ring election.
    Ring(RingElection),
}

impl Elector {
    /// Starts a site that knows the leader, or that campaigns because it does not. Also returns the leader, if one is
    /// elected at once.
    pub fn start<P: Electorate>(
        choice: Choice,
        me: SiteId,
        processes: usize,
        leader: Option<SiteId>,
        out: &mut Out<P>,
    ) -> (Self, Option<SiteId>) {
        match choice {
            Choice::Bully => {
                let setup = Setup { sites: processes, leader, seed: 0, options: Default::default() };
                let (site, elected) = step(out, |inner| Bully::start(me, &setup, inner));
                (Self::Bully(site), elected)
            }
            Choice::Ring => {
                let setup = Setup { sites: processes, leader, seed: 0, options: Default::default() };
                let (site, elected) = step(out, |inner| RingElection::start(me, &setup, inner));
                (Self::Ring(site), elected)
            }
        }
    }

    /// Handles an event. Returns the leader if this event elects one.
    pub fn handle<P: Electorate>(&mut self, event: Event, out: &mut Out<P>) -> Option<SiteId> {
        use {Message as M, Timer as T};
        let ((), elected) = match (self, event) {
            (Self::Bully(site), Event::Message(from, M::Bully(message))) => {
                step(out, |inner| site.message(from, message, inner))
            }
            (Self::Ring(site), Event::Message(from, M::Ring(message))) => {
                step(out, |inner| site.message(from, message, inner))
            }
            (Self::Bully(site), Event::Timer(T::Bully(timer))) => step(out, |inner| site.timer(timer, inner)),
            (Self::Ring(site), Event::Timer(T::Ring(timer))) => step(out, |inner| site.timer(timer, inner)),
            (Self::Bully(site), Event::Suspicion(suspect)) => step(out, |inner| site.suspect(suspect, inner)),
            (Self::Ring(site), Event::Suspicion(suspect)) => step(out, |inner| site.suspect(suspect, inner)),
            // All sites of a system use the same election.
            (Self::Bully(_), Event::Message(_, M::Ring(_)) | Event::Timer(T::Ring(_)))
            | (Self::Ring(_), Event::Message(_, M::Bully(_)) | Event::Timer(T::Bully(_))) => ((), None),
        };
        elected
    }

    /// The leader as far as this site knows.
    pub fn leader(&self) -> Option<SiteId> {
        match self {
            Self::Bully(site) => site.leader(),
            Self::Ring(site) => site.leader(),
        }
    }
}

/// An election that can be embedded in another protocol.
trait Inner: Election {
    fn wrap(message: Self::Message) -> Message;
    fn wrap_timer(timer: Self::Timer) -> Timer;
}

impl Inner for Bully {
    fn wrap(message: Self::Message) -> Message {
        Message::Bully(message)
    }

    fn wrap_timer(timer: Self::Timer) -> Timer {
        Timer::Bully(timer)
    }
}

impl Inner for RingElection {
    fn wrap(message: Self::Message) -> Message {
        Message::Ring(message)
    }

    fn wrap_timer(timer: Self::Timer) -> Timer {
        Timer::Ring(timer)
    }
}

/// Runs a step of the election and wraps its messages and timers in those of the outer protocol.
fn step<E: Inner, P: Electorate, R>(
    out: &mut Out<P>,
    act: impl FnOnce(&mut Out<E>) -> R,
) -> (R, Option<SiteId>) {
    let mut inner = out.inner::<E>();
    let result = act(&mut inner);
    for message in inner.local {
        out.local.push_back(P::wrap(E::wrap(message)));
    }
    for (to, message) in inner.sends {
        out.send(to, P::wrap(E::wrap(message)));
    }
    for change in inner.timers {
        out.timers.push(match change {
            TimerChange::Arm { timer, after_milli_t } => {
                TimerChange::Arm { timer: P::wrap_timer(E::wrap_timer(timer)), after_milli_t }
            }
            TimerChange::Disarm { timer } => {
                TimerChange::Disarm { timer: P::wrap_timer(E::wrap_timer(timer)) }
            }
        });
    }
    (result, inner.outputs.last().map(|&Elected(leader)| leader))
}
