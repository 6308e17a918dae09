//! Lamport's algorithm as specified in TLA+ (LamportMutex in tlaplus/Examples), as machines of the checker.
//!
//! It differs from our own `lamport`: clocks start at 1 and advance only on receipt of a request,
//! acknowledgements and releases carry no time, entering is a step of its own, and that step stays possible
//! while the process is inside.

use lockkeeper_lab::checker::mutual_exclusion::machine::{
    Cause, Choice, Effect, Entry, Facts, Machines, Sent, Step, Tallied,
};
use smallvec::SmallVec;

/// The specification for `processes` processes, explored while no clock exceeds `max_clock`.
#[derive(Clone, Copy, Debug)]
pub struct LamportMutex {
    /// The number of processes.
    pub processes: usize,
    /// The largest clock that is explored.
    pub max_clock: u8,
}

/// The maximum number of processes.
pub const MOST: usize = 3;

/// The state of one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its logical clock.
    pub clock: u8,
    /// The time of each process's request as known to this one; 0 for none.
    pub requests: [u8; MOST],
    /// The processes that have acknowledged, one bit each.
    pub acks: u8,
    /// Whether it is in the critical section.
    pub critical: bool,
}

/// A message between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    /// A request with its time.
    Request(u8),
    /// The acknowledgement of a request.
    Ack,
    /// The sender has left the critical section.
    Release,
}

const REQUEST: u32 = 0;
const ENTER: u32 = 1;
const EXIT: u32 = 2;

impl LamportMutex {
    /// The initial state of a process.
    pub fn first(&self) -> Process {
        Process { clock: 1, requests: [0; MOST], acks: 0, critical: false }
    }

    fn beats(&self, me: usize, process: &Process, other: usize) -> bool {
        let (mine, theirs) = (process.requests[me], process.requests[other]);
        theirs == 0 || (mine, me) < (theirs, other)
    }

    /// Whether this process may request the critical section.
    pub fn can_request(&self, me: usize, process: &Process) -> bool {
        process.requests[me] == 0
    }

    /// Whether this process may enter the critical section.
    pub fn can_enter(&self, me: usize, process: &Process) -> bool {
        let all = (1 << self.processes) - 1;
        process.acks == all
            && (0..self.processes).filter(|&other| other != me).all(|other| self.beats(me, process, other))
    }

    /// Requests; returns the message to all other processes.
    pub fn request(&self, me: usize, process: &mut Process) -> Message {
        process.requests[me] = process.clock;
        process.acks = 1 << me;
        Message::Request(process.clock)
    }

    /// Leaves; returns the message to all other processes.
    pub fn exit(&self, me: usize, process: &mut Process) -> Message {
        process.critical = false;
        process.requests[me] = 0;
        process.acks = 0;
        Message::Release
    }

    /// Handles a message; returns the reply.
    pub fn receive(&self, process: &mut Process, from: usize, message: Message) -> Option<Message> {
        match message {
            Message::Request(time) => {
                process.requests[from] = time;
                process.clock = process.clock.max(time) + 1;
                Some(Message::Ack)
            }
            Message::Ack => {
                process.acks |= 1 << from;
                None
            }
            Message::Release => {
                process.requests[from] = 0;
                None
            }
        }
    }
}

impl Machines for LamportMutex {
    type Local = Process;
    type Envelope = Message;

    fn machines(&self) -> usize {
        self.processes
    }

    fn fifo(&self) -> bool {
        true
    }

    fn start(&self) -> (Vec<Process>, Vec<Sent<Message>>) {
        (vec![self.first(); self.processes], Vec::new())
    }

    fn choices(&self, who: usize, process: &Process) -> SmallVec<[Choice; 4]> {
        let mut choices = SmallVec::new();
        if self.can_request(who, process) {
            choices.push(Choice::plain(REQUEST));
        }
        if self.can_enter(who, process) {
            choices.push(Choice::plain(ENTER));
        }
        if process.critical {
            choices.push(Choice::plain(EXIT));
        }
        choices
    }

    fn step(&self, who: usize, process: &mut Process, cause: Cause<'_, Message>) -> Step<Message> {
        let mut effect = Effect::default();
        let others = (0..self.processes).filter(|&other| other != who);
        let sends = match cause {
            Cause::Choice(REQUEST) => {
                let message = self.request(who, process);
                others.map(|to| (to, message)).collect()
            }
            Cause::Choice(ENTER) => {
                process.critical = true;
                effect.entered = Some(Entry::default());
                Vec::new()
            }
            Cause::Choice(_) => {
                let message = self.exit(who, process);
                others.map(|to| (to, message)).collect()
            }
            Cause::Message(from, &message) => {
                self.receive(process, from, message).map(|answer| (from, answer)).into_iter().collect()
            }
        };
        Step { sends, effect }
    }

    fn text(&self, message: &Message) -> String {
        format!("{message:?}")
    }

    fn facts(&self, _who: usize, process: &Process) -> Facts {
        Facts { inside: process.critical, ..Facts::default() }
    }

    fn tallied(&self) -> Tallied {
        Tallied { messages: false, bypass: false }
    }

    fn beyond(&self, _who: usize, process: &Process) -> bool {
        process.clock > self.max_clock
    }
}
