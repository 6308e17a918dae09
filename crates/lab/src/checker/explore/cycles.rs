//! Liveness: infinite, fair runs in which a goal is never reached. They are found as cycles of states.
//!
//! A goal is an event that has to happen eventually, such as the entry of a waiting site. A cycle of states is *fair*
//! if it takes the fair actions that fairness requires ([`Fairness`]): a message that can be delivered is delivered
//! eventually, and a site inside its critical section leaves eventually. No site has to request. For each goal, the
//! search computes the strongly connected components of those states in which the goal is pending, without the steps
//! that fulfil it. A component contains a fair cycle if every required fair action is taken between two of its states.
//!
//! Example: A and B alternate while C's REQUEST is under way to A in every state. In the cycle without its
//! delivery, the step "deliver C's REQUEST" stays possible and is never taken, so the cycle is not fair and
//! does not count as starvation. If the REQUEST is delivered on the cycle and C still never enters, it does.

use super::components::{Neighbour, components};
use super::model::{Fairness, FoundViolation, Goals, Model, Run, Worker};
use super::search::{FoundViolationOf, Search};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A fair action, numbered in the order of discovery.
type FairAction = u32;
/// The target of steps that were not explored. They are possible all the same.
const NOWHERE: u32 = u32::MAX;
/// The fair action of a step that fairness does not require.
const NO_FAIR_ACTION: FairAction = FairAction::MAX;
/// The mark of an instructive step; the other bits are the goals that the step fulfils.
const INSTRUCTIVE: Goals = 1 << (Goals::BITS - 1);

/// Searches the states that a finished single-threaded search has visited for fair cycles in which a goal is never
/// reached. Returns, for each violated property, the shortest of the cycles found.
pub fn search<'m, M: Model>(search: &mut Search<'m, M>) -> Vec<FoundViolationOf<'m, M>> {
    let goals = search.model().goals();
    if goals == 0 {
        return Vec::new();
    }
    let graph = Graph::of(search);
    let mut found: Vec<(FoundViolationOf<'m, M>, usize)> = Vec::new();
    for goal in (0..Goals::BITS as usize - 1).filter(|goal| goals >> goal & 1 == 1) {
        let part = Part { graph: &graph, goal, fairness: search.model().fairness() };
        let Some(cycle) = part.cycle() else { continue };
        let mut steps = search.run_to(cycle[0].0);
        let cycle_after = Some(steps.len());
        steps.extend(cycle.into_iter().map(|(state, place)| search.step(state, place)));
        let violation = search.workers()[0].unreached(goal);
        let length = steps.len();
        let violation = FoundViolation { violation, run: Some(Run { steps, cycle_after }) };
        let same = |known: &FoundViolationOf<'m, M>| {
            <M::Worker<'m> as Worker>::property(&known.violation)
                == <M::Worker<'m> as Worker>::property(&violation.violation)
        };
        match found.iter_mut().find(|(known, _)| same(known)) {
            Some(known) if known.1 > length => *known = (violation, length),
            Some(_) => {}
            None => found.push((violation, length)),
        }
    }
    found.into_iter().map(|(violation, _)| violation).collect()
}

#[derive(Clone, Copy)]
struct Edge {
    to: u32,
    fair_action: FairAction,
}

/// All states and steps of a finished search.
struct Graph {
    /// For each state, the index of its first edge.
    first: Vec<usize>,
    edges: Vec<Edge>,
    /// The marks of each edge. Empty while no edge has one.
    marks: Vec<Goals>,
    /// The goals that are pending in each state.
    pending: Vec<Goals>,
}

impl Graph {
    fn of<M: Model>(search: &mut Search<'_, M>) -> Self {
        let states = search.progress().distinct as u32;
        let mut graph = Self { first: vec![0], edges: Vec::new(), marks: Vec::new(), pending: Vec::new() };
        let mut fair_actions: BTreeMap<u64, FairAction> = BTreeMap::new();
        let mut steps: Vec<(Option<Vec<u32>>, Option<u64>, Goals)> = Vec::new();
        for state in 0..states {
            steps.clear();
            graph.pending.push(search.visit(state, |worker, slots, tallies| {
                let mut actions = Vec::new();
                worker.expand(slots, tallies, &mut |next| {
                    actions.push(((!next.beyond).then(|| next.state.to_vec()), next.action));
                });
                steps.extend(actions.into_iter().map(|(to, action)| {
                    let instructive = if worker.is_instructive(&action) { INSTRUCTIVE } else { 0 };
                    (to, worker.fair_action(&action), worker.fulfils(&action) | instructive)
                }));
                worker.pending(slots)
            }));
            for (to, fair_action, marks) in steps.drain(..) {
                let to = to.map_or(NOWHERE, |slots| search.number(&slots));
                let next = fair_actions.len() as FairAction;
                let fair_action = fair_action
                    .map_or(NO_FAIR_ACTION, |fair_action| *fair_actions.entry(fair_action).or_insert(next));
                graph.push(Edge { to, fair_action }, marks);
            }
            graph.first.push(graph.edges.len());
        }
        graph
    }

