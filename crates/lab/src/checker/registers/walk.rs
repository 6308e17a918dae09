//! A run of a program for registers that is driven one step at a time.

use super::machine::{Machine, State, Step};
use super::section::Section;
use super::{About, RegisterKind, find, machine};
use crate::Error;
use crate::checker::{CheckSpec, ModelKind};
use crate::pseudocode::Listing;

/// A run of several processes, which grows by one step at a time.
pub struct Walk {
    about: &'static About,
    machine: Machine,
    /// The initial state, and the state after each step.
    states: Vec<State>,
    /// The sentence of each step.
    story: Vec<String>,
    /// The name of the line that each step executes.
    executed: Vec<&'static str>,
    listing: Listing,
}

/// A possible next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The index of the process that takes it.
    pub process: usize,
    /// The sentence of the step. A read that overlaps a write is one choice for each value that it may return.
    pub what: String,
    /// Whether the step takes a ticket above the limit, and cannot be taken.
    pub beyond: bool,
}

/// A register and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterValue {
    /// The name in the paper.
    pub name: String,
    /// The value; `None` while a safe register is being written.
    pub value: Option<String>,
    /// The indices of the processes that are writing it.
    pub writers: Vec<usize>,
}

impl Walk {
    /// Starts a run of an algorithm, with all processes in their remainder sections.
    pub fn new(
        algorithm: &str,
        processes: usize,
        registers: RegisterKind,
        tickets: Option<u8>,
    ) -> Result<Self, Error> {
        let spec = CheckSpec { registers, tickets, ..CheckSpec::new(algorithm, processes) };
        spec.check(ModelKind::Registers).map_err(crate::UsageError::from)?;
        let (about, tickets) = find(&spec)?;
        let machine = machine(about, &spec, tickets);
        let states = vec![machine.initial()];
        let listing = Listing::of_program(about.mutant_of.unwrap_or(about.slug), machine.lines());
        Ok(Self { about, machine, states, story: Vec::new(), executed: Vec::new(), listing })
    }

    /// The description of the algorithm.
    pub fn about(&self) -> &'static About {
        self.about
    }

    fn state(&self) -> &State {
        self.states.last().expect("the initial state is never removed")
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        self.machine.steps(self.state(), &mut steps);
        steps
    }

    /// The possible next steps, in the order of the processes.
    pub fn choices(&self) -> Vec<Choice> {
        let choice = |step: &Step| Choice {
            process: step.process,
            what: self.machine.describe(self.state(), step),
            beyond: step.to.is_none(),
        };
        self.steps().iter().map(choice).collect()
    }

    /// Takes a step, given its index among [`Walk::choices`]. Returns whether there is such a step and it can be taken.
    pub fn take(&mut self, choice: usize) -> bool {
        let steps = self.steps();
        let Some((step, to)) = steps.get(choice).and_then(|step| Some((step, step.to?))) else {
            return false;
        };
        self.story.push(self.machine.describe(self.state(), step));
        self.executed.push(self.machine.line(self.state(), step.process));
        self.states.push(to);
        true
    }

    /// Removes the last step.
    pub fn undo(&mut self) {
        if self.story.pop().is_some() {
            self.executed.pop();
            self.states.pop();
        }
    }

    /// The sentences of the steps so far.
    pub fn story(&self) -> &[String] {
        &self.story
    }

    /// The pseudo-code of the algorithm; of a mutant, that of the correct algorithm.
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// The lines of the pseudo-code that a step has executed, counted from 0. Both steps of a write that is not atomic
    /// execute the line of the write.
    pub fn fires(&self, step: usize) -> &[usize] {
        self.executed.get(step).map_or(&[], |line| self.listing.lines_of(line))
    }

    /// The section of each process.
    pub fn sections(&self) -> Vec<Section> {
        (0..self.machine.processes).map(|process| self.machine.section(self.state(), process)).collect()
    }

    /// All registers with their values.
    pub fn registers(&self) -> Vec<RegisterValue> {
        self.machine.values(self.state())
    }

    /// The indices of the processes inside, if mutual exclusion is violated.
    pub fn inside_together(&self) -> Option<Vec<usize>> {
        let sections = self.sections();
        let inside: Vec<usize> = (0..sections.len()).filter(|&p| sections[p] == Section::Inside).collect();
        (inside.len() > 1).then_some(inside)
    }

    /// Lets the processes take steps in turn until each has entered and left once, and none repeats a read that
    /// changes nothing. Of several values that a read may return, it returns the highest.
    pub fn in_turn(&mut self) {
        let processes = self.machine.processes;
        let mut done = vec![false; processes];
        let mut turn = 0;
        // The bound ends a run in which processes wait for each other without end.
        for _ in 0..MOST_STEPS {
            let Some(process) = (0..processes).map(|step| (turn + step) % processes).find(|&p| !done[p])
            else {
                return;
            };
            turn = process + 1;
            let of = |step: &Step| step.process == process;
            let Some(choice) = self.steps().iter().rposition(of) else { return };
            let before = *self.state();
            if !self.take(choice) {
                return;
            }
            if *self.state() == before {
                self.undo();
            }
            let left = |state: &State| self.machine.section(state, process) == Section::Remainder;
            done[process] = left(self.state()) && !left(&before);
        }
    }
}

