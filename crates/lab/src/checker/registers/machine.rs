//! Processes that share registers: a step is one read, one write, or one read-modify-write instruction.
//!
//! *Atomic* registers are read and written in one step. Writes of the two weaker kinds (Lamport's terms) take two
//! steps, and a read in between is not determined: of a *regular* register it returns the value before the write or
//! the value that is being written, of a *safe* register any value that the register can hold. If two writes of a safe
//! register overlap, any value can remain; of a regular register, the value of one of them. A register that
//! instructions modify is atomic in every system: such an instruction cannot be taken apart.
//!
//! Example: P1 begins to write 1 into a safe register that holds 0. Until the write ends, P2 may read 0, 1 or
//! any other value up to the register's maximum; the search follows each of these reads.

use super::section::Section;
use super::walk::RegisterValue;
use serde::Serialize;
use std::fmt;

/// The maximum number of processes.
pub const MOST_PROCESSES: usize = 3;
/// Two registers per process and one global one.
const MOST_REGISTERS: usize = 2 * MOST_PROCESSES + 1;

/// What a read of a register returns while the register is being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RegisterKind {
    /// A write takes one step, so that no read overlaps it.
    #[default]
    Atomic,
    /// The value before the write, or the value that is being written.
    Regular,
    /// Any value that the register can hold.
    Safe,
}

impl fmt::Display for RegisterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Atomic => "atomic",
            Self::Regular => "regular",
            Self::Safe => "safe",
        })
    }
}

/// An algorithm as a program for each process. Processes are numbered from 0.
pub(super) trait Program: Sync {
    /// The registers.
    fn registers(&self) -> Vec<Register>;
    /// The next access of process `me`.
    fn next(&self, me: usize, at: Local) -> Access;
    /// The state after the access, given the value read (0 for a write). `None`: the step would take a ticket
    /// above the limit.
    fn then(&self, me: usize, at: Local, read: u8) -> Option<Local>;
    /// The section of the program that a process is in.
    fn section(&self, at: Local) -> Section;
    /// A register's value as text.
    fn describe(&self, register: usize, value: u8) -> String;
    /// The name of a line in the pseudo-code, by the program counter; `None` if there is no such line.
    fn line_name(&self, line: u8) -> Option<&'static str>;
}

/// A register.
#[derive(Clone, Debug)]
pub(super) struct Register {
    /// The name in the paper.
    pub(super) name: String,
    /// The maximum value; the minimum is 0.
    pub(super) most: u8,
    /// The initial value.
    pub(super) initial: u8,
}

impl Register {
    pub(super) fn new(name: impl Into<String>, most: u8, initial: u8) -> Self {
        Self { name: name.into(), most, initial }
    }
}

/// An access of a register.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    /// A read of a register.
    Read(usize),
    /// A write of a value to a register.
    Write(usize, u8),
    /// A read-modify-write instruction on a register. It reads the value before it.
    Modify(usize, Modify),
}

/// A read-modify-write instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Modify {
    /// Writes the value.
    Swap(u8),
    /// Writes the second value if the register holds the first.
    CompareAndSwap(u8, u8),
    /// Adds one, modulo the number of values of the register.
    Increment,
}

impl Modify {
    /// The value after the instruction.
    fn apply(self, before: u8, most: u8) -> u8 {
        match self {
            Self::Swap(value) => value,
            Self::CompareAndSwap(expected, value) if before == expected => value,
            Self::CompareAndSwap(..) => before,
            Self::Increment if before == most => 0,
            Self::Increment => before + 1,
        }
    }
}

