//! The interface between the explorer and a system.

/// A system whose states are rows of small integers.
pub trait Model: Sync {
    /// The worker that expands states, one for each thread.
    type Worker<'m>: Worker + Send
    where
        Self: 'm;

    /// Number of slots (integers) of a state.
    fn slots(&self) -> usize;

    /// Number of tallies of a state. A tally is a counter along a run; a state stores the maximum over all
    /// runs that lead to it.
    fn tallies(&self) -> usize {
        0
    }

    /// The liveness goals to be checked, one bit each; 0 if only states and steps are checked. A goal is an
    /// event that has to happen eventually, such as the entry of a waiting site.
    fn goals(&self) -> Goals {
        0
    }

    /// Which steps a fair run has to take.
    fn fairness(&self) -> Fairness {
        Fairness::Weak
    }

    /// Creates a worker.
    fn worker(&self) -> Self::Worker<'_>;
}

/// A set of liveness goals, one bit each.
pub type Goals = u16;

/// Which steps an infinite run has to take to be fair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fairness {
    /// A step that stays possible is taken eventually.
    Weak,
    /// A step that a fair run has to take, and that is possible in a state which is reached again and again, is
    /// taken from that state eventually. A run in which every next step is drawn at random is fair in this
    /// sense with probability 1.
    EveryStep,
}

/// Expands states: computes their successors.
pub trait Worker {
    /// A step from one state to the next.
    type Action: Clone + Send + Sync;
    /// A violation found in a state or in a step.
    type Violation: Clone + Send + Sync;
    /// The properties that can be violated.
    type Property: Copy + PartialEq;

    /// Passes every initial state to `found`.
    fn start(&mut self, found: &mut impl FnMut(&[u32]));

    /// Passes every successor of a state to `found`; returns the violation in the state itself, if there is
    /// one.
    fn expand(
        &mut self,
        state: &[u32],
        tallies: &[u8],
        found: &mut impl FnMut(Next<'_, Self::Action, Self::Violation>),
    ) -> Option<Self::Violation>;

    /// The property that a violation violates.
    fn property(violation: &Self::Violation) -> Self::Property;

    /// The sentences that describe a step.
    fn describe(&mut self, from: &[u32], action: &Self::Action) -> Vec<String>;

    /// The goals that are pending in a state: the events that have to happen eventually from there on.
    fn pending(&mut self, _state: &[u32]) -> Goals {
        0
    }

    /// The goals that a step fulfils, apart from those that are no longer pending after it.
    fn fulfils(&self, _action: &Self::Action) -> Goals {
        0
    }

    /// The fair action that a step takes: fair runs take each fair action that is possible, see [`Fairness`]. `None`
    /// for a step that fairness does not require, such as a request or a fault.
    fn fair_action(&self, _action: &Self::Action) -> Option<u64> {
        None
    }

    /// Whether a reported cycle should include this step if possible, because the step helps to explain why the goal is
    /// never reached.
    fn is_instructive(&self, _action: &Self::Action) -> bool {
        false
    }

    /// The violation shown by an infinite run in which this goal, by its bit's position, stays pending.
    ///
    /// # Panics
    /// If the model has no goals.
    fn unreached(&self, goal: usize) -> Self::Violation {
        panic!("the model has no goal {goal}")
    }
}

/// A successor of a state.
#[derive(Debug)]
pub struct Next<'a, A, B> {
    /// The step that leads to it.
    pub action: A,
    /// The successor state.
    pub state: &'a [u32],
    /// Its tallies along this run.
    pub tallies: &'a [u8],
    /// The violation in this step or state, if there is one.
    pub violation: Option<B>,
    /// Whether the successor exceeds the model's bounds: it counts as generated and is not explored.
    pub beyond: bool,
}

/// A violation, and a run that shows it.
#[derive(Clone, Debug)]
pub struct FoundViolation<A, B> {
    /// The violation.
    pub violation: B,
    /// A run that shows it; a shortest one if it is finite. `None` after a search by several threads; search
    /// a new model with one thread for it.
    pub run: Option<Run<A>>,
}

/// A run from an initial state.
#[derive(Clone, Debug)]
pub struct Run<A> {
    /// The steps.
    pub steps: Vec<Step<A>>,
    /// If the run is infinite: the number of steps before the cycle that the remaining steps repeat.
    pub cycle_after: Option<usize>,
}

/// A step of a run.
#[derive(Clone, Debug)]
pub struct Step<A> {
    /// The state before the step.
    pub from: Vec<u32>,
    /// The step.
    pub action: A,
}
