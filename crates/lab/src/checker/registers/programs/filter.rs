//! Peterson's algorithm for N processes (1981), as the filter lock of Herlihy and Shavit: N−1 levels, each of which
//! keeps one process back.

use super::super::machine::{Access, Local, Program, Register};
use super::super::section::Section;
use super::{array, first, next};

pub(in super::super) struct Filter {
    pub(in super::super) processes: usize,
    /// Wrong on purpose: a process becomes the victim of a level before it comes to it.
    pub(in super::super) victim_first: bool,
}

/// level[i] := 1
const REMAINDER: u8 = 0;
/// level[i] := the next level
const LEVEL: u8 = 1;
/// victim[level] := i
const VICTIM: u8 = 2;
/// waits while level[j] is not lower …
const AWAIT_LEVEL: u8 = 3;
/// … and victim[level] = i
const AWAIT_VICTIM: u8 = 4;
/// level[i] := 0
const INSIDE: u8 = 5;

impl Filter {
    fn level(&self, process: usize) -> usize {
        process
    }

    /// The register of a level's victim. Levels count from 1.
    fn victim(&self, level: u8) -> usize {
        self.processes + level as usize - 1
    }

    /// The state of a process at the entrance of a level.
    fn at_level(&self, mine: u8) -> Local {
        let line = if mine as usize == self.processes {
            INSIDE
        } else if self.victim_first {
            VICTIM
        } else {
            LEVEL
        };
        Local { line, mine, ..Local::default() }
    }
}

impl Program for Filter {
    fn registers(&self) -> Vec<Register> {
        let most = self.processes as u8 - 1;
        let victims = (1..self.processes).map(|level| Register::new(format!("victim[{level}]"), most, 0));
        array("level", self.processes, most, 0).chain(victims).collect()
    }

    fn next(&self, me: usize, at: Local) -> Access {
        match at.line {
            REMAINDER if self.victim_first => Access::Write(self.victim(1), me as u8),
            REMAINDER => Access::Write(self.level(me), 1),
            LEVEL => Access::Write(self.level(me), at.mine),
            VICTIM => Access::Write(self.victim(at.mine), me as u8),
            AWAIT_LEVEL => Access::Read(self.level(at.j as usize)),
            AWAIT_VICTIM => Access::Read(self.victim(at.mine)),
            _ => Access::Write(self.level(me), 0),
        }
    }

    fn then(&self, me: usize, at: Local, read: u8) -> Option<Local> {
        let go = |line: u8| Local { line, ..at };
        let wait = || Local { j: first(me), ..go(AWAIT_LEVEL) };
        Some(match at.line {
            REMAINDER => Local { mine: 1, ..go(if self.victim_first { LEVEL } else { VICTIM }) },
            LEVEL if self.victim_first => wait(),
            LEVEL => go(VICTIM),
            VICTIM if self.victim_first => go(LEVEL),
            VICTIM => wait(),
            AWAIT_LEVEL if read >= at.mine => go(AWAIT_VICTIM),
            AWAIT_LEVEL => match next(at.j, me, self.processes) {
                Some(j) => Local { j, ..at },
                None => self.at_level(at.mine + 1),
            },
            AWAIT_VICTIM if read as usize == me => go(AWAIT_LEVEL),
            AWAIT_VICTIM => self.at_level(at.mine + 1),
            _ => Local::default(),
        })
    }

    fn section(&self, at: Local) -> Section {
        match at.line {
            REMAINDER => Section::Remainder,
            LEVEL | VICTIM if at.mine == 1 => Section::Doorway,
            INSIDE => Section::Inside,
            _ => Section::Waiting,
        }
    }

    fn describe(&self, register: usize, value: u8) -> String {
        if register < self.processes { value.to_string() } else { format!("P{}", value + 1) }
    }

    fn line_name(&self, line: u8) -> Option<&'static str> {
        Some(match line {
            REMAINDER if self.victim_first => "Victim",
            REMAINDER => "Remainder",
            LEVEL => "Level",
            VICTIM => "Victim",
            AWAIT_LEVEL => "AwaitLevel",
            AWAIT_VICTIM => "AwaitVictim",
            INSIDE => "Inside",
            _ => return None,
        })
    }
}