/// The program counter and local variables of a process. All zero: the remainder section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Local {
    /// The program counter.
    pub(super) line: u8,
    /// The process that it currently examines.
    pub(super) j: u8,
    /// A value read earlier that it still needs.
    pub(super) seen: u8,
    /// The process's ticket.
    pub(super) mine: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Cell {
    /// The value; 0 during a write of a safe register, when it is undefined.
    value: u8,
    /// The processes that are writing it, one bit each.
    writers: u8,
    /// Of a safe register: not 0 if two writes have overlapped since there last was no writer. Of a regular register:
    /// the writers during whose write another write has ended, one bit each.
    mixed: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    at: Local,
    /// Whether it is between the two steps of a write.
    writing: bool,
    /// The processes that had completed their doorway before this one began its own, and have not entered
    /// since.
    behind: u8,
}

/// The registers and processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    cells: [Cell; MOST_REGISTERS],
    processes: [Process; MOST_PROCESSES],
}

/// The access of a step, for its sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    register: usize,
    value: u8,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    /// A read that overlapped a write.
    Guess,
    Write,
    /// A read-modify-write instruction, and the value that it leaves.
    Modify(u8),
    BeginWrite,
    EndWrite,
    /// The end of a write that overlapped another.
    EndMixed,
}

/// A program, executed by a number of processes.
pub(super) struct Machine {
    program: Box<dyn Program>,
    pub(super) processes: usize,
    kind: RegisterKind,
    registers: Vec<Register>,
}

/// A possible step.
pub(super) struct Step {
    /// The process that takes it.
    pub(super) process: usize,
    /// The next state; `None` if it exceeds the limit on tickets.
    pub(super) to: Option<State>,
    /// The access.
    event: Event,
}

impl Machine {
    pub(super) fn new(program: Box<dyn Program>, processes: usize, kind: RegisterKind) -> Self {
        let registers = program.registers();
        assert!(processes <= MOST_PROCESSES && registers.len() <= MOST_REGISTERS);
        Self { program, processes, kind, registers }
    }

    /// The step that completes an access and advances the process.
    fn finish(&self, from: &State, me: usize, event: Event, cell: Cell) -> Step {
        let old = from.processes[me].at;
        let Some(at) = self.program.then(me, old, event.value) else {
            return Step { process: me, to: None, event };
        };
        let mut to = *from;
        to.cells[event.register] = cell;
        to.processes[me].at = at;
        to.processes[me].writing = false;
        self.remember_order(from, &mut to, me);
        Step { process: me, to: Some(to), event }
    }

    /// Updates which processes are behind which others.
    fn remember_order(&self, from: &State, to: &mut State, me: usize) {
        if self.section(from, me) == Section::Remainder {
            let waiting = (0..self.processes).filter(|&p| self.section(from, p) == Section::Waiting);
            to.processes[me].behind = waiting.fold(0, |set, p| set | 1 << p);
        }
        let inside = |state: &State| self.section(state, me) == Section::Inside;
        if inside(to) && !inside(from) {
            to.processes
                .iter_mut()
                .enumerate()
                .filter(|&(p, _)| p != me)
                .for_each(|(_, other)| other.behind &= !(1 << me));
        } else if inside(from) && !inside(to) {
            to.processes[me].behind = 0;
        }
    }

    fn read(&self, from: &State, me: usize, register: usize, out: &mut Vec<Step>) {
        let cell = from.cells[register];
        if cell.writers == 0 {
            out.push(self.finish(from, me, Event { register, value: cell.value, kind: Kind::Read }, cell));
            return;
        }
        for value in 0..=self.registers[register].most {
            if self.may_return(from, register, value) {
                out.push(self.finish(from, me, Event { register, value, kind: Kind::Guess }, cell));
            }
        }
    }

    /// Whether a read that overlaps a write may return a value.
    fn may_return(&self, from: &State, register: usize, value: u8) -> bool {
        let cell = from.cells[register];
        let writes = |me: &usize| match self.program.next(*me, from.processes[*me].at) {
            Access::Write(_, written) => cell.writers & 1 << me != 0 && written == value,
            Access::Read(_) | Access::Modify(..) => false,
        };
        self.kind == RegisterKind::Safe || cell.value == value || (0..self.processes).any(|me| writes(&me))
    }

