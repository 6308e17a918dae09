//! Validation of frames from other members, which may have another version or be faulty.
//!
//! A frame that passes can be wrong, but it cannot make a member panic, loop forever, or grow without bound. A frame
//! that does not pass is dropped and reported in a [`Note::Refused`](crate::Note::Refused). Every frame of a correct
//! member passes.

use crate::member::{Member, Message};
use crate::{
    Body, Bugs, Fence, Frame, LONGEST_PAYLOAD, LockContent, LockMessage, LockName, Node, Packet, Renewal,
    StartHold, ToMember, View,
};
use core::fmt;
use lockkeeper_core::algorithms::gate::Gate;
use lockkeeper_core::mutex::LARGEST_NUMBER;
use lockkeeper_core::{LockMode, MutualExclusion, Validate};

/// The most members of a view.
pub const MOST_MEMBERS: usize = 1024;
/// The most options of an algorithm.
const MOST_OPTIONS: usize = 64;
/// The most incarnations of members outside of the view that a member remembers.
const MOST_STRANGERS: usize = 4 * MOST_MEMBERS;

/// The reason why a frame of another member is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameFault {
    /// It is for another member.
    Recipient,
    /// It grants a lease longer than the cluster's setting.
    LeaseTooLong,
    /// It requests to join, and the member stores as many such requests as it may.
    TooManyJoiners,
    /// It relays a request for a lock name that is not served.
    RelayedName,
    /// It is a reply with a lock name that is not served.
    ReplyName,
    /// It is a renewal that lists too many nodes.
    RenewalTooLong,
    /// It is a renewal of one node more than a leader stores.
    TooManyRenewals,
    /// It contains a view that is not well-formed.
    View,
    /// It contains a view whose algorithm this member cannot run.
    ViewAlgorithm,
    /// It contains a hold with an invalid lock name or mode.
    Hold,
    /// It contains a number of holds that the lock's mode excludes.
    HoldCount,
    /// It contains a message with an invalid lock name or clock.
    MessageHeader,
    /// It contains a message that no site sends.
    Message,
    /// It contains a message that the lock's algorithm does not expect in its present state.
    OutOfPlace,
}

impl FrameFault {
    /// The fault as a phrase: `a frame for another member`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recipient => "a frame for another member",
            Self::LeaseTooLong => "a lease longer than the cluster's setting",
            Self::TooManyJoiners => "a request to join beyond the limit of joiners",
            Self::RelayedName => "a relayed request with an invalid lock name",
            Self::ReplyName => "a reply with an invalid lock name",
            Self::RenewalTooLong => "a renewal that lists too many nodes",
            Self::TooManyRenewals => "a renewal beyond the limit of the leader",
            Self::View => "an invalid view",
            Self::ViewAlgorithm => "a view whose algorithm this member cannot run",
            Self::Hold => "a hold with an invalid lock name or mode",
            Self::HoldCount => "an impossible number of holds of a lock",
            Self::MessageHeader => "a message with an invalid lock name or clock",
            Self::Message => "a message that no site can have sent",
            Self::OutOfPlace => "a message that no correct member can have sent to this lock",
        }
    }
}

impl fmt::Display for FrameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl core::error::Error for FrameFault {}

type Verdict = Result<(), FrameFault>;

impl View {
    /// Whether the view is well-formed: each member once and in order, the coordinator among them.
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
            && self.settings.check().is_ok()
            && self.settings.algorithm.len() <= MOST_OPTIONS
    }
}

