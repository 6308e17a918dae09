//! What another member says is looked at before it is believed: it may be of another version, or broken.
//!
//! Whatever passes can be wrong, but it cannot make a member panic, run for ever, or grow without bound. What does not pass is
//! left out and told in a [`Note::Refused`](crate::Note::Refused). Of what correct members say, everything passes.

use crate::lock::Lock;
use crate::member::{Member, Message};
use crate::{Body, Fence, Frame, Kind, LockMessage, LockName, Node, Packet, Renewal, Tag, View, Words};
use alloc::collections::BTreeMap;
use lockkeeper_core::algorithms::k_mutual_exclusion::KMutualExclusion;
use lockkeeper_core::algorithms::readers_writers::ReadersWriters;
use lockkeeper_core::mutex::LARGEST_NUMBER;
use lockkeeper_core::{Mode, MutualExclusion};

/// The longest name of a lock, in bytes.
pub const LONGEST_NAME: usize = 1024;
/// The longest owner, and the longest purpose, in bytes.
pub const LONGEST_TAG: usize = 1024;
/// The most permits of a semaphore: a member plays a site for each, and each of them may ask all others.
pub const MOST_PERMITS: u32 = 256;
/// The most members of a view.
pub const MOST_MEMBERS: usize = 1024;
/// How many lives of members that are in no view are remembered.
const MOST_STRANGERS: usize = 4 * MOST_MEMBERS;

type Verdict = Result<(), &'static str>;

impl Tag {
    pub(crate) fn is_too_long(&self) -> bool {
        self.owner.len() > LONGEST_TAG || self.purpose.len() > LONGEST_TAG
    }
}

impl LockName {
    /// Whether there can be a lock of this name.
    pub fn is_possible(&self) -> bool {
        let permits = match self.kind {
            Kind::Mutex | Kind::ReadersWriters => 1,
            Kind::Semaphore(permits) => permits,
        };
        self.name.len() <= LONGEST_NAME && (1..=MOST_PERMITS).contains(&permits)
    }
}

impl View {
    /// Whether a view can look like this: everybody once and in order, its coordinator among them.
    pub(crate) fn is_possible(&self) -> bool {
        let rises = |nodes: &[Node]| nodes.windows(2).all(|pair| pair[0] < pair[1]);
        self.members.len() <= MOST_MEMBERS
            && self.missing.len() <= MOST_STRANGERS
            && rises(&self.members)
            && self.members.windows(2).all(|pair| pair[0].id != pair[1].id)
            && self.since.len() == self.members.len()
            && self.since.iter().all(|&since| since <= self.epoch)
            && self.has(self.coordinator)
            && (1..=Fence::LARGEST_EPOCH).contains(&self.epoch)
    }
}

impl<P: MutualExclusion> Member<P> {
    /// Whether a frame can have come from a correct member.
    pub(crate) fn check(&self, frame: &Frame<Message<P>>) -> Verdict {
        if frame.to != self.me.id {
            return Err("a frame for another member");
        }
        match &frame.body {
            Body::Renew(renewal) => self.check_renewal(frame.from, renewal),
            Body::Renewed { duration_ns, .. } if *duration_ns > self.config.lease_ns => {
                Err("a lease longer than any")
            }
            Body::Join if self.joiners.len() >= MOST_STRANGERS && !self.joiners.contains_key(&frame.from) => {
                Err("one more wish to join than can be remembered")
            }
            Body::Freeze(view) => self.check_view(view),
            Body::Report { report, .. } => {
                report.holds.iter().try_for_each(|(lock, mode, units)| check_hold(lock, *mode, *units))
            }
            Body::Start { holds, .. } => {
                holds.iter().try_for_each(|held| check_hold(&held.lock, held.mode, held.units))
            }
            Body::Link { packet: Packet { payload: Some((_, message)), .. }, .. } => {
                check_message::<P>(message)
            }
            Body::Tell { table, .. } => match table.iter().all(|status| status.lock.is_possible()) {
                true => Ok(()),
                false => Err("a table of locks that cannot be"),
            },
            Body::Renewed { .. }
            | Body::Excluded { .. }
            | Body::Join
            | Body::Link { .. }
            | Body::Ask { .. } => Ok(()),
        }
    }

    fn check_renewal(&self, from: Node, renewal: &Renewal) -> Verdict {
        if renewal.unreachable.len() > MOST_MEMBERS || renewal.joiners.len() > MOST_STRANGERS {
            return Err("a renewal that names more nodes than there can be");
        }
        match &self.leader {
            Some(leader) if !leader.has_room_for(from) => Err("one more renewal than can be remembered"),
            _ => Ok(()),
        }
    }

    fn check_view(&self, view: &View) -> Verdict {
        if !view.is_possible() {
            return Err("a view that cannot be");
        }
        match crate::instance::options::<P>(&self.config.settings, view.members.len(), 0) {
            Ok(_) => Ok(()),
            Err(_) => Err("a view of a size for which the algorithm has no settings here"),
        }
    }

    /// Whether a message of a lock's algorithm comes from a site of its sender, in the present view.
    pub(crate) fn check_lock_message(&self, sender: Node, message: &LockMessage<Message<P>>) -> Verdict {
        let slots = crate::instance::slots(message.lock.kind);
        let place = self.running().and_then(|view| view.site(sender));
        if place.is_none_or(|place| place.index() != message.from.index() / slots) {
            return Err("a message in the name of another member's site");
        }
        if !self.has_room_for(&message.lock) {
            return Err("a message of one more lock than can be remembered");
        }
        Ok(())
    }

    /// Whether this lock is known, or can be.
    pub(crate) fn has_room_for(&self, lock: &LockName) -> bool {
        let room = || self.slots + crate::instance::slots(lock.kind) <= self.config.most_locks;
        lock.is_possible() && (self.locks.contains_key(lock) || room())
    }

    /// Some locks are not known any more.
    pub(crate) fn count_slots(&mut self) {
        self.slots = self.locks.keys().map(|name| crate::instance::slots(name.kind)).sum();
    }
}

/// The lock, which is known from now on.
pub(crate) fn known<'a, P: MutualExclusion>(
    locks: &'a mut BTreeMap<LockName, Lock<P>>,
    slots: &mut usize,
    name: &LockName,
) -> &'a mut Lock<P> {
    locks.entry(name.clone()).or_insert_with(|| {
        *slots += crate::instance::slots(name.kind);
        Lock::new(name)
    })
}

fn check_hold(lock: &LockName, mode: Mode, units: u32) -> Verdict {
    if !lock.is_possible() || !lock.kind.sharing().knows(mode) {
        return Err("a hold of a lock that cannot be");
    }
    if units == 0 || units as usize > crate::instance::slots(lock.kind) {
        return Err("a hold of more permits than there are");
    }
    Ok(())
}

/// What can be told without the lock's instance: the message may be of a view that is yet to start.
fn check_message<P: MutualExclusion>(message: &LockMessage<Message<P>>) -> Verdict {
    if !message.lock.is_possible() || message.clock > LARGEST_NUMBER {
        return Err("a message of a lock that cannot be");
    }
    let most = MOST_MEMBERS * crate::instance::slots(message.lock.kind);
    if message.from.index() >= most || message.to.index() >= most {
        return Err("a message of a site that cannot be");
    }
    let plausible = match &message.words {
        Words::Mutex(words) => P::plausible(words, most),
        Words::ReadersWriters(words) => ReadersWriters::plausible(words, most),
        Words::Semaphore(words) => KMutualExclusion::plausible(words, most),
        Words::Wake => true,
    };
    if plausible { Ok(()) } else { Err("a message that no site can have sent") }
}