    fn push(&mut self, edge: Edge, marks: Goals) {
        if marks != 0 && self.marks.is_empty() {
            self.marks.resize(self.edges.len(), 0);
        }
        if marks != 0 || !self.marks.is_empty() {
            self.marks.push(marks);
        }
        self.edges.push(edge);
    }

    fn out(&self, state: u32) -> &[Edge] {
        &self.edges[self.first[state as usize]..self.first[state as usize + 1]]
    }

    fn marks(&self, state: u32, place: usize) -> Goals {
        self.marks.get(self.first[state as usize] + place).copied().unwrap_or(0)
    }

    /// Whether a step that takes the fair action is possible in a state.
    fn allows(&self, state: u32, fair_action: FairAction) -> bool {
        self.out(state).iter().any(|edge| edge.fair_action == fair_action)
    }
}

/// The part of the graph in which a goal is pending and not fulfilled.
struct Part<'a> {
    graph: &'a Graph,
    goal: usize,
    fairness: Fairness,
}

/// The fair actions of a strongly connected component: those that are enabled in it, each with the number of states
/// that enable it, and those that are taken on an edge inside it.
struct FairActions {
    enabled: BTreeMap<FairAction, usize>,
    taken: BTreeSet<FairAction>,
}

impl Part<'_> {
    /// A fair cycle: each state with the index of its step. Of several components, one with an instructive step is
    /// preferred, and then the one that a shortest run leads to.
    fn cycle(&self) -> Option<Vec<(u32, usize)>> {
        let mut best: Option<(bool, Vec<u32>)> = None;
        for component in self.components() {
            if !self.is_fair(&component) {
                continue;
            }
            let plain = !self.is_instructive(&component);
            let better = |(known, other): &(bool, Vec<u32>)| (plain, component[0]) < (*known, other[0]);
            if best.as_ref().is_none_or(better) {
                best = Some((plain, component));
            }
        }
        best.map(|(_, component)| self.through(&component))
    }

    /// The strongly connected components that contain a cycle, each sorted.
    fn components(&self) -> Vec<Vec<u32>> {
        let inside = |state: u32| self.graph.pending[state as usize] >> self.goal & 1 == 1;
        let next = |state: u32, place: usize| {
            let edge = self.graph.out(state).get(place)?;
            let follow = edge.to != NOWHERE && inside(edge.to) && !self.fulfils(state, place);
            Some(if follow { Neighbour::Node(edge.to) } else { Neighbour::LeftOut })
        };
        let mut found = Vec::new();
        components(self.graph.pending.len(), inside, next, |mut component| {
            component.sort_unstable();
            // A single state is a cycle only if it has an edge to itself.
            if self.inner(&component, component[0]).next().is_some() {
                found.push(component);
            }
        });
        found
    }

    fn fulfils(&self, state: u32, place: usize) -> bool {
        self.graph.marks(state, place) >> self.goal & 1 == 1
    }

    /// The steps from a state within a component: the index and the edge.
    fn inner<'b>(&'b self, component: &'b [u32], state: u32) -> impl Iterator<Item = (usize, Edge)> + 'b {
        let edges = self.graph.out(state).iter().copied().enumerate();
        edges.filter(move |(place, edge)| {
            component.binary_search(&edge.to).is_ok() && !self.fulfils(state, *place)
        })
    }

    fn fair_actions(&self, component: &[u32]) -> FairActions {
        let mut fair_actions = FairActions { enabled: BTreeMap::new(), taken: BTreeSet::new() };
        for &state in component {
            let mut here: Vec<FairAction> =
                self.graph.out(state).iter().map(|edge| edge.fair_action).collect();
            here.sort_unstable();
            here.dedup();
            for fair_action in here.into_iter().filter(|&fair_action| fair_action != NO_FAIR_ACTION) {
                *fair_actions.enabled.entry(fair_action).or_default() += 1;
            }
            fair_actions.taken.extend(self.inner(component, state).map(|(_, edge)| edge.fair_action));
        }
        fair_actions
    }

    /// Whether a cycle within the component can take all steps that fairness requires.
    ///
    /// Example: in the component {5, 6}, state 5 can deliver m (to 6) and n (out of the component), and state
    /// 6 can deliver only n (to 5). In the weak sense a cycle is fair: it delivers n from 6, and m is not
    /// required, since 6 cannot deliver it. If every step is required, no cycle is fair: n, delivered from 5,
    /// ends it.
    fn is_fair(&self, component: &[u32]) -> bool {
        match self.fairness {
            Fairness::Weak => {
                let fair_actions = self.fair_actions(component);
                let required = fair_actions.enabled.iter().filter(|(_, count)| **count == component.len());
                required.into_iter().all(|(fair_action, _)| fair_actions.taken.contains(fair_action))
            }
            Fairness::EveryStep => component.iter().all(|&state| {
                let required =
                    self.graph.out(state).iter().filter(|edge| edge.fair_action != NO_FAIR_ACTION).count();
                self.inner(component, state).filter(|(_, edge)| edge.fair_action != NO_FAIR_ACTION).count()
                    == required
            }),
        }
    }

    fn is_instructive(&self, component: &[u32]) -> bool {
        let marked = |state: u32, place: usize| self.graph.marks(state, place) & INSTRUCTIVE != 0;
        !self.graph.marks.is_empty()
            && component
                .iter()
                .any(|&state| self.inner(component, state).any(|(place, _)| marked(state, place)))
    }

    /// A cycle through a component that contains an instructive step, if there is one, and is fair.
    fn through(&self, component: &[u32]) -> Vec<(u32, usize)> {
        let mut cycle = Cycle { part: self, component, steps: Vec::new(), at: component[0] };
        if self.is_instructive(component) {
            cycle.extend(|state, place, _| self.graph.marks(state, place) & INSTRUCTIVE != 0);
        }
        for fair_action in self.fair_actions(component).enabled.into_keys() {
            // In the weak sense, a fair action may also be impossible in a state of the cycle.
            let weak = self.fairness == Fairness::Weak;
            let meets = |state: u32, taken: FairAction| {
                taken == fair_action || (weak && !self.graph.allows(state, fair_action))
            };
            let met = |&(state, place): &(u32, usize)| meets(state, self.graph.out(state)[place].fair_action);
            if !cycle.steps.iter().any(met) {
                cycle.extend(|state, _, edge| meets(state, edge.fair_action));
            }
        }
        if cycle.steps.is_empty() || cycle.at != component[0] {
            cycle.extend(|_, _, edge| edge.to == component[0]);
        }
        cycle.steps
    }
}

