//! The messages between members and consensus, and the events and actions of a member. `lockkeeper-session` has the
//! messages between clients and members.

use crate::{
    Acquisition, Chunk, ChunkedList, HoldRecord, LockList, LockMode, LockName, MemberId, Node, Packet, Proof,
    Query, RecordOutcome, RecordWrite, Reply, SessionId, ToClient, ToMember, View,
};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use lockkeeper_core::algorithms::gate_messages::Message;
use serde::{Deserialize, Serialize};

/// A frame from one incarnation of a member to another member. `M` is the message type of the cluster's algorithm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame<M> {
    /// The sender and its incarnation.
    pub from: Node,
    /// The number of the recipient.
    pub to: MemberId,
    /// The recipient's incarnation; `None` if any incarnation may handle the frame.
    pub incarnation: Option<u64>,
    /// The content of the frame.
    pub body: Body<M>,
}

/// The content of a frame. All variants but [`Body::Link`] may be lost, duplicated and reordered without harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body<M> {
    /// To the leader: a request to renew the sender's lease.
    Renew(Renewal),
    /// The leader's answer to a renewal.
    Renewed {
        /// The `sent_ns` of the renewal.
        sent_ns: u64,
        /// The duration of the lease, counted from `sent_ns`.
        duration_ns: u64,
    },
    /// The leader's answer to a renewal of a node that is not in the view any more.
    Excluded {
        /// The epoch of that view.
        epoch: u64,
    },
    /// To all possible members: the sender is in no view and requests to join.
    Join,
    /// From the coordinator: a view is decided; freeze and report.
    Freeze {
        /// The decided view.
        view: View,
        /// The first chunk of the report to send; the chunks before it have arrived.
        chunk: u32,
    },
    /// The answer to a freeze.
    Report {
        /// The epoch of the freeze.
        epoch: u64,
        /// The epoch of the newest view that started at the sender.
        installed: u64,
        /// A chunk of the sender's holds.
        chunk: Chunk<ReportedHold>,
    },
    /// From the coordinator: run in the new view.
    Start {
        /// The epoch of the view that starts.
        epoch: u64,
        /// A chunk of the holds of all members.
        chunk: Chunk<StartHold>,
    },
    /// To the coordinator: send the start from this chunk on.
    More {
        /// The epoch of the view that starts.
        epoch: u64,
        /// The first missing chunk.
        chunk: u32,
    },
    /// A packet of a link within a view, which delivers exactly once and in order.
    Link {
        /// The epoch of the view.
        epoch: u64,
        /// The packet of the link.
        packet: Packet<LockMessage<M>>,
    },
    /// A query: which locks do clients of the recipient hold and wait for?
    Query {
        /// The number of the query.
        number: u64,
        /// The locks that the query is about.
        query: Query,
    },
    /// The reply to a query.
    Reply {
        /// The number of the query.
        number: u64,
        /// The locks that clients of the sender hold or wait for.
        locks: LockList,
        /// Number of further locks for which the frame has no room.
        left_out: u64,
    },
    /// A message of a client that is connected to the sender, for a session at another member. Sent to every member
    /// while the session's member is not known.
    Relay {
        /// The id of the session.
        session: SessionId,
        /// The client's proof.
        proof: Proof,
        /// The message of the client.
        message: ToMember,
    },
    /// A message to a client that is connected to the recipient, from the member that has its session.
    Relayed {
        /// The id of the session.
        session: SessionId,
        /// The message to the client.
        message: ToClient,
    },
    /// The answer to a relayed message: the sender runs in this epoch and does not have the session.
    NotHome {
        /// The id of the session.
        session: SessionId,
        /// The epoch in which the sender runs.
        epoch: u64,
    },
}

/// A member's request to the leader to renew its lease, with a report of its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The epoch of the newest view that the member knows.
    pub epoch: u64,
    /// When the renewal was sent, on the member's clock; returned in the answer.
    pub sent_ns: u64,
    /// The epoch of the newest view that started here.
    pub installed: u64,
    /// Members that have acknowledged nothing for too long.
    pub unreachable: Vec<Node>,
    /// Nodes whose [`Body::Join`] has arrived here lately.
    pub joiners: Vec<Node>,
    /// The fence clock of a lock is exhausted: only a new view makes further grants possible.
    pub clock_full: bool,
    /// The member's table of locks is nearly full, and many of them are idle: a new view with the same members drops
    /// these.
    pub table_full: bool,
    /// The member has drained and will grant nothing more: it requests a view without it, not a lease.
    pub drained: bool,
}

/// The holds of a member at its freeze. They do not change before the next start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The epoch of the newest view that started here.
    pub installed: u64,
    /// The holds of the member's clients.
    pub holds: ChunkedList<ReportedHold>,
}

/// A lock that clients of a member hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReportedHold {
    /// The lock's name.
    pub lock: LockName,
    /// The mode of the holds.
    pub mode: LockMode,
    /// The number of holds.
    pub units: u32,
}

impl ReportedHold {
    /// Approximate size in a frame, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lock.name.len() + 16
    }
}

/// A lock that is held at the start of a view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartHold {
    /// The lock's name.
    pub lock: LockName,
    /// The member whose clients hold it.
    pub node: Node,
    /// The mode of the holds.
    pub mode: LockMode,
    /// The number of holds at that member.
    pub units: u32,
    /// The record of the hold, if the member adopts it with this start. Several acquisitions of one hold are listed one
    /// by one, and only the first of them has a unit.
    pub adopted: Option<Box<HoldRecord>>,
}

impl StartHold {
    /// Approximate size in a frame, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let adopted = self.adopted.as_ref().map_or(0, |record| record.bytes());
        self.lock.name.len() + 32 + adopted
    }
}