/// The maximum number of steps of [`Walk::in_turn`].
const MOST_STEPS: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(registers: RegisterKind) -> Walk {
        Walk::new("bakery", 2, registers, None).unwrap()
    }

    fn take(walk: &mut Walk, what: &str) {
        let choices = walk.choices();
        let choice = choices.iter().position(|choice| choice.what.starts_with(what));
        assert!(walk.take(choice.unwrap_or_else(|| panic!("{what} is none of {choices:?}"))));
    }

    #[test]
    fn read_of_a_safe_register_that_is_being_written_returns_the_chosen_value() {
        let mut walk = walk(RegisterKind::Safe);
        take(&mut walk, "P1 begins to write choosing[1]");
        assert_eq!(walk.registers()[2].value, None);
        assert_eq!(walk.registers()[2].writers, [0]);
        take(&mut walk, "P1 has written choosing[1]");
        take(&mut walk, "P1 reads number[2] = 0");
        take(&mut walk, "P1 begins to write number[1] := 1");
        take(&mut walk, "P2 begins to write choosing[2]");
        take(&mut walk, "P2 has written choosing[2]");
        let reads =
            walk.choices().iter().filter(|choice| choice.what.contains("while it is being written")).count();
        assert_eq!(reads, 5, "tickets from 0 to 4");
        take(&mut walk, "P2 reads number[1] while it is being written, and gets 3");
        take(&mut walk, "P2 begins to write number[2] := 4");
        walk.undo();
        walk.undo();
        take(&mut walk, "P2 reads number[1] while it is being written, and gets 0");
        take(&mut walk, "P2 begins to write number[2] := 1");
        assert_eq!(walk.story().len(), 8);
    }

    #[test]
    fn regular_register_returns_the_old_or_the_new_value() {
        let mut walk = Walk::new("peterson", 2, RegisterKind::Regular, None).unwrap();
        take(&mut walk, "P1 begins to write flag[1] := true");
        assert_eq!(walk.registers()[0].value.as_deref(), Some("false"));
        take(&mut walk, "P2 begins to write flag[2]");
        take(&mut walk, "P2 has written flag[2]");
        take(&mut walk, "P2 begins to write turn := 1");
        take(&mut walk, "P2 has written turn");
        let guesses: Vec<String> = walk.choices().into_iter().map(|choice| choice.what).collect();
        assert!(
            guesses.contains(&"P2 reads flag[1] while it is being written, and gets false (enters)".into())
        );
        assert!(guesses.contains(&"P2 reads flag[1] while it is being written, and gets true".into()));
    }

    #[test]
    fn every_process_enters_and_leaves_in_turn() {
        for about in super::super::ALL.iter().filter(|about| about.mutant_of.is_none()) {
            for registers in [RegisterKind::Atomic, about.weakest] {
                let mut walk = Walk::new(about.slug, 3, registers, None).unwrap();
                walk.in_turn();
                assert_eq!(walk.sections(), [Section::Remainder; 3], "{}", about.slug);
                let entries = walk.story().iter().filter(|step| step.ends_with("(enters)")).count();
                assert_eq!(entries, 3, "{}: {:#?}", about.slug, walk.story());
            }
        }
    }

    #[test]
    fn both_inside_is_reported() {
        let mut walk = Walk::new("bakery-without-choosing", 2, RegisterKind::Atomic, None).unwrap();
        for what in ["P1 reads", "P2 reads", "P2 writes", "P2 reads", "P1 writes", "P1 reads"] {
            assert_eq!(walk.inside_together(), None);
            take(&mut walk, what);
        }
        assert_eq!(walk.inside_together(), Some(vec![0, 1]));
        assert!(!walk.take(99));
    }

    #[test]
    fn unknown_names_and_numbers_of_processes_are_rejected() {
        assert!(Walk::new("bakeri", 2, RegisterKind::Atomic, None).is_err());
        assert!(Walk::new("bakery", 4, RegisterKind::Atomic, None).is_err());
        assert!(Walk::new("peterson", 2, RegisterKind::Atomic, Some(3)).is_err());
    }
}
