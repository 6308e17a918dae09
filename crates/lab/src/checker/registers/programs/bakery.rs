//! Lamport's bakery (1974), with and without `choosing`.

use super::super::machine::{Access, Local, Program, Register};
use super::super::section::Section;
use super::{array, first, next, truth};

pub(in super::super) struct Bakery {
    pub(in super::super) processes: usize,
    /// Whether the program uses the register `choosing`. Without it, two processes may enter.
    pub(in super::super) choosing: bool,
    /// The maximum ticket.
    pub(in super::super) most: u8,
}

/// choosing[i] := true
const REMAINDER: u8 = 0;
/// reads number[j], for the highest
const HIGHEST: u8 = 1;
/// number[i] := 1 + the highest
const TICKET: u8 = 2;
/// choosing[i] := false
const CHOSEN: u8 = 3;
/// waits while choosing[j]
const AWAIT_CHOSEN: u8 = 4;
/// waits while j has a lower ticket
const AWAIT_TURN: u8 = 5;
/// number[i] := 0
const INSIDE: u8 = 6;

impl Bakery {
    fn number(&self, process: usize) -> usize {
        process
    }

    fn choosing(&self, process: usize) -> usize {
        self.processes + process
    }

    /// The state in which a process begins to wait for process `j`.
    fn wait_for(&self, j: u8, mine: u8) -> Local {
        Local { line: if self.choosing { AWAIT_CHOSEN } else { AWAIT_TURN }, j, seen: 0, mine }
    }

    /// The state after one more number was read.
    fn highest(&self, me: usize, j: u8, seen: u8) -> Option<Local> {
        match next(j, me, self.processes) {
            Some(j) => Some(Local { line: HIGHEST, j, seen, mine: 0 }),
            None if seen < self.most => Some(Local { line: TICKET, j: 0, seen, mine: 0 }),
            None => None,
        }
    }
}

impl Program for Bakery {
    fn registers(&self) -> Vec<Register> {
        let choosing = if self.choosing { self.processes } else { 0 };
        array("number", self.processes, self.most, 0).chain(array("choosing", choosing, 1, 0)).collect()
    }

    fn next(&self, me: usize, at: Local) -> Access {
        match at.line {
            REMAINDER if self.choosing => Access::Write(self.choosing(me), 1),
            REMAINDER => Access::Read(self.number(first(me) as usize)),
            HIGHEST | AWAIT_TURN => Access::Read(self.number(at.j as usize)),
            TICKET => Access::Write(self.number(me), at.seen + 1),
            CHOSEN => Access::Write(self.choosing(me), 0),
            AWAIT_CHOSEN => Access::Read(self.choosing(at.j as usize)),
            _ => Access::Write(self.number(me), 0),
        }
    }

    fn then(&self, me: usize, at: Local, read: u8) -> Option<Local> {
        Some(match at.line {
            REMAINDER if self.choosing => Local { line: HIGHEST, j: first(me), ..Local::default() },
            REMAINDER => return self.highest(me, first(me), read),
            HIGHEST => return self.highest(me, at.j, at.seen.max(read)),
            TICKET if self.choosing => Local { line: CHOSEN, j: 0, seen: 0, mine: at.seen + 1 },
            TICKET => self.wait_for(first(me), at.seen + 1),
            CHOSEN => self.wait_for(first(me), at.mine),
            AWAIT_CHOSEN if read == 0 => Local { line: AWAIT_TURN, ..at },
            AWAIT_TURN if read == 0 || (read, at.j) > (at.mine, me as u8) => {
                match next(at.j, me, self.processes) {
                    Some(j) => self.wait_for(j, at.mine),
                    None => Local { line: INSIDE, ..Local::default() },
                }
            }
            AWAIT_CHOSEN | AWAIT_TURN => at,
            _ => Local::default(),
        })
    }

    fn section(&self, at: Local) -> Section {
        match at.line {
            REMAINDER => Section::Remainder,
            HIGHEST | TICKET | CHOSEN => Section::Doorway,
            INSIDE => Section::Inside,
            _ => Section::Waiting,
        }
    }

    fn describe(&self, register: usize, value: u8) -> String {
        if register < self.processes { value.to_string() } else { truth(value) }
    }

    fn line_name(&self, line: u8) -> Option<&'static str> {
        Some(match line {
            REMAINDER if !self.choosing => "Highest",
            REMAINDER => "Remainder",
            HIGHEST => "Highest",
            TICKET => "Ticket",
            CHOSEN => "Chosen",
            AWAIT_CHOSEN => "AwaitChosen",
            AWAIT_TURN => "AwaitTurn",
            INSIDE => "Inside",
            _ => return None,
        })
    }
}
