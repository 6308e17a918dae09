//! The interface between the explorer and a system: its initial state, steps, and sections.

use std::fmt::Debug;
use std::hash::Hash;

/// A system of processes that compete for a critical section.
pub trait Model {
    /// A global state.
    type State: Clone + Eq + Hash + Debug;
    /// The part of a step that its sentence needs.
    type Event: Clone + Debug;

    /// Number of processes.
    fn processes(&self) -> usize;
    /// The initial state.
    fn initial(&self) -> Self::State;
    /// Appends all possible steps from a state.
    fn steps(&self, from: &Self::State, out: &mut Vec<Step<Self::State, Self::Event>>);
    /// The section of its program that a process is in.
    fn section(&self, state: &Self::State, process: usize) -> Section;
    /// A process that had completed its doorway before `process` began its own, and has not entered since.
    fn behind(&self, state: &Self::State, process: usize) -> Option<usize>;
    /// A sentence that describes a step.
    fn tell(&self, from: &Self::State, step: &Step<Self::State, Self::Event>) -> String;
}

/// A possible step.
#[derive(Clone, Debug)]
pub struct Step<S, E> {
    /// The process that takes it.
    pub process: usize,
    /// The next state; `None` if it exceeds the bounds of the model.
    pub to: Option<S>,
    /// The access.
    pub event: E,
}

/// The sections of a process's program. A process may stay for ever only in its remainder section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// It does not try to enter.
    Remainder,
    /// It tries to enter, and executes the part that needs no waiting.
    Doorway,
    /// It waits for its turn.
    Waiting,
    /// It is in the critical section.
    Inside,
    /// It executes its exit code.
    Leaving,
}

impl Section {
    /// Whether a process in this section tries to enter.
    pub fn tries(self) -> bool {
        matches!(self, Self::Doorway | Self::Waiting)
    }
}
