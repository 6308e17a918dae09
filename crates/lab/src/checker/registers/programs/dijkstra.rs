//! Dijkstra's algorithm (1965), with the labels of the paper. `b` and `c` are initially true.

use super::super::machine::{Access, Local, Program, Register};
use super::super::section::Section;
use super::{array, first, next, truth};

pub(in super::super) struct Dijkstra {
    pub(in super::super) processes: usize,
}

const REMAINDER: u8 = 0;
/// if k ≠ i
const LI1: u8 = 1;
/// c[i] := true
const LI2: u8 = 2;
/// if b[k]: first k, then b of it
const LI3_K: u8 = 3;
const LI3_B: u8 = 4;
/// then k := i
const TAKE_TURN: u8 = 5;
/// c[i] := false
const LI4: u8 = 6;
/// for all j ≠ i, if not c[j] then go to Li1
const LOOK: u8 = 7;
const INSIDE: u8 = 8;
/// c[i] is true again; b[i] := true
const LEAVING: u8 = 9;

impl Dijkstra {
    fn b(&self, process: usize) -> usize {
        process
    }

    fn c(&self, process: usize) -> usize {
        self.processes + process
    }

    fn k(&self) -> usize {
        2 * self.processes
    }
}

impl Program for Dijkstra {
    fn registers(&self) -> Vec<Register> {
        let last = self.processes as u8 - 1;
        let k = Register::new("k", last, 0);
        array("b", self.processes, 1, 1).chain(array("c", self.processes, 1, 1)).chain([k]).collect()
    }

    fn next(&self, me: usize, at: Local) -> Access {
        match at.line {
            REMAINDER => Access::Write(self.b(me), 0),
            LI1 | LI3_K => Access::Read(self.k()),
            LI2 => Access::Write(self.c(me), 1),
            LI3_B => Access::Read(self.b(at.seen as usize)),
            TAKE_TURN => Access::Write(self.k(), me as u8),
            LI4 => Access::Write(self.c(me), 0),
            LOOK => Access::Read(self.c(at.j as usize)),
            INSIDE => Access::Write(self.c(me), 1),
            _ => Access::Write(self.b(me), 1),
        }
    }

    fn then(&self, me: usize, at: Local, read: u8) -> Option<Local> {
        let go = |line: u8| Local { line, ..Local::default() };
        Some(match at.line {
            REMAINDER | TAKE_TURN => go(LI1),
            LI1 if read as usize == me => go(LI4),
            LI1 => go(LI2),
            LI2 => go(LI3_K),
            LI3_K => Local { seen: read, ..go(LI3_B) },
            LI3_B => go(if read == 1 { TAKE_TURN } else { LI1 }),
            LI4 => Local { j: first(me), ..go(LOOK) },
            LOOK if read == 0 => go(LI1),
            LOOK => match next(at.j, me, self.processes) {
                Some(j) => Local { j, ..at },
                None => go(INSIDE),
            },
            INSIDE => go(LEAVING),
            _ => go(REMAINDER),
        })
    }

    fn section(&self, at: Local) -> Section {
        match at.line {
            REMAINDER => Section::Remainder,
            INSIDE => Section::Inside,
            LEAVING => Section::Leaving,
            // Its doorway is a single write and establishes no order.
            _ => Section::Waiting,
        }
    }

    fn describe(&self, register: usize, value: u8) -> String {
        if register == self.k() { format!("{}", value + 1) } else { truth(value) }
    }

    fn line_name(&self, line: u8) -> Option<&'static str> {
        Some(match line {
            REMAINDER => "Remainder",
            LI1 => "Li1",
            LI2 => "Li2",
            LI3_K => "Li3K",
            LI3_B => "Li3B",
            TAKE_TURN => "TakeTurn",
            LI4 => "Li4",
            LOOK => "Look",
            INSIDE => "Inside",
            LEAVING => "Leaving",
            _ => return None,
        })
    }
}