/// A path through a component that begins with its first state.
struct Cycle<'a> {
    part: &'a Part<'a>,
    component: &'a [u32],
    steps: Vec<(u32, usize)>,
    /// The state that it has reached.
    at: u32,
}

impl Cycle<'_> {
    /// Extends the path by a shortest one that ends with a wanted step.
    fn extend(&mut self, wanted: impl Fn(u32, usize, Edge) -> bool) {
        let index = |state: u32| self.component.binary_search(&state).expect("a state of the component");
        let mut before: Vec<Option<(u32, usize)>> = vec![None; self.component.len()];
        let mut queue = VecDeque::from([self.at]);
        while let Some(state) = queue.pop_front() {
            let mut inner = self.part.inner(self.component, state);
            if let Some((place, edge)) = inner.find(|&(place, edge)| wanted(state, place, edge)) {
                let mut path = vec![(state, place)];
                while let Some(&(last, _)) = path.last()
                    && last != self.at
                {
                    path.push(before[index(last)].expect("every state in the queue was reached by a step"));
                }
                self.steps.extend(path.into_iter().rev());
                self.at = edge.to;
                return;
            }
            for (place, edge) in self.part.inner(self.component, state) {
                let known = &mut before[index(edge.to)];
                if known.is_none() && edge.to != self.at {
                    *known = Some((state, place));
                    queue.push_back(edge.to);
                }
            }
        }
        unreachable!("the states of a component reach each other");
    }
}
