//! The messages and timers of [`centralized_failover`](super::centralized_failover).

use crate::elections::elector;
use crate::{MessageKind, MessageKinds, Phase, SiteId};
use core::fmt;
use serde::{Deserialize, Serialize};

/// The term of one coordinator. Later terms have higher numbers; 0 is before the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Term {
    /// The number of the term.
    pub number: u64,
    /// The coordinator of the term.
    pub coordinator: SiteId,
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.number, self.coordinator)
    }
}

/// A message between processes. Each names the term to which it belongs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// A site requests to enter.
    Enter(Term),
    /// The coordinator grants the request.
    Granted(Term),
    /// A site has left.
    Released(Term),
    /// A coordinator asks for the receiver's phase. The second value numbers the queries of this coordinator.
    Inquire(Term, u32),
    /// The answer: the number of the query and the sender's phase.
    Status(Term, u32, Phase),
    /// A message of the election.
    Election(elector::Message),
}

impl MessageKinds for Message {
    const KINDS: &'static [MessageKind] = &[
        MessageKind::enter("ENTER"),
        MessageKind::enter("GRANTED"),
        MessageKind::exit("RELEASED"),
        MessageKind::enter("INQUIRE"),
        MessageKind::enter("STATUS"),
        elector::Message::KINDS[0],
        elector::Message::KINDS[1],
        elector::Message::KINDS[2],
        elector::Message::KINDS[3],
    ];

    fn kind(&self) -> usize {
        match self {
            Self::Enter(_) => 0,
            Self::Granted(_) => 1,
            Self::Released(_) => 2,
            Self::Inquire(..) => 3,
            Self::Status(..) => 4,
            Self::Election(message) => 5 + message.kind(),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::KINDS[self.kind()].name;
        match self {
            Self::Status(_, _, phase) => write!(f, "{name}({phase})"),
            Self::Inquire(term, _) => write!(f, "{name}({})", term.number),
            Self::Election(message) => message.fmt(f),
            _ => f.write_str(name),
        }
    }
}

/// A timer of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Timer {
    /// A timer of the election.
    Election(elector::Timer),
    /// The sites that were suspected before this process took over have had time to answer.
    Answers,
}
