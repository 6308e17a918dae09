//! The ticket lock: a counter that gives out tickets, and one that shows which ticket is served. Both count modulo N
//! here, since at most N tickets are outstanding.

use super::super::machine::{Access, Local, Modify, Program, Register};
use super::super::section::Section;

pub(in super::super) struct Ticket {
    pub(in super::super) processes: usize,
    /// Whether a ticket is taken by one instruction. Without it, two processes may take the same one.
    pub(in super::super) fetch_and_add: bool,
}

/// takes a ticket from next
const REMAINDER: u8 = 0;
/// without the instruction: next := the ticket + 1
const COUNT: u8 = 1;
/// waits until serving is its ticket
const AWAIT_TURN: u8 = 2;
/// serving := its ticket + 1
const INSIDE: u8 = 3;

const NEXT: usize = 0;
const SERVING: usize = 1;

impl Ticket {
    fn after(&self, ticket: u8) -> u8 {
        (ticket + 1) % self.processes as u8
    }
}

impl Program for Ticket {
    fn registers(&self) -> Vec<Register> {
        let most = self.processes as u8 - 1;
        vec![Register::new("next", most, 0), Register::new("serving", most, 0)]
    }

    fn next(&self, _me: usize, at: Local) -> Access {
        match at.line {
            REMAINDER if self.fetch_and_add => Access::Modify(NEXT, Modify::Increment),
            REMAINDER => Access::Read(NEXT),
            COUNT => Access::Write(NEXT, self.after(at.mine)),
            AWAIT_TURN => Access::Read(SERVING),
            _ => Access::Write(SERVING, self.after(at.mine)),
        }
    }

    fn then(&self, _me: usize, at: Local, read: u8) -> Option<Local> {
        Some(match at.line {
            REMAINDER => {
                let line = if self.fetch_and_add { AWAIT_TURN } else { COUNT };
                Local { line, mine: read, ..at }
            }
            COUNT => Local { line: AWAIT_TURN, ..at },
            AWAIT_TURN if read == at.mine => Local { line: INSIDE, ..at },
            AWAIT_TURN => at,
            _ => Local::default(),
        })
    }

    fn section(&self, at: Local) -> Section {
        match at.line {
            REMAINDER => Section::Remainder,
            COUNT => Section::Doorway,
            INSIDE => Section::Inside,
            _ => Section::Waiting,
        }
    }

    fn describe(&self, _register: usize, value: u8) -> String {
        value.to_string()
    }

    fn line_name(&self, line: u8) -> Option<&'static str> {
        Some(match line {
            REMAINDER => "Remainder",
            COUNT => "Count",
            AWAIT_TURN => "AwaitTurn",
            INSIDE => "Inside",
            _ => return None,
        })
    }
}
