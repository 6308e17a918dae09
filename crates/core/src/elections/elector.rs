//! An election inside another protocol, which has to find a new coordinator.
//!
//! The outer protocol owns an [`Elector`] and hands it what concerns it. Its messages and timers travel in those of the
//! outer protocol; that somebody is elected is told to the outer protocol alone.

use super::bully::{self, Bully};
use super::ring_election::{self, RingElection};
use crate::election::Setup;
use crate::protocol::TimerChange;
use crate::{Elected, Election, Out, Protocol, SiteId, Vocabulary, Word};
use core::fmt;
use serde::{Deserialize, Serialize};

/// Which election.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The bully election.
    #[default]
    Bully,
    /// The ring election with a list.
    Ring,
}

/// What its messages say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// In a bully election.
    Bully(bully::Message),
    /// In a ring election.
    Ring(ring_election::Message),
}

impl Vocabulary for Message {
    const WORDS: &'static [Word] =
        &[Word::enter("ELECTION"), Word::enter("OK"), Word::enter("COORDINATOR"), Word::enter("ACK")];

    fn word(&self) -> usize {
        match self {
            Self::Bully(message) => message.word(),
            // A ring has no OK.
            Self::Ring(message) => [0, 2, 3][message.word()],
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

/// What it wants to be woken for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Timer {
    /// In a bully election.
    Bully(<Bully as Protocol>::Timer),
    /// In a ring election.
    Ring(<RingElection as Protocol>::Timer),
}

/// A protocol that can hold an election of its own.
pub trait Electorate: Protocol {
    /// An election's message as one of this protocol.
    fn wrap(message: Message) -> Self::Message;

    /// An election's timer as one of this protocol.
    fn wrap_timer(timer: Timer) -> Self::Timer;
}

/// What can happen to the election.
#[derive(Clone, Debug)]
pub enum Event {
    /// One of its messages arrives.
    Message(SiteId, Message),
    /// One of its timers runs out.
    Timer(Timer),
    /// A site is suspected.
    Suspicion(SiteId),
}

/// One site's half of the election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Elector {
    /// A bully election.
    Bully(Bully),
    /// A ring election.
    Ring(RingElection),
}

impl Elector {
    /// A site that knows the leader, or that campaigns because it does not.
    pub fn start<P: Electorate>(
        choice: Choice,
        me: SiteId,
        processes: usize,
        leader: Option<SiteId>,
        out: &mut Out<P>,
    ) -> (Self, Option<SiteId>) {
        match choice {
            Choice::Bully => {
                let setup = Setup { sites: processes, leader, options: Default::default() };
                let (site, elected) = step(out, |inner| Bully::start(me, &setup, inner));
                (Self::Bully(site), elected)
            }
            Choice::Ring => {
                let setup = Setup { sites: processes, leader, options: Default::default() };
                let (site, elected) = step(out, |inner| RingElection::start(me, &setup, inner));
                (Self::Ring(site), elected)
            }
        }
    }

    /// Something happens. Tells who is elected, if anybody is.
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
            // Sites of one system hold the same election.
            (Self::Bully(_), Event::Message(_, M::Ring(_)) | Event::Timer(T::Ring(_)))
            | (Self::Ring(_), Event::Message(_, M::Bully(_)) | Event::Timer(T::Bully(_))) => ((), None),
        };
        elected
    }

    /// Whom this site takes for the leader.
    pub fn leader(&self) -> Option<SiteId> {
        match self {
            Self::Bully(site) => site.leader(),
            Self::Ring(site) => site.leader(),
        }
    }
}

/// An election that can stand inside another protocol.
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

/// A step of the election, whose messages and timers become the outer protocol's.
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
