//! Eisenberg and McGuire's algorithm (1972): Dijkstra's problem with a bound on the wait.

use super::super::machine::{Access, Local, Program, Register};
use super::super::section::Section;
use super::{array, first, next};

pub(in super::super) struct EisenbergMcGuire {
    pub(in super::super) processes: usize,
    /// Whether an active process looks for other active ones. Without it, two processes may enter.
    pub(in super::super) looks: bool,
}

/// flag[i] := waiting
const REMAINDER: u8 = 0;
/// j := turn
const TURN: u8 = 1;
/// from turn to i: is j idle?
const AHEAD: u8 = 2;
/// flag[i] := active
const ACTIVE: u8 = 3;
/// is another process active?
const LOOK: u8 = 4;
/// is it the process's turn, …
const CHECK_TURN: u8 = 5;
/// … or is the process whose turn it is idle?
const CHECK_IDLE: u8 = 6;
/// flag[i] := waiting, once more
const AGAIN: u8 = 7;
/// turn := i
const TAKE_TURN: u8 = 8;
/// from i + 1 on: is j idle?
const INSIDE: u8 = 9;
const SUCCESSOR: u8 = 10;
/// turn := the first that is not idle
const PASS_TURN: u8 = 11;
/// flag[i] := idle
const LEAVING: u8 = 12;

const IDLE: u8 = 0;
const IS_WAITING: u8 = 1;
const IS_ACTIVE: u8 = 2;

impl EisenbergMcGuire {
    fn flag(&self, process: usize) -> usize {
        process
    }

    fn turn(&self) -> usize {
        self.processes
    }

    fn after(&self, j: u8) -> u8 {
        (j + 1) % self.processes as u8
    }

    /// The state of a process that examines those from the turn to itself, and has come to `j`.
    fn ahead(me: usize, j: u8) -> Local {
        Local { line: if j as usize == me { ACTIVE } else { AHEAD }, j, ..Local::default() }
    }
}

impl Program for EisenbergMcGuire {
    fn registers(&self) -> Vec<Register> {
        let turn = Register::new("turn", self.processes as u8 - 1, 0);
        array("flag", self.processes, IS_ACTIVE, IDLE).chain([turn]).collect()
    }

    fn next(&self, me: usize, at: Local) -> Access {
        match at.line {
            REMAINDER | AGAIN => Access::Write(self.flag(me), IS_WAITING),
            TURN | CHECK_TURN => Access::Read(self.turn()),
            AHEAD | LOOK | CHECK_IDLE | SUCCESSOR => Access::Read(self.flag(at.j as usize)),
            ACTIVE => Access::Write(self.flag(me), IS_ACTIVE),
            TAKE_TURN => Access::Write(self.turn(), me as u8),
            INSIDE => Access::Read(self.flag(self.after(me as u8) as usize)),
            PASS_TURN => Access::Write(self.turn(), at.j),
            _ => Access::Write(self.flag(me), IDLE),
        }
    }

    fn then(&self, me: usize, at: Local, read: u8) -> Option<Local> {
        let go = |line: u8| Local { line, ..Local::default() };
        let with = |line: u8, j: u8| Local { line, j, ..Local::default() };
        Some(match at.line {
            REMAINDER | AGAIN => go(TURN),
            TURN => Self::ahead(me, read),
            AHEAD if read == IDLE => Self::ahead(me, self.after(at.j)),
            AHEAD => go(TURN),
            ACTIVE if !self.looks => go(CHECK_TURN),
            ACTIVE => with(LOOK, first(me)),
            LOOK if read == IS_ACTIVE => go(AGAIN),
            LOOK => match next(at.j, me, self.processes) {
                Some(j) => with(LOOK, j),
                None => go(CHECK_TURN),
            },
            CHECK_TURN if read as usize == me => go(TAKE_TURN),
            CHECK_TURN => with(CHECK_IDLE, read),
            CHECK_IDLE => go(if read == IDLE { TAKE_TURN } else { AGAIN }),
            TAKE_TURN => go(INSIDE),
            INSIDE | SUCCESSOR => {
                let j = if at.line == INSIDE { self.after(me as u8) } else { at.j };
                let after = self.after(j);
                match read {
                    IDLE if after as usize == me => with(PASS_TURN, after),
                    IDLE => with(SUCCESSOR, after),
                    _ => with(PASS_TURN, j),
                }
            }
            PASS_TURN => go(LEAVING),
            _ => go(REMAINDER),
        })
    }

    fn section(&self, at: Local) -> Section {
        match at.line {
            REMAINDER => Section::Remainder,
            INSIDE => Section::Inside,
            SUCCESSOR | PASS_TURN | LEAVING => Section::Leaving,
            // Its doorway is a single write.
            _ => Section::Waiting,
        }
    }

    fn describe(&self, register: usize, value: u8) -> String {
        match value {
            _ if register == self.turn() => format!("{}", value + 1),
            IDLE => "idle".into(),
            IS_WAITING => "waiting".into(),
            _ => "active".into(),
        }
    }

    fn line_name(&self, line: u8) -> Option<&'static str> {
        Some(match line {
            REMAINDER => "Remainder",
            TURN => "Turn",
            AHEAD => "Ahead",
            ACTIVE => "Active",
            LOOK => "Look",
            CHECK_TURN => "CheckTurn",
            CHECK_IDLE => "CheckIdle",
            AGAIN => "Again",
            TAKE_TURN => "TakeTurn",
            INSIDE => "Inside",
            SUCCESSOR => "Successor",
            PASS_TURN => "PassTurn",
            LEAVING => "Leaving",
            _ => return None,
        })
    }
}