    fn begin_write(&self, from: &State, me: usize, register: usize, value: u8) -> Step {
        let mut to = *from;
        let cell = &mut to.cells[register];
        cell.writers |= 1 << me;
        if self.kind == RegisterKind::Safe {
            cell.value = 0;
            cell.mixed = u8::from(from.cells[register].writers != 0);
        }
        to.processes[me].writing = true;
        self.remember_order(from, &mut to, me);
        Step { process: me, to: Some(to), event: Event { register, value, kind: Kind::BeginWrite } }
    }

    fn end_write(&self, from: &State, me: usize, register: usize, value: u8, out: &mut Vec<Step>) {
        let cell = from.cells[register];
        let writers = cell.writers & !(1 << me);
        let mut end = |left: u8, mixed: u8, kind: Kind| {
            let cell = Cell { value: left, writers, mixed };
            out.push(self.finish(from, me, Event { register, value: left, kind }, cell));
        };
        if self.kind == RegisterKind::Regular {
            // Overlapping writes take effect in some order. The value of this one replaces the value there, or, if
            // another write has ended meanwhile, may have been replaced by it.
            let mixed = writers;
            end(value, mixed, Kind::EndWrite);
            if cell.mixed & 1 << me != 0 && cell.value != value {
                end(cell.value, mixed, Kind::EndMixed);
            }
            return;
        }
        match (cell.mixed, writers) {
            (0, _) => end(value, 0, Kind::EndWrite),
            // The last of the overlapping writes: the remaining value is arbitrary.
            (_, 0) => (0..=self.registers[register].most).for_each(|left| end(left, 0, Kind::EndMixed)),
            (mixed, _) => end(0, mixed, Kind::EndWrite),
        }
    }

    fn modify(&self, from: &State, me: usize, register: usize, modify: Modify) -> Step {
        let value = from.cells[register].value;
        let after = modify.apply(value, self.registers[register].most);
        let cell = Cell { value: after, ..Cell::default() };
        self.finish(from, me, Event { register, value, kind: Kind::Modify(after) }, cell)
    }
}

impl Machine {
    /// The initial state.
    pub(super) fn initial(&self) -> State {
        let mut state = State::default();
        for (cell, register) in state.cells.iter_mut().zip(&self.registers) {
            cell.value = register.initial;
        }
        state
    }

    /// Number of slots of a packed state: one for each register, and two for each process.
    pub(super) fn slots(&self) -> usize {
        self.registers.len() + 2 * self.processes
    }

    /// Packs a state into a row.
    pub(super) fn pack(&self, state: &State, row: &mut Vec<u32>) {
        row.clear();
        let cell = |cell: &Cell| u32::from_le_bytes([cell.value, cell.writers, cell.mixed, 0]);
        row.extend(state.cells[..self.registers.len()].iter().map(cell));
        for Process { at, writing, behind } in &state.processes[..self.processes] {
            row.push(u32::from_le_bytes([at.line, at.j, at.seen, at.mine]));
            row.push(u32::from_le_bytes([*behind, u8::from(*writing), 0, 0]));
        }
    }

    /// The state that was packed into a row.
    pub(super) fn unpack(&self, row: &[u32]) -> State {
        let mut state = State::default();
        let (cells, processes) = row.split_at(self.registers.len());
        for (cell, slot) in state.cells.iter_mut().zip(cells) {
            let [value, writers, mixed, _] = slot.to_le_bytes();
            *cell = Cell { value, writers, mixed };
        }
        let (pairs, _) = processes.as_chunks::<2>();
        for (process, [at, rest]) in state.processes.iter_mut().zip(pairs) {
            let [line, j, seen, mine] = at.to_le_bytes();
            let [behind, writing, ..] = rest.to_le_bytes();
            *process = Process { at: Local { line, j, seen, mine }, writing: writing == 1, behind };
        }
        state
    }

