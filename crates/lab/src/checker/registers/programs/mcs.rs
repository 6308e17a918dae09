//! The queue lock of Mellor-Crummey and Scott (1991): each process waits at a register of its own.

use super::super::machine::{Access, Local, Modify, Program, Register};
use super::super::section::Section;
use super::{array, truth};

pub(in super::super) struct Mcs {
    pub(in super::super) processes: usize,
    /// Whether the last process leaves with one instruction. Without it, a process that comes meanwhile is forgotten.
    pub(in super::super) compare_and_swap: bool,
}

/// next[i] := none
const REMAINDER: u8 = 0;
/// exchanges tail for i
const ENQUEUE: u8 = 1;
/// locked[i] := true
const LOCK: u8 = 2;
/// next[predecessor] := i
const LINK: u8 = 3;
/// waits while locked[i]
const AWAIT_GRANT: u8 = 4;
/// reads next[i]
const INSIDE: u8 = 5;
/// tail := none if it is i
const EMPTY: u8 = 6;
/// without the instruction: the write
const CLEAR: u8 = 7;
/// waits while next[i] is none
const AWAIT_LINK: u8 = 8;
/// locked[successor] := false
const GRANT: u8 = 9;

/// The value of a register that names no process; process i is i + 1.
const NONE: u8 = 0;

impl Mcs {
    fn next_of(&self, process: usize) -> usize {
        process
    }

    fn locked(&self, process: usize) -> usize {
        self.processes + process
    }

    fn tail(&self) -> usize {
        2 * self.processes
    }
}

impl Program for Mcs {
    fn registers(&self) -> Vec<Register> {
        let most = self.processes as u8;
        let tail = Register::new("tail", most, NONE);
        array("next", self.processes, most, NONE)
            .chain(array("locked", self.processes, 1, 0))
            .chain([tail])
            .collect()
    }

    fn next(&self, me: usize, at: Local) -> Access {
        let named = me as u8 + 1;
        match at.line {
            REMAINDER => Access::Write(self.next_of(me), NONE),
            ENQUEUE => Access::Modify(self.tail(), Modify::Swap(named)),
            LOCK => Access::Write(self.locked(me), 1),
            LINK => Access::Write(self.next_of(at.j as usize), named),
            AWAIT_GRANT => Access::Read(self.locked(me)),
            EMPTY if self.compare_and_swap => {
                Access::Modify(self.tail(), Modify::CompareAndSwap(named, NONE))
            }
            EMPTY => Access::Read(self.tail()),
            CLEAR => Access::Modify(self.tail(), Modify::Swap(NONE)),
            GRANT => Access::Write(self.locked(at.j as usize), 0),
            _ => Access::Read(self.next_of(me)),
        }
    }

    fn then(&self, me: usize, at: Local, read: u8) -> Option<Local> {
        let go = |line: u8| Local { line, ..Local::default() };
        let with = |line: u8| Local { line, j: read - 1, ..Local::default() };
        Some(match at.line {
            REMAINDER => go(ENQUEUE),
            ENQUEUE if read == NONE => go(INSIDE),
            ENQUEUE => with(LOCK),
            LOCK => Local { line: LINK, ..at },
            LINK => go(AWAIT_GRANT),
            AWAIT_GRANT if read == 0 => go(INSIDE),
            AWAIT_GRANT => at,
            INSIDE if read == NONE => go(EMPTY),
            EMPTY if read as usize != me + 1 => go(AWAIT_LINK),
            EMPTY if !self.compare_and_swap => go(CLEAR),
            AWAIT_LINK if read == NONE => at,
            INSIDE | AWAIT_LINK => with(GRANT),
            _ => go(REMAINDER),
        })
    }

    fn section(&self, at: Local) -> Section {
        match at.line {
            REMAINDER => Section::Remainder,
            ENQUEUE => Section::Doorway,
            LOCK | LINK | AWAIT_GRANT => Section::Waiting,
            INSIDE => Section::Inside,
            _ => Section::Leaving,
        }
    }

    fn describe(&self, register: usize, value: u8) -> String {
        match value {
            _ if (self.processes..self.tail()).contains(&register) => truth(value),
            NONE => "none".into(),
            _ => format!("P{value}"),
        }
    }

    fn line_name(&self, line: u8) -> Option<&'static str> {
        Some(match line {
            REMAINDER => "Remainder",
            ENQUEUE => "Enqueue",
            LOCK => "Lock",
            LINK => "Link",
            AWAIT_GRANT => "AwaitGrant",
            INSIDE => "Inside",
            EMPTY => "Empty",
            CLEAR => "Clear",
            AWAIT_LINK => "AwaitLink",
            GRANT => "Grant",
            _ => return None,
        })
    }
}
