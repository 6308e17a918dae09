//! Processes that share registers, as a model for the explorer.

use super::machine::{Machine, Step};
use super::section::Section;
use crate::checker::explore::{Goals, Model, Next, Worker};
use crate::checker::mutual_exclusion::machine::Violation;
use crate::checker::tla;
use crate::property::Property;
use lockkeeper_core::SiteId;

/// A program of several processes, and the property to check.
pub(crate) struct Processes {
    pub(super) machine: Machine,
    /// The only property to check. `None`: all properties.
    pub(super) only: Option<Property>,
}

impl Processes {
    fn checks(&self, property: Property) -> bool {
        self.only.is_none_or(|only| only == property)
    }
}

impl Model for Processes {
    type Worker<'m> = Steps<'m>;

    fn slots(&self) -> usize {
        self.machine.slots()
    }

    /// Bit 0: some process enters. The following bits: each process enters.
    fn goals(&self) -> Goals {
        let some = Goals::from(self.checks(Property::NoDeadlock));
        let each = if self.checks(Property::NoStarvation) { (1 << self.machine.processes) - 1 } else { 0 };
        some | each << 1
    }

    fn worker(&self) -> Steps<'_> {
        Steps { model: self, steps: Vec::new(), row: Vec::new() }
    }
}

/// Expands states of [`Processes`].
pub(crate) struct Steps<'m> {
    model: &'m Processes,
    /// The steps from the current state.
    steps: Vec<Step>,
    /// The successor, packed.
    row: Vec<u32>,
}

impl tla::Sites for Steps<'_> {
    fn inside(&mut self, state: &[u32]) -> Vec<usize> {
        self.processes_in(state, |section| section == Section::Inside)
    }

    fn waiting_sites(&mut self, state: &[u32]) -> Vec<usize> {
        self.processes_in(state, Section::tries)
    }
}

impl Steps<'_> {
    /// The processes in certain sections of their programs.
    fn processes_in(&self, state: &[u32], which: impl Fn(Section) -> bool) -> Vec<usize> {
        let machine = &self.model.machine;
        let state = machine.unpack(state);
        (0..machine.processes).filter(|&process| which(machine.section(&state, process))).collect()
    }
}

/// A step of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Action {
    /// The index among the steps from the state.
    index: usize,
    process: usize,
    /// Whether the process may omit the step for ever: it is in its remainder section.
    optional: bool,
    /// Whether the step enters the critical section.
    enters: bool,
}

impl Worker for Steps<'_> {
    type Action = Action;
    type Violation = Violation;
    type Property = Property;

    fn start(&mut self, found: &mut impl FnMut(&[u32])) {
        let machine = &self.model.machine;
        machine.pack(&machine.initial(), &mut self.row);
        found(&self.row);
    }

    fn expand(
        &mut self,
        state: &[u32],
        _tallies: &[u8],
        found: &mut impl FnMut(Next<'_, Action, Violation>),
    ) -> Option<Violation> {
        let machine = &self.model.machine;
        let from = machine.unpack(state);
        self.steps.clear();
        machine.steps(&from, &mut self.steps);
        for (index, step) in self.steps.iter().enumerate() {
            let section = machine.section(&from, step.process);
            let inside = |to| machine.section(to, step.process) == Section::Inside;
            let enters = section != Section::Inside && step.to.as_ref().is_some_and(inside);
            let optional = section == Section::Remainder;
            let action = Action { index, process: step.process, optional, enters };
            let Some(to) = &step.to else {
                found(Next { action, state, tallies: &[], violation: None, beyond: true });
                continue;
            };
            let overtaken = machine.behind(&from, step.process).filter(|_| enters);
            let violation = overtaken
                .filter(|_| self.model.checks(Property::FirstComeFirstServed))
                .map(|early| overtaking(early, step.process));
            machine.pack(to, &mut self.row);
            found(Next { action, state: &self.row, tallies: &[], violation, beyond: false });
        }
        let is_inside = |p: &usize| machine.section(&from, *p) == Section::Inside;
        let inside: Vec<usize> = (0..machine.processes).filter(is_inside).collect();
        (inside.len() > 1 && self.model.checks(Property::MutualExclusion)).then(|| several_inside(&inside))
    }

    fn property(violation: &Violation) -> Property {
        violation.property
    }

    fn describe(&mut self, from: &[u32], action: &Action) -> Vec<String> {
        let machine = &self.model.machine;
        let from = machine.unpack(from);
        self.steps.clear();
        machine.steps(&from, &mut self.steps);
        vec![machine.describe(&from, &self.steps[action.index])]
    }

    fn pending(&mut self, state: &[u32]) -> Goals {
        let machine = &self.model.machine;
        let state = machine.unpack(state);
        let tries = |p: &usize| machine.section(&state, *p).tries();
        let each = (0..machine.processes).filter(tries).fold(0, |goals: Goals, p| goals | 1 << p);
        each << 1 | Goals::from(each != 0)
    }

    fn fulfils(&self, action: &Action) -> Goals {
        if action.enters { 1 | 2 << action.process } else { 0 }
    }

    /// Every process takes steps again and again, unless it is in its remainder section. A process that waits
    /// polls, so it can always take a step.
    fn fair_action(&self, action: &Action) -> Option<u64> {
        (!action.optional).then_some(action.process as u64)
    }

    fn is_instructive(&self, action: &Action) -> bool {
        action.enters
    }

    fn unreached(&self, goal: usize) -> Violation {
        match goal.checked_sub(1) {
            None => Violation {
                property: Property::NoDeadlock,
                sites: Vec::new(),
                what: "a process tries for ever, and none enters".into(),
            },
            Some(process) => Violation {
                property: Property::NoStarvation,
                sites: vec![SiteId::new(process)],
                what: format!("{} tries for ever and does not enter", name(process)),
            },
        }
    }
}

fn name(process: usize) -> String {
    format!("P{}", process + 1)
}

fn several_inside(inside: &[usize]) -> Violation {
    let names: Vec<String> = inside.iter().map(|&process| name(process)).collect();
    Violation {
        property: Property::MutualExclusion,
        sites: inside.iter().map(|&process| SiteId::new(process)).collect(),
        what: format!("{} are both inside", names.join(" and ")),
    }
}

/// The violation when a process enters before one that had completed its doorway earlier.
fn overtaking(early: usize, overtaker: usize) -> Violation {
    Violation {
        property: Property::FirstComeFirstServed,
        sites: vec![SiteId::new(early), SiteId::new(overtaker)],
        what: format!("{} was through its doorway before {} came, and waits", name(early), name(overtaker)),
    }
}
