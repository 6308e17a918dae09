//! What an explorer must know of a system: where it starts, what can happen next, and where each process is.

use std::fmt::Debug;
use std::hash::Hash;

/// A system of processes that want to enter a critical section.
pub trait Model {
    /// All there is to know at one moment.
    type State: Clone + Eq + Hash + Debug;
    /// What a step does, as far as a sentence needs it.
    type Event: Clone + Debug;

    /// How many processes there are.
    fn processes(&self) -> usize;
    /// Where it starts.
    fn initial(&self) -> Self::State;
    /// Adds all that can happen next.
    fn steps(&self, from: &Self::State, out: &mut Vec<Step<Self::State, Self::Event>>);
    /// Which part of its program a process is in.
    fn section(&self, state: &Self::State, process: usize) -> Section;
    /// Somebody who was through its doorway before `process` came to its own, and has not entered since.
    fn behind(&self, state: &Self::State, process: usize) -> Option<usize>;
    /// A step in a sentence.
    fn tell(&self, from: &Self::State, step: &Step<Self::State, Self::Event>) -> String;
}

/// One thing that can happen.
#[derive(Clone, Debug)]
pub struct Step<S, E> {
    /// Whose step it is.
    pub process: usize,
    /// Where it leads; nowhere, if it would leave the bounds of the model.
    pub to: Option<S>,
    /// What it does.
    pub event: E,
}

/// The parts of a process's program. A process may stay in its remainder for ever, and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// It does not want to enter.
    Remainder,
    /// It wants to, and does what it can do without waiting.
    Doorway,
    /// It waits for its turn.
    Waiting,
    /// It is in the critical section.
    Inside,
    /// It is on its way out.
    Leaving,
}

impl Section {
    /// Whether a process wants to enter and has not.
    pub fn tries(self) -> bool {
        matches!(self, Self::Doorway | Self::Waiting)
    }
}
