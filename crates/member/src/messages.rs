//! What members, clients and consensus say to each other.

use crate::{
    Acquisition, Fence, Items, LockName, MemberId, Node, Packet, Part, Query, Reply, SessionId, Table, View,
};
use alloc::string::String;
use alloc::vec::Vec;
use lockkeeper_core::Claim;
use lockkeeper_core::algorithms::gate_messages::Message;
use serde::{Deserialize, Serialize};

/// From one life of a member to another member. `M` is the message of the cluster's algorithm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame<M> {
    /// Who sends it, and in which of its lives.
    pub from: Node,
    /// To which member.
    pub to: MemberId,
    /// To which of its lives; `None` if any will do.
    pub life: Option<u64>,
    /// What.
    pub body: Body<M>,
}

/// What a frame says. All but [`Body::Link`] may be lost, repeated and reordered without harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body<M> {
    /// To the leader: renew my lease.
    Renew(Renewal),
    /// The leader's answer: so long, counted from when the renewal was sent.
    Renewed {
        /// What the renewal said.
        sent_ns: u64,
        /// How long, from then.
        duration_ns: u64,
    },
    /// The leader's answer to somebody who is not in the view any more.
    Excluded {
        /// The epoch of that view.
        epoch: u64,
    },
    /// To everybody: I am outside and want in.
    Join,
    /// From the coordinator: this view is decided; stop, and report.
    Freeze {
        /// The view.
        view: View,
        /// From which part of the report on; those before have arrived.
        part: u32,
    },
    /// The answer.
    Report {
        /// Of the freeze.
        epoch: u64,
        /// The newest view that started here.
        installed: u64,
        /// What this member holds.
        part: Part<Holding>,
    },
    /// From the coordinator: go on from here.
    Start {
        /// The view that starts.
        epoch: u64,
        /// Who holds what.
        part: Part<Held>,
    },
    /// To the coordinator: the start goes on from this part; those before have arrived.
    More {
        /// The view that starts.
        epoch: u64,
        /// Which part.
        part: u32,
    },
    /// Inside a view: exactly once, in order.
    Link {
        /// Of which view.
        epoch: u64,
        /// What.
        packet: Packet<LockMessage<M>>,
    },
    /// What do your clients hold and wait for?
    Ask {
        /// Which question.
        question: u64,
        /// About which locks.
        query: Query,
    },
    /// The answer.
    Tell {
        /// To which question.
        question: u64,
        /// What is held or waited for at this member.
        table: Table,
        /// How many locks more there are, for which the frame has no room.
        left_out: u64,
    },
}

/// What a member tells the leader when it asks for its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The newest view that the member knows.
    pub epoch: u64,
    /// When it was sent, on the member's clock; comes back in the answer.
    pub sent_ns: u64,
    /// The newest view that started here.
    pub installed: u64,
    /// Members that have not acknowledged anything for too long.
    pub unreachable: Vec<Node>,
    /// Whose wish to join is heard here.
    pub joiners: Vec<Node>,
    /// A lock's clock is full: only a new view helps.
    pub clock_full: bool,
    /// The member's table of locks is nearly full, and many of them are idle: a new view with the same members drops these.
    pub table_full: bool,
    /// Nobody uses anything through this member, and nobody ever will: it wants no lease, but a view without it.
    pub farewell: bool,
}

/// What a member held when it froze. It never changes until the next start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The newest view that started here.
    pub installed: u64,
    /// What is held by clients of this member.
    pub holds: Items<Holding>,
}

/// A lock that clients of a member hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holding {
    /// Which.
    pub lock: LockName,
    /// How.
    pub claim: Claim,
    /// How many of them.
    pub units: u32,
}

impl Holding {
    /// About how many bytes it takes in a frame.
    pub(crate) fn bytes(&self) -> usize {
        self.lock.name.len() + 16
    }
}

/// A lock that is held at the start of a view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Held {
    /// Which.
    pub lock: LockName,
    /// At which member.
    pub node: Node,
    /// How.
    pub claim: Claim,
    /// How many of them.
    pub units: u32,
}

impl Held {
    /// About how many bytes it takes in a frame.
    pub(crate) fn bytes(&self) -> usize {
        self.lock.name.len() + 32
    }
}

/// A message of one lock's algorithm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockMessage<M> {
    /// Which lock.
    pub lock: LockName,
    /// The fence clock of the sender.
    pub clock: u64,
    /// What.
    pub words: Words<M>,
}

