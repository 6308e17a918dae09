//! Taubenfeld's black-white bakery (2004). A ticket (colour and number) is one register.

use super::super::machine::{Access, Local, Program, Register};
use super::super::section::Section;
use super::{array, first, next, truth};

pub(in super::super) struct BlackWhite {
    pub(in super::super) processes: usize,
}

/// choosing[i] := true
const REMAINDER: u8 = 0;
/// mycolor := color
const COLOR: u8 = 1;
/// reads ticket[j], for the highest of its colour
const HIGHEST: u8 = 2;
/// ticket[i] := its colour, 1 + the highest
const TICKET: u8 = 3;
/// choosing[i] := false
const CHOSEN: u8 = 4;
/// waits while choosing[j]
const AWAIT_CHOSEN: u8 = 5;
/// does j's ticket have my colour?
const COMPARE: u8 = 6;
/// it has: waits while it is lower
const AWAIT_TURN: u8 = 7;
/// it has not: waits while it is there, and …
const AWAIT_OTHER: u8 = 8;
/// … while color is mine
const AWAIT_COLOR: u8 = 9;
/// color := the other one
const INSIDE: u8 = 10;
/// ticket[i] := none
const LEAVING: u8 = 11;

fn color(ticket: u8) -> u8 {
    ticket % 2
}

fn number(ticket: u8) -> u8 {
    ticket / 2
}

fn ticket(color: u8, number: u8) -> u8 {
    2 * number + color
}

impl BlackWhite {
    fn ticket(&self, process: usize) -> usize {
        process
    }

    fn choosing(&self, process: usize) -> usize {
        self.processes + process
    }

    fn color(&self) -> usize {
        2 * self.processes
    }

    /// The state after the process has finished waiting for `at.j`.
    fn passed(&self, me: usize, at: Local) -> Local {
        match next(at.j, me, self.processes) {
            Some(j) => Local { line: AWAIT_CHOSEN, j, ..at },
            None => Local { line: INSIDE, j: 0, ..at },
        }
    }

    /// The state after one more ticket was read.
    fn highest(&self, me: usize, at: Local, read: u8) -> Option<Local> {
        let seen = if color(read) == color(at.mine) { at.seen.max(number(read)) } else { at.seen };
        match next(at.j, me, self.processes) {
            Some(j) => Some(Local { j, seen, ..at }),
            // The register cannot hold a number above N.
            None if (seen as usize) < self.processes => {
                Some(Local { line: TICKET, j: 0, seen: 0, mine: ticket(color(at.mine), seen + 1) })
            }
            None => None,
        }
    }
}

impl Program for BlackWhite {
    fn registers(&self) -> Vec<Register> {
        let most = ticket(1, self.processes as u8);
        let color = Register { name: "color".into(), most: 1, initial: 0 };
        array("ticket", self.processes, most, 0)
            .chain(array("choosing", self.processes, 1, 0))
            .chain([color])
            .collect()
    }

    fn next(&self, me: usize, at: Local) -> Access {
        match at.line {
            REMAINDER => Access::Write(self.choosing(me), 1),
            COLOR | AWAIT_COLOR => Access::Read(self.color()),
            HIGHEST | COMPARE | AWAIT_TURN | AWAIT_OTHER => Access::Read(self.ticket(at.j as usize)),
            TICKET => Access::Write(self.ticket(me), at.mine),
            CHOSEN => Access::Write(self.choosing(me), 0),
            AWAIT_CHOSEN => Access::Read(self.choosing(at.j as usize)),
            INSIDE => Access::Write(self.color(), 1 - color(at.mine)),
            _ => Access::Write(self.ticket(me), ticket(color(at.mine), 0)),
        }
    }

    fn then(&self, me: usize, at: Local, read: u8) -> Option<Local> {
        let go = |line: u8| Local { line, ..at };
        let same = color(read) == color(at.mine);
        let none = number(read) == 0;
        Some(match at.line {
            REMAINDER => go(COLOR),
            COLOR => Local { j: first(me), mine: read, ..go(HIGHEST) },
            HIGHEST => return self.highest(me, at, read),
            TICKET => go(CHOSEN),
            CHOSEN => Local { j: first(me), ..go(AWAIT_CHOSEN) },
            AWAIT_CHOSEN if read == 0 => go(COMPARE),
            COMPARE => go(if same { AWAIT_TURN } else { AWAIT_OTHER }),
            AWAIT_TURN if none || !same || (number(read), at.j) > (number(at.mine), me as u8) => {
                self.passed(me, at)
            }
            AWAIT_OTHER if none || same => self.passed(me, at),
            AWAIT_OTHER => go(AWAIT_COLOR),
            AWAIT_COLOR if !same => self.passed(me, at),
            AWAIT_COLOR => go(AWAIT_OTHER),
            AWAIT_CHOSEN | AWAIT_TURN => at,
            INSIDE => go(LEAVING),
            _ => Local::default(),
        })
    }

    fn section(&self, at: Local) -> Section {
        match at.line {
            REMAINDER => Section::Remainder,
            COLOR | HIGHEST | TICKET | CHOSEN => Section::Doorway,
            INSIDE => Section::Inside,
            LEAVING => Section::Leaving,
            _ => Section::Waiting,
        }
    }

    fn describe(&self, register: usize, value: u8) -> String {
        let name = |color: u8| if color == 1 { "black" } else { "white" };
        if register == self.color() {
            name(value).into()
        } else if register >= self.processes {
            truth(value)
        } else if number(value) == 0 {
            "none".into()
        } else {
            format!("{} {}", name(color(value)), number(value))
        }
    }

    fn line_name(&self, line: u8) -> Option<&'static str> {
        Some(match line {
            REMAINDER => "Remainder",
            COLOR => "Color",
            HIGHEST => "Highest",
            TICKET => "Ticket",
            CHOSEN => "Chosen",
            AWAIT_CHOSEN => "AwaitChosen",
            COMPARE => "Compare",
            AWAIT_TURN => "AwaitTurn",
            AWAIT_OTHER => "AwaitOther",
            AWAIT_COLOR => "AwaitColor",
            INSIDE => "Inside",
            LEAVING => "Leaving",
            _ => return None,
        })
    }
}
