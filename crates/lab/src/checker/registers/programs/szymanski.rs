//! Szymanski's algorithm (1988): one register of five values for each process, and a waiting room whose door the
//! last process that comes in closes.

use super::super::machine::{Access, Local, Program, Register};
use super::super::section::Section;
use super::{array, first, next};

pub(in super::super) struct Szymanski {
    pub(in super::super) processes: usize,
    /// Whether a process waits for those with a lower number. Without it, two processes may enter.
    pub(in super::super) waits_for_lower: bool,
}

/// flag[i] := 1: it requests
const REMAINDER: u8 = 0;
/// waits until no flag[j] is 3 or 4: the door is open
const AWAIT_DOOR: u8 = 1;
/// flag[i] := 3: it is in the doorway of the waiting room
const IN_DOOR: u8 = 2;
/// is there a flag[j] = 1?
const LOOK: u8 = 3;
/// flag[i] := 2: it lets the others in
const WAIT: u8 = 4;
/// waits for a flag[j] = 4, or until no other process requests or is in the doorway
const AWAIT_CLOSED: u8 = 5;
/// flag[i] := 4: the door is closed
const CLOSE: u8 = 6;
/// waits until flag[j] of each j < i is 0 or 1
const AWAIT_LOWER: u8 = 7;
/// waits until no flag[j] of a j > i is 2 or 3
const INSIDE: u8 = 8;
const AWAIT_HIGHER: u8 = 9;
/// flag[i] := 0
const LEAVING: u8 = 10;

impl Szymanski {
    /// The state after the door has been closed.
    fn closed(&self, me: usize) -> Local {
        let waits = self.waits_for_lower && me > 0;
        Local { line: if waits { AWAIT_LOWER } else { INSIDE }, ..Local::default() }
    }

    /// The first process after this one.
    fn higher(&self, me: usize) -> Option<usize> {
        (me + 1 < self.processes).then_some(me + 1)
    }
}

impl Program for Szymanski {
    fn registers(&self) -> Vec<Register> {
        array("flag", self.processes, 4, 0).collect()
    }

    fn next(&self, me: usize, at: Local) -> Access {
        match at.line {
            REMAINDER => Access::Write(me, 1),
            IN_DOOR => Access::Write(me, 3),
            WAIT => Access::Write(me, 2),
            CLOSE => Access::Write(me, 4),
            INSIDE => self.higher(me).map_or(Access::Write(me, 0), Access::Read),
            LEAVING => Access::Write(me, 0),
            _ => Access::Read(at.j as usize),
        }
    }

    fn then(&self, me: usize, at: Local, read: u8) -> Option<Local> {
        let go = |line: u8| Local { line, ..Local::default() };
        let scan = |line: u8| Local { j: first(me), ..go(line) };
        // The same line for the next process, or the state after the last one.
        let each = |after: Local| next(at.j, me, self.processes).map_or(after, |j| Local { j, ..at });
        Some(match at.line {
            REMAINDER => scan(AWAIT_DOOR),
            AWAIT_DOOR if read >= 3 => at,
            AWAIT_DOOR => each(go(IN_DOOR)),
            IN_DOOR => scan(LOOK),
            LOOK if read == 1 => go(WAIT),
            LOOK => each(go(CLOSE)),
            WAIT => scan(AWAIT_CLOSED),
            AWAIT_CLOSED if read == 4 => go(CLOSE),
            // `seen`: in this round, a process was found that will close the door or give up.
            AWAIT_CLOSED => {
                let seen = u8::from(at.seen == 1 || read == 1 || read == 3);
                let again = if seen == 1 { scan(AWAIT_CLOSED) } else { go(IN_DOOR) };
                next(at.j, me, self.processes).map_or(again, |j| Local { j, seen, ..at })
            }
            CLOSE => self.closed(me),
            AWAIT_LOWER if read >= 2 => at,
            AWAIT_LOWER if at.j as usize + 1 < me => Local { j: at.j + 1, ..at },
            AWAIT_LOWER => go(INSIDE),
            INSIDE | AWAIT_HIGHER => {
                let Some(higher) = self.higher(me) else { return Some(go(REMAINDER)) };
                let j = if at.line == INSIDE { higher as u8 } else { at.j };
                match read {
                    2 | 3 => Local { j, ..go(AWAIT_HIGHER) },
                    _ if j as usize + 1 < self.processes => Local { j: j + 1, ..go(AWAIT_HIGHER) },
                    _ => go(LEAVING),
                }
            }
            _ => go(REMAINDER),
        })
    }

    fn section(&self, at: Local) -> Section {
        match at.line {
            REMAINDER => Section::Remainder,
            INSIDE => Section::Inside,
            AWAIT_HIGHER | LEAVING => Section::Leaving,
            // Its doorway is a single write.
            _ => Section::Waiting,
        }
    }

    fn describe(&self, _register: usize, value: u8) -> String {
        value.to_string()
    }

    fn line_name(&self, line: u8) -> Option<&'static str> {
        Some(match line {
            REMAINDER => "Remainder",
            AWAIT_DOOR => "AwaitDoor",
            IN_DOOR => "InDoor",
            LOOK => "Look",
            WAIT => "Wait",
            AWAIT_CLOSED => "AwaitClosed",
            CLOSE => "Close",
            AWAIT_LOWER => "AwaitLower",
            INSIDE => "Inside",
            AWAIT_HIGHER => "AwaitHigher",
            LEAVING => "Leaving",
            _ => return None,
        })
    }
}