/// What is said about a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Words<M> {
    /// By one site of its algorithm to another.
    Said(Message<M>),
    /// To the home of a lock whose token travels unasked: this lock is in use, send the token off.
    Wake,
}

/// Who asks, and what for: for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tag {
    /// Who.
    pub owner: String,
    /// What for.
    pub purpose: String,
}

impl Tag {
    /// Whether owner and purpose are accepted: see [`check_tag`](crate::check_tag).
    pub fn check(&self) -> Result<(), crate::BadText> {
        crate::check_tag(&self.owner)?;
        crate::check_tag(&self.purpose)
    }
}

/// A wish for a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Which lock.
    pub lock: LockName,
    /// How.
    pub claim: Claim,
    /// How long the client is ready to wait; 0 is a try, which succeeds only where no message is needed.
    pub patience_ns: Option<u64>,
    /// After how long the hold is taken back.
    pub longest_hold_ns: Option<u64>,
    /// Whether a session that holds the lock may have it once more.
    pub reentrant: bool,
    /// How many more times the client would like to enter before it gives the lock back: see [`ToClient::Granted`]. For a lock alone,
    /// without a longest hold.
    pub more: u32,
    /// For people.
    pub tag: Tag,
}

impl Wish {
    /// For one lock, alone, for as long as it takes.
    pub fn of(lock: LockName) -> Self {
        let (claim, tag) = (Claim::Alone, Tag::default());
        Self { lock, claim, patience_ns: None, longest_hold_ns: None, reentrant: false, more: 0, tag }
    }
}

/// From a client to its member. All of it may be repeated and reordered without harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMember {
    /// Begins the session, and keeps it alive.
    KeepAlive {
        /// When it was sent, on the client's clock; comes back in the answer.
        sent_ns: u64,
        /// Whether this is the session's beginning; later, a session that is not known is lost.
        first: bool,
        /// The client has heard how every acquisition below this number ended.
        settled: u64,
    },
    /// Asks for a lock.
    Acquire {
        /// The number of the acquisition.
        number: u64,
        /// The client has heard how every acquisition below this number ended.
        settled: u64,
        /// What is wanted.
        wish: Wish,
    },
    /// Gives a lock back, or does not want it any more: whichever it is by now.
    Release {
        /// The number of the acquisition.
        number: u64,
    },
    /// Somebody is inside what the client might have kept, and it is given back when that one leaves: the answer to
    /// [`ToClient::Wanted`], and what is said by itself when the time for keeping is over.
    InUse {
        /// The number of the acquisition.
        number: u64,
        /// The fence of the entry, for people.
        fence: Option<Fence>,
        /// Who is inside, for people.
        tag: Tag,
    },
    /// The client leaves in order, and uses nothing any more.
    Close,
}

/// When and where a session began, as its member counts. A session that is over and begins again under the same name, in the same life of
/// the member or another, has another birth, and nothing to do with what was held before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Birth {
    /// In which life of the member.
    pub incarnation: u64,
    /// The how-manyth session of that life.
    pub number: u64,
}

/// From a member to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToClient {
    /// The session lives on.
    Alive {
        /// Of the session that promises it.
        birth: Birth,
        /// What the keep-alive said.
        sent_ns: u64,
        /// For how long from then the client may use what it holds.
        duration_ns: u64,
        /// What it must not use any more, whatever the duration.
        revoked: Vec<u64>,
    },
    /// The lock is yours, as long as your lease runs.
    Granted {
        /// Of the session that holds it.
        birth: Birth,
        /// The number of the acquisition.
        number: u64,
        /// For the resource; none for one of several permits, which says nothing about the others.
        fence: Option<Fence>,
        /// So many more times the client may enter by itself, one after the other, with the fences that follow this one: until it
        /// hears that somebody waits, and for [`KEPT_NS`](crate::KEPT_NS) at most.
        more: u32,
        /// Somebody waits already: the client may go on only where it does so at once.
        brief: bool,
    },
    /// Somebody else waits for what the client may keep: no more entries. It is given back at once, or as soon as nobody is inside.
    Wanted {
        /// The number of the acquisition.
        number: u64,
    },
    /// The acquisition is over.
    Ended {
        /// The number of the acquisition.
        number: u64,
        /// How.
        how: Ended,
    },
    /// This session is not known here: what it held is lost.
    NoSession,
}

