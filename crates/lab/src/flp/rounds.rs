//! A protocol that one crash does not block: voting in rounds, after Ben-Or (1983), with a fixed rule in place of his
//! coin.
//!
//! Safe: a proposal needs two votes of three, so that all proposals of a round agree; a decision needs two proposals of
//! three, so that every process learns of at least one of them. Not blocking: a process needs one message besides its
//! own state, and two processes are up. What the protocol does not have is an end in every run.

use super::protocol::{Protocol, Value};
use std::fmt;

/// The protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounds {
    /// Wrong on purpose, for tests: a process decides as soon as it sees one proposal.
    pub decides_on_one_proposal: bool,
}

/// The state of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Before its first step.
    Initial {
        /// Its input.
        input: Value,
    },
    /// It has voted and waits for another vote.
    Voted {
        /// The round, from 1.
        round: u32,
        /// Its vote.
        vote: Value,
    },
    /// It has made a proposal and waits for another one.
    Proposed {
        /// The round.
        round: u32,
        /// The value that two processes have voted for, if it knows of two.
        proposal: Option<Value>,
        /// Its next vote if no value is proposed.
        fallback: Value,
    },
    /// It has decided.
    Decided {
        /// The value.
        value: Value,
    },
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Message {
    /// A vote.
    Vote {
        /// The round.
        round: u32,
        /// The value.
        vote: Value,
    },
    /// A proposal; none if the sender has seen two votes that differ.
    Proposal {
        /// The round.
        round: u32,
        /// The value.
        proposal: Option<Value>,
    },
    /// A decision.
    Decided {
        /// The value.
        value: Value,
    },
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vote { round, vote } => write!(f, "VOTE({round}, {vote})"),
            Self::Proposal { round, proposal: Some(value) } => write!(f, "PROPOSAL({round}, {value})"),
            Self::Proposal { round, proposal: None } => write!(f, "PROPOSAL({round}, none)"),
            Self::Decided { value } => write!(f, "DECIDED({value})"),
        }
    }
}

impl Rounds {
    /// The vote of a round has been compared with another: makes a proposal.
    fn propose(state: &mut State, round: u32, votes: [Value; 2], lower: Value) -> Vec<Message> {
        let proposal = (votes[0] == votes[1]).then_some(votes[0]);
        *state = State::Proposed { round, proposal, fallback: lower };
        vec![Message::Proposal { round, proposal }]
    }

    /// Two proposals of a round are known: decides, or votes in the next round.
    fn conclude(
        self,
        state: &mut State,
        round: u32,
        proposals: [Option<Value>; 2],
        fallback: Value,
    ) -> Vec<Message> {
        let known = proposals[0].or(proposals[1]);
        match known {
            Some(value) if self.decides_on_one_proposal || proposals[0] == proposals[1] => {
                *state = State::Decided { value };
                vec![Message::Decided { value }]
            }
            _ => {
                let (round, vote) = (round + 1, known.unwrap_or(fallback));
                *state = State::Voted { round, vote };
                vec![Message::Vote { round, vote }]
            }
        }
    }
}

impl Protocol for Rounds {
    type State = State;
    type Message = Message;

    fn name(&self) -> &'static str {
        "rounds"
    }

    fn rules(&self) -> &'static [&'static str] {
        &[
            "A process sends its input as its vote in round 1, and waits for one vote of another process.",
            "Equal votes: it proposes their value; different votes: it proposes none. It waits for one more proposal.",
            "Two proposals of one value: it decides. One: it votes for that value in the next round. None: it votes \
             as the process with the lower number did, of the two whose votes it has compared.",
            "A message of a later step than its own: it takes over the sender's vote or proposal and continues from \
             there. A message of an earlier step changes nothing.",
        ]
    }

    fn initial(&self, input: Value) -> State {
        State::Initial { input }
    }

    fn start(&self, _me: usize, state: &mut State) -> Vec<Message> {
        let State::Initial { input } = *state else { return Vec::new() };
        *state = State::Voted { round: 1, vote: input };
        vec![Message::Vote { round: 1, vote: input }]
    }

    fn receive(&self, me: usize, state: &mut State, from: usize, message: Message) -> Vec<Message> {
        if self.is_stale(state, message) {
            return Vec::new();
        }
        match (message, &*state) {
            (Message::Decided { value }, _) => {
                *state = State::Decided { value };
                Vec::new()
            }
            (Message::Vote { round, vote }, State::Voted { round: own_round, vote: own })
                if round == *own_round =>
            {
                let lower = if me < from { *own } else { vote };
                Self::propose(state, round, [*own, vote], lower)
            }
            // The step is later than its own: it takes over the vote.
            (Message::Vote { round, vote }, _) => Self::propose(state, round, [vote; 2], vote),
            (
                Message::Proposal { round, proposal },
                State::Proposed { round: own_round, proposal: own, fallback },
            ) if round == *own_round => self.conclude(state, round, [*own, proposal], *fallback),
            // The step is later than its own: it takes over the proposal.
            (Message::Proposal { round, proposal }, State::Voted { vote, .. }) => {
                self.conclude(state, round, [proposal; 2], *vote)
            }
            (Message::Proposal { round, proposal }, State::Proposed { fallback, .. }) => {
                self.conclude(state, round, [proposal; 2], *fallback)
            }
            (Message::Proposal { .. }, State::Initial { .. } | State::Decided { .. }) => Vec::new(),
        }
    }

    fn has_started(&self, state: &State) -> bool {
        !matches!(state, State::Initial { .. })
    }

    fn decision(&self, state: &State) -> Option<Value> {
        if let State::Decided { value } = state { Some(*value) } else { None }
    }

    fn is_stale(&self, state: &State, message: Message) -> bool {
        let of_message = match message {
            Message::Vote { round, .. } => (round, 0),
            Message::Proposal { round, .. } => (round, 1),
            Message::Decided { .. } => (u32::MAX, 0),
        };
        let own = match state {
            State::Initial { .. } => (1, 0),
            State::Voted { round, .. } => (*round, 0),
            State::Proposed { round, .. } => (*round, 1),
            State::Decided { .. } => (u32::MAX, 1),
        };
        of_message < own
    }

    fn describe(&self, state: &State) -> String {
        match state {
            State::Initial { input } => format!("input {input}, not started"),
            State::Voted { round, vote } => format!("round {round}, voted {vote}"),
            State::Proposed { round, proposal: Some(value), .. } => {
                format!("round {round}, proposed {value}")
            }
            State::Proposed { round, proposal: None, fallback } => {
                format!("round {round}, proposed none (else votes {fallback})")
            }
            State::Decided { value } => format!("decided {value}"),
        }
    }

    fn round(&self, state: &State) -> Option<u32> {
        match state {
            State::Initial { .. } => Some(1),
            State::Voted { round, .. } | State::Proposed { round, .. } => Some(*round),
            State::Decided { .. } => None,
        }
    }

    fn rebase(&self, state: &mut State, rounds: u32) {
        if let State::Voted { round, .. } | State::Proposed { round, .. } = state {
            *round -= rounds;
        }
    }

    fn rebase_message(&self, mut message: Message, rounds: u32) -> Message {
        if let Message::Vote { round, .. } | Message::Proposal { round, .. } = &mut message {
            *round = round.saturating_sub(rounds);
        }
        message
    }
}
