//! Peterson's algorithm (1981) for two processes, and a tournament of it (Peterson and Fischer 1977) for three: P1
//! and P2 play at the lower node, and the winner plays against P3 at the root.

use super::super::machine::{Access, Local, Program, Register};
use super::super::section::Section;
use super::truth;

pub(in super::super) struct Peterson {
    pub(in super::super) processes: usize,
    /// Wrong on purpose: a process writes `turn` before `flag`.
    pub(in super::super) turn_first: bool,
}

/// flag[i] := true at the first node
const REMAINDER: u8 = 0;
/// turn := the other side
const TURN: u8 = 1;
/// waits while flag[j] …
const AWAIT_FLAG: u8 = 2;
/// … and turn is the other side
const AWAIT_TURN: u8 = 3;
/// flag[i] := true at the next node
const FLAG: u8 = 4;
/// flag[i] := false at the root
const INSIDE: u8 = 5;
/// flag[i] := false at the node below
const LEAVING: u8 = 6;

impl Peterson {
    /// The nodes that a process passes, leaf first, each with the side on which it plays. Node 0 is the root.
    fn path(&self, me: usize) -> &'static [(usize, u8)] {
        match (self.processes, me) {
            (2, 0) => &[(0, 0)],
            (2, _) | (_, 2) => &[(0, 1)],
            (_, 0) => &[(1, 0), (0, 0)],
            (_, _) => &[(1, 1), (0, 0)],
        }
    }

    fn nodes(&self) -> usize {
        self.processes - 1
    }

    fn flag(&self, node: usize, side: u8) -> usize {
        2 * node + side as usize
    }

    fn turn(&self, node: usize) -> usize {
        2 * self.nodes() + node
    }

    /// The state after the process has won the node at a level.
    fn won(&self, me: usize, level: u8) -> Local {
        match self.path(me).get(level as usize + 1) {
            Some(_) => {
                Local { line: if self.turn_first { TURN } else { FLAG }, j: level + 1, ..Local::default() }
            }
            None => Local { line: INSIDE, j: level, ..Local::default() },
        }
    }
}

impl Program for Peterson {
    fn registers(&self) -> Vec<Register> {
        let place = |node: usize| match (self.processes, node) {
            (2, _) => "",
            (_, 0) => "root ",
            _ => "lower ",
        };
        let flag = |index: usize| Register::new(format!("{}flag[{}]", place(index / 2), index % 2 + 1), 1, 0);
        let turn = |node: usize| Register::new(format!("{}turn", place(node)), 1, 0);
        (0..2 * self.nodes()).map(flag).chain((0..self.nodes()).map(turn)).collect()
    }

    fn next(&self, me: usize, at: Local) -> Access {
        let (node, side) = self.path(me)[at.j as usize];
        match at.line {
            REMAINDER if self.turn_first => Access::Write(self.turn(node), 1 - side),
            REMAINDER | FLAG => Access::Write(self.flag(node, side), 1),
            TURN => Access::Write(self.turn(node), 1 - side),
            AWAIT_FLAG => Access::Read(self.flag(node, 1 - side)),
            AWAIT_TURN => Access::Read(self.turn(node)),
            _ => Access::Write(self.flag(node, side), 0),
        }
    }

    fn then(&self, me: usize, at: Local, read: u8) -> Option<Local> {
        let (_, side) = self.path(me)[at.j as usize];
        let go = |line: u8| Local { line, ..at };
        Some(match at.line {
            REMAINDER if self.turn_first => go(FLAG),
            TURN if self.turn_first => go(FLAG),
            FLAG if self.turn_first => go(AWAIT_FLAG),
            REMAINDER | FLAG => go(TURN),
            TURN => go(AWAIT_FLAG),
            AWAIT_FLAG if read == 0 => self.won(me, at.j),
            AWAIT_FLAG => go(AWAIT_TURN),
            AWAIT_TURN if read == side => self.won(me, at.j),
            AWAIT_TURN => go(AWAIT_FLAG),
            _ if at.j > 0 => Local { line: LEAVING, j: at.j - 1, ..at },
            _ => Local::default(),
        })
    }

    fn section(&self, at: Local) -> Section {
        match at.line {
            REMAINDER => Section::Remainder,
            TURN | FLAG if at.j == 0 => Section::Doorway,
            INSIDE => Section::Inside,
            LEAVING => Section::Leaving,
            _ => Section::Waiting,
        }
    }

    fn describe(&self, register: usize, value: u8) -> String {
        if register < 2 * self.nodes() { truth(value) } else { format!("{}", value + 1) }
    }

    fn line_name(&self, line: u8) -> Option<&'static str> {
        Some(match line {
            REMAINDER if self.turn_first => "Turn",
            REMAINDER => "Remainder",
            TURN => "Turn",
            AWAIT_FLAG => "AwaitFlag",
            AWAIT_TURN => "AwaitTurn",
            FLAG => "Flag",
            INSIDE => "Inside",
            LEAVING => "Leaving",
            _ => return None,
        })
    }
}