/// How an acquisition ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Ended {
    /// Given back.
    Released,
    /// Given up before it was granted.
    Cancelled,
    /// The client's patience ran out first.
    TimedOut,
    /// The client has no patience, and somebody at this member is in its way.
    Busy,
    /// Taken back: by force, or held for too long.
    Revoked,
    /// This lock cannot be asked for in this way.
    Refused,
    /// The member is leaving: ask another one.
    Leaving,
    /// The lock is new to the member, whose clients use as many locks as it serves. The refusal ends when some are released.
    Full {
        /// The most locks that this member serves at a time.
        limit: u32,
    },
}

/// What consensus tells a member. The port's duties are numbered at [`Member`](crate::Member).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// This view is decided; views come in order, perhaps late.
    Decided(View),
    /// This process leads in this term, and has been told of every view decided before.
    Leading {
        /// The term.
        term: u64,
    },
    /// Not any more.
    Deposed,
    /// After the question of this number was asked, a majority confirmed the leadership in its term.
    Confirmed {
        /// The number.
        question: u64,
    },
    /// Where the leader is believed to be.
    Leader(Option<MemberId>),
}

/// What a member asks of consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortRequest {
    /// Decide this view, if its epoch is the next and its term is still the term.
    Propose(View),
    /// Ask a majority whether this process still leads in this term.
    Confirm {
        /// The number of the question.
        question: u64,
        /// The term.
        term: u64,
    },
    /// This process leaves: let another one lead, if one can, and do not make it the leader again. Asked until it is so.
    StepDown {
        /// The term that is to end.
        term: u64,
    },
}

/// What happens to a member.
#[derive(Clone, Debug)]
pub enum Event<M> {
    /// A frame arrives.
    Frame(Frame<M>),
    /// A client says something.
    Client(SessionId, ToMember),
    /// Consensus says something.
    Port(PortEvent),
    /// Time has passed.
    Tick,
    /// From now on these are all who may be members, this one among them: whom to tell of a wish to join. Replaces
    /// [`Config::peers`](crate::Config::peers).
    Peers(Vec<MemberId>),
    /// A connection to that member is back: what it has not acknowledged goes there again, at once.
    Connected(MemberId),
    /// This life is to end in order: [`Note::Left`] says when it has. Nobody is let in from now on.
    Leave {
        /// For how long clients may keep what they hold; after that they are promised nothing more, and what was promised is waited out.
        patience_ns: u64,
    },
    /// An operator takes this lock away from this acquisition, at its member. An acquisition that holds another lock keeps it.
    Revoke(LockName, Acquisition),
    /// Queries every member of the view, under a number that comes back in [`Note::Survey`].
    Survey(u64, Query),
    /// An operator changes the cluster's settings. The leader proposes a view with them; any other member ignores it.
    Change(crate::ClusterSettings),
}

/// What people and metrics may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// This member stopped for a view.
    Wedged {
        /// Of the view.
        epoch: u64,
    },
    /// This member has told the coordinator what it holds.
    Reported {
        /// For which view.
        epoch: u64,
        /// What.
        report: Report,
    },
    /// This member, as the coordinator, starts a view for everybody.
    Started {
        /// The view.
        view: View,
        /// Who holds what.
        holds: Items<Held>,
    },
    /// A view starts here.
    Installed {
        /// Of the view.
        epoch: u64,
    },
    /// Something that another member said makes no sense, and was left out: it is of another version, or broken.
    Refused {
        /// Who said it.
        from: Node,
        /// What is wrong with it.
        why: &'static str,
    },
    /// This life of the member is over: drop it, and begin another.
    Excluded,
    /// This life of the member is over, as [`Event::Leave`] wanted.
    Left,
    /// The answer to the [`Event::Survey`] of this number: the reply of each member. A member of the view that is not here did not reply in time.
    Survey(u64, Vec<Reply>),
}

/// All that a step can do. The driver owns it and uses it again.
#[derive(Clone, Debug)]
pub struct Out<M> {
    /// To other members.
    pub frames: Vec<Frame<M>>,
    /// To clients.
    pub clients: Vec<(SessionId, ToClient)>,
    /// To consensus.
    pub port: Vec<PortRequest>,
    /// To people.
    pub notes: Vec<Note>,
    /// About how many locks, sessions, holds and messages the step touched: what it cost.
    pub work: usize,
}

impl<M> Default for Out<M> {
    fn default() -> Self {
        Self { frames: Vec::new(), clients: Vec::new(), port: Vec::new(), notes: Vec::new(), work: 0 }
    }
}

impl<M> Out<M> {
    /// Makes it ready for the next step.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.clients.clear();
        self.port.clear();
        self.notes.clear();
        self.work = 0;
    }
}