/// A message about one lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockMessage<M> {
    /// The lock's name.
    pub lock: LockName,
    /// The fence clock of the sender.
    pub clock: u64,
    /// The content of the message.
    pub content: LockContent<M>,
}

/// The content of a message about a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockContent<M> {
    /// A message from one site of the lock's algorithm to another.
    Algorithm(Message<M>),
    /// To the home of a lock whose token circulates without requests: the lock is in use, start the token.
    Wake,
}

/// An event from consensus to a member. The duties of consensus are numbered at [`Member`](crate::Member).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// A view is decided. Views are reported in order, perhaps late. `adopted` is for the view's coordinator: the
    /// [adopted](crate::HoldTable::adopted) records of the table at the position of the view in the log.
    Decided {
        /// The decided view.
        view: View,
        /// The adopted records; empty at members that do not coordinate the view.
        adopted: Vec<HoldRecord>,
    },
    /// The write of this number was applied, with these results of its changes.
    Written {
        /// The member that made the write, in this incarnation.
        home: Node,
        /// The number of the write.
        sequence: u64,
        /// The results, in the order of the changes.
        outcomes: Vec<RecordOutcome>,
    },
    /// This process leads in this term, and every view decided before was reported to it.
    Leading {
        /// The term in which this process leads.
        term: u64,
    },
    /// This process does not lead any more.
    Deposed,
    /// A majority confirmed the leadership AFTER the [`PortRequest::Confirm`] of this number.
    Confirmed {
        /// The number of the request.
        number: u64,
    },
    /// The supposed leader, if any is known.
    Leader(Option<MemberId>),
}

/// A request from a member to consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortRequest {
    /// Decide this view, if its epoch is the next one and its term is still the present one.
    Propose(View),
    /// Query a majority whether this process still leads in this term.
    Confirm {
        /// The number of the request.
        number: u64,
        /// The term to confirm.
        term: u64,
    },
    /// Apply this batch of changes to the table of recorded holds, at any time after the entries before it in the log.
    /// Answered with [`PortEvent::Written`]; an answer may be lost, and the member repeats the request.
    Write(RecordWrite),
    /// This process leaves: transfer the leadership, if another voter can lead, and do not become the leader again.
    /// Repeated until that has happened.
    StepDown {
        /// The term to end.
        term: u64,
    },
}

/// An event for a member.
#[derive(Clone, Debug)]
pub enum Event<M> {
    /// A frame of another member.
    Frame(Frame<M>),
    /// A message of a client, which the driver has authenticated: the session is one of its own.
    Client(SessionId, Proof, ToMember),
    /// An event of consensus.
    Port(PortEvent),
    /// Time has passed.
    Tick,
    /// The complete list of possible members, including this one; a node that wants to join sends its [`Body::Join`]
    /// to them. Replaces [`Config::peers`](crate::Config::peers).
    Peers(Vec<MemberId>),
    /// The connection to that member is restored: unacknowledged payloads are sent again at once.
    Connected(MemberId),
    /// Begins a planned leave, whose end is [`Note::Left`]. The member grants nothing from now on.
    Leave {
        /// How long clients may keep their holds. After that, their leases are not renewed, and the member waits
        /// until these have expired.
        timeout_ns: u64,
    },
    /// An operator revokes this lock from this acquisition, at the holder's member. An acquisition that holds another
    /// lock is not affected. The text is the operator's name, for the holder; it may be empty.
    Revoke(LockName, Acquisition, String),
    /// Queries every member of the view. The number is returned in [`Note::Replies`].
    Query(u64, Query),
    /// An operator changes the cluster's settings. The leader proposes a view with them; any other member ignores the
    /// event.
    Change(crate::ClusterSettings),
}

/// A notification for logs, metrics and the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "notes are rare, and the driver consumes them at once")]
pub enum Note {
    /// This member has frozen for a view.
    Frozen {
        /// The epoch of the view.
        epoch: u64,
    },
    /// This member has reported its holds to the coordinator.
    Reported {
        /// The epoch of the view.
        epoch: u64,
        /// The complete report.
        report: Report,
    },
    /// This member, as the coordinator, starts a view for all members.
    Started {
        /// The view that has started.
        view: View,
        /// The holds at the start.
        holds: ChunkedList<StartHold>,
    },
    /// A view has started here.
    Installed {
        /// The epoch of the view.
        epoch: u64,
    },
    /// A frame of another member is invalid and was dropped: the sender has another version, or is faulty.
    Refused {
        /// The sender of the frame.
        from: Node,
        /// The reason for the refusal.
        why: crate::FrameFault,
    },
    /// This incarnation has ended: drop it, and create another one.
    Excluded,
    /// This incarnation has ended, as requested by [`Event::Leave`].
    Left,
    /// The replies to the [`Event::Query`] of this number. A member of the view that is not listed did not reply in
    /// time.
    Replies(u64, Vec<Reply>),
}

/// The actions of one step. The driver owns and reuses it.
#[derive(Clone, Debug)]
pub struct Out<M> {
    /// Frames to other members.
    pub frames: Vec<Frame<M>>,
    /// Messages to clients.
    pub clients: Vec<(SessionId, ToClient)>,
    /// Requests to consensus.
    pub port: Vec<PortRequest>,
    /// Notifications for logs, metrics and the driver.
    pub notes: Vec<Note>,
    /// Cost of the step: the approximate number of locks, sessions, holds and messages that it touched.
    pub work: usize,
}

impl<M> Default for Out<M> {
    fn default() -> Self {
        Self { frames: Vec::new(), clients: Vec::new(), port: Vec::new(), notes: Vec::new(), work: 0 }
    }
}

impl<M> Out<M> {
    /// Clears all lists for the next step.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.clients.clear();
        self.port.clear();
        self.notes.clear();
        self.work = 0;
    }
}