impl<P: MutualExclusion, B: Bugs> Member<P, B> {
    /// Whether a correct member can have sent this frame.
    pub(crate) fn check(&self, frame: &Frame<Message<P>>) -> Verdict {
        if frame.to != self.me.id {
            return Err(FrameFault::Recipient);
        }
        match &frame.body {
            Body::Renew(renewal) => self.check_renewal(frame.from, renewal),
            Body::Renewed { duration_ns, .. } if *duration_ns > self.config.cluster.lease_ns => {
                Err(FrameFault::LeaseTooLong)
            }
            Body::Join if self.joiners.len() >= MOST_STRANGERS && !self.joiners.contains_key(&frame.from) => {
                Err(FrameFault::TooManyJoiners)
            }
            Body::Freeze { view, .. } => self.check_view(view),
            Body::Report { chunk, .. } => {
                chunk.items.iter().try_for_each(|held| check_hold(&held.lock, held.mode, held.units))
            }
            Body::Start { chunk, .. } => chunk.items.iter().try_for_each(check_start_hold),
            Body::Relay { message: ToMember::Acquire { request, .. }, .. } if !request.lock.is_served() => {
                Err(FrameFault::RelayedName)
            }
            Body::Link { packet: Packet { payload: Some((_, message)), .. }, .. } => {
                check_message::<P>(message)
            }
            Body::Reply { locks, .. } => match locks.iter().all(|status| status.lock.is_served()) {
                true => Ok(()),
                false => Err(FrameFault::ReplyName),
            },
            Body::Renewed { .. }
            | Body::Excluded { .. }
            | Body::Join
            | Body::More { .. }
            | Body::Link { .. }
            | Body::Query { .. }
            | Body::Relay { .. }
            | Body::Relayed { .. }
            | Body::NotHome { .. } => Ok(()),
        }
    }

    /// Bounds the lists of a renewal, and the renewals that a leader stores.
    fn check_renewal(&self, from: Node, renewal: &Renewal) -> Verdict {
        if renewal.unreachable.len() > MOST_MEMBERS || renewal.joiners.len() > MOST_STRANGERS {
            return Err(FrameFault::RenewalTooLong);
        }
        match &self.leader {
            Some(leader) if !leader.has_room_for(from) => Err(FrameFault::TooManyRenewals),
            _ => Ok(()),
        }
    }

    /// Checks that a view is well-formed and that this member can run its algorithm.
    fn check_view(&self, view: &View) -> Verdict {
        if !view.is_possible() {
            return Err(FrameFault::View);
        }
        match self.check_algorithm(&view.settings, view.members.len()) {
            Ok(()) => Ok(()),
            Err(_) => Err(FrameFault::ViewAlgorithm),
        }
    }

    /// Whether the table has room for the lock of another member's message. Otherwise the message is not
    /// acknowledged: its sender keeps it, and the next view, which this member requests, makes it void.
    pub(crate) fn has_room_for(&self, lock: &LockName) -> bool {
        lock.is_served() && self.locks.has_room_for(lock, self.config.most_locks)
    }
}

/// Checks a hold at the start of a view, and its record if a member adopts it.
fn check_start_hold(held: &StartHold) -> Verdict {
    let Some(record) = &held.adopted else { return check_hold(&held.lock, held.mode, held.units) };
    let same = record.lock == held.lock && record.mode == held.mode && record.home == held.node;
    let is_resident = record.acquisition.session.is_resident();
    let payload = record.payload.len();
    if !same || record.tag.check().is_err() || is_resident != (payload > 0) || payload > LONGEST_PAYLOAD {
        return Err(FrameFault::Hold);
    }
    // Only the first acquisition of a hold counts.
    check_hold(&held.lock, held.mode, held.units.max(1))
}

/// Checks the name, the mode and the number of a hold in a report or a start.
fn check_hold(lock: &LockName, mode: LockMode, units: u32) -> Verdict {
    if !lock.is_served() || !mode.is_possible() {
        return Err(FrameFault::Hold);
    }
    let most = match mode {
        LockMode::Exclusive => 1,
        LockMode::Shared => u32::MAX / 2,
        LockMode::Permit { of: permits } => permits,
    };
    if units == 0 || units > most {
        return Err(FrameFault::HoldCount);
    }
    Ok(())
}

/// Checks that need no instance of the lock: the message may be of a view that has not started yet.
fn check_message<P: MutualExclusion>(message: &LockMessage<Message<P>>) -> Verdict {
    if !message.lock.is_served() || message.clock > LARGEST_NUMBER {
        return Err(FrameFault::MessageHeader);
    }
    match &message.content {
        LockContent::Algorithm(message) if !Gate::<P>::is_well_formed(message, MOST_MEMBERS) => {
            Err(FrameFault::Message)
        }
        LockContent::Algorithm(_) | LockContent::Wake => Ok(()),
    }
}
