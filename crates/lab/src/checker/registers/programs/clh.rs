//! The queue lock of Craig (1993) and of Landin and Hagersten (1994): each process waits at the node of its
//! predecessor, and takes that node for its next entry.

use super::super::machine::{Access, Local, Modify, Program, Register};
use super::super::section::Section;
use super::truth;

pub(in super::super) struct Clh {
    pub(in super::super) processes: usize,
    /// Whether a process goes on with its predecessor's node. With its own node, it may set a register at which its
    /// successor still waits.
    pub(in super::super) takes_node: bool,
}

/// locked[node] := true
const REMAINDER: u8 = 0;
/// exchanges tail for its node
const ENQUEUE: u8 = 1;
/// waits while locked[the predecessor's node]
const AWAIT_GRANT: u8 = 2;
/// locked[node] := false
const INSIDE: u8 = 3;

impl Clh {
    /// The number of nodes: one for each process, and one that is free at first.
    fn nodes(&self) -> usize {
        self.processes + 1
    }

    fn tail(&self) -> usize {
        self.nodes()
    }

    /// The process's node. `mine` counts from its first node, so that it is 0 at first.
    fn node(&self, me: usize, at: Local) -> usize {
        (me + at.mine as usize) % self.nodes()
    }
}

impl Program for Clh {
    fn registers(&self) -> Vec<Register> {
        let tail = Register::new("tail", self.processes as u8, self.processes as u8);
        let node = |node: usize| Register::new(format!("locked[{node}]"), 1, 0);
        (1..=self.nodes()).map(node).chain([tail]).collect()
    }

    fn next(&self, me: usize, at: Local) -> Access {
        match at.line {
            REMAINDER => Access::Write(self.node(me, at), 1),
            ENQUEUE => Access::Modify(self.tail(), Modify::Swap(self.node(me, at) as u8)),
            AWAIT_GRANT => Access::Read(at.seen as usize),
            _ => Access::Write(self.node(me, at), 0),
        }
    }

    fn then(&self, me: usize, at: Local, read: u8) -> Option<Local> {
        Some(match at.line {
            REMAINDER => Local { line: ENQUEUE, ..at },
            ENQUEUE => Local { line: AWAIT_GRANT, seen: read, ..at },
            AWAIT_GRANT if read == 0 => Local { line: INSIDE, ..at },
            AWAIT_GRANT => at,
            _ if self.takes_node => {
                let mine = (at.seen as usize + self.nodes() - me) % self.nodes();
                Local { mine: mine as u8, ..Local::default() }
            }
            _ => Local::default(),
        })
    }

    fn section(&self, at: Local) -> Section {
        match at.line {
            REMAINDER => Section::Remainder,
            ENQUEUE => Section::Doorway,
            AWAIT_GRANT => Section::Waiting,
            _ => Section::Inside,
        }
    }

    fn describe(&self, register: usize, value: u8) -> String {
        if register == self.tail() { format!("node {}", value + 1) } else { truth(value) }
    }

    fn line_name(&self, line: u8) -> Option<&'static str> {
        Some(match line {
            REMAINDER => "Remainder",
            ENQUEUE => "Enqueue",
            AWAIT_GRANT => "AwaitGrant",
            INSIDE => "Inside",
            _ => return None,
        })
    }
}