    /// Appends all possible steps from a state.
    pub(super) fn steps(&self, from: &State, out: &mut Vec<Step>) {
        for me in 0..self.processes {
            let Process { at, writing, .. } = from.processes[me];
            match self.program.next(me, at) {
                Access::Read(register) => self.read(from, me, register, out),
                Access::Modify(register, modify) => out.push(self.modify(from, me, register, modify)),
                Access::Write(register, value) if self.kind == RegisterKind::Atomic => {
                    let cell = Cell { value, ..Cell::default() };
                    out.push(self.finish(from, me, Event { register, value, kind: Kind::Write }, cell));
                }
                Access::Write(register, value) if !writing => {
                    out.push(self.begin_write(from, me, register, value))
                }
                Access::Write(register, value) => self.end_write(from, me, register, value, out),
            }
        }
    }

    /// The section of its program that a process is in.
    pub(super) fn section(&self, state: &State, process: usize) -> Section {
        let Process { at, writing, .. } = state.processes[process];
        match self.program.section(at) {
            // The process has begun its first write.
            Section::Remainder if writing => Section::Doorway,
            // The process is inside until it begins the first write of its exit.
            Section::Inside if writing => Section::Leaving,
            section => section,
        }
    }

    /// The line of the pseudo-code that a process executes next.
    pub(super) fn line(&self, state: &State, process: usize) -> &'static str {
        self.program.line_name(state.processes[process].at.line).expect("every line of a program has a name")
    }

    /// The names of the lines.
    pub(super) fn lines(&self) -> impl Iterator<Item = &'static str> {
        (0..).map_while(|line| self.program.line_name(line))
    }

    /// All registers with their values, for display.
    pub(super) fn values(&self, state: &State) -> Vec<RegisterValue> {
        let value = |(index, (register, cell)): (usize, (&Register, &Cell))| {
            let undefined = cell.writers != 0 && self.kind == RegisterKind::Safe;
            RegisterValue {
                name: register.name.clone(),
                value: (!undefined).then(|| self.program.describe(index, cell.value)),
                writers: (0..self.processes).filter(|process| cell.writers & 1 << process != 0).collect(),
            }
        };
        self.registers.iter().zip(&state.cells).enumerate().map(value).collect()
    }

    /// A process that had completed its doorway before `process` began its own, and has not entered since.
    pub(super) fn behind(&self, state: &State, process: usize) -> Option<usize> {
        let behind = state.processes[process].behind;
        (behind != 0).then(|| behind.trailing_zeros() as usize)
    }

    /// The sentence that describes a step.
    pub(super) fn describe(&self, from: &State, step: &Step) -> String {
        let Event { register, value, kind } = step.event;
        let (name, before) = (&self.registers[register].name, value);
        let value = self.program.describe(register, value);
        let did = match kind {
            Kind::Read => format!("reads {name} = {value}"),
            Kind::Guess => format!("reads {name} while it is being written, and gets {value}"),
            Kind::Write => format!("writes {name} := {value}"),
            Kind::Modify(after) if after == before => format!("reads {name} = {value}, and leaves it"),
            Kind::Modify(after) => {
                let after = self.program.describe(register, after);
                format!("reads {name} = {value} and writes {name} := {after} in one step")
            }
            Kind::BeginWrite => format!("begins to write {name} := {value}"),
            Kind::EndWrite => format!("has written {name}"),
            Kind::EndMixed => format!("has written {name} while another wrote it too, which leaves {value}"),
        };
        let section = |state: &State| self.section(state, step.process);
        let change = match (section(from), step.to.as_ref().map(section)) {
            (Section::Remainder, _) => " (wants to enter)",
            (Section::Inside, _) => " (leaves)",
            (_, Some(Section::Inside)) => " (enters)",
            (Section::Doorway, Some(Section::Waiting)) => " (is through its doorway)",
            _ => "",
        };
        format!("P{} {did}{change}", step.process + 1)
    }
}
