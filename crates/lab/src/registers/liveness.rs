//! Infinite runs that violate progress: found as cycles in the state graph.
//!
//! Only *fair* cycles count: every process takes infinitely many steps, unless it stays in its remainder
//! section. A waiting process polls, so it can always take a step; an infinite run without its steps is not
//! the algorithm's fault.

use super::components::{Neighbour, components};
use super::explore::{Edge, Graph};
use super::model::{Model, Section};
use std::collections::VecDeque;

/// A run that ends in a cycle: the states on the path to it, then those of the cycle, from its first state
/// back to it.
pub(super) struct Lasso {
    pub(super) way: Vec<u32>,
    pub(super) cycle: Vec<u32>,
}

/// A progress property: the entry that has to happen eventually.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hope {
    /// If a process tries, some process enters.
    SomeProcessEnters,
    /// If this process tries, it enters.
    Enters(usize),
}

/// Searches for a fair cycle that violates a progress property.
pub(super) fn search<M: Model>(model: &M, graph: &Graph<M::State>, hope: Hope) -> Option<Lasso> {
    let search = Search { model, graph, hope };
    // Of the fair components, prefer one without entries, and then the one that was found first: its path is
    // short.
    let mut best: Option<(bool, Vec<u32>)> = None;
    let next = |state: u32, n: usize| {
        let edge = graph.edges(state).get(n)?;
        Some(if search.allowed(edge) { Neighbour::Node(edge.to) } else { Neighbour::LeftOut })
    };
    components(graph.states.len(), next, |mut component| {
        component.sort_unstable();
        if search.is_fair(&component) {
            let quiet = !search.others_enter(&component);
            if best.as_ref().is_none_or(|(known, other)| (quiet, component[0]) < (*known, other[0])) {
                best = Some((quiet, component));
            }
        }
    });
    best.map(|(_, component)| search.lasso(&component))
}

struct Search<'a, M: Model> {
    model: &'a M,
    graph: &'a Graph<M::State>,
    hope: Hope,
}

impl<M: Model> Search<'_, M> {
    fn allowed(&self, edge: &Edge) -> bool {
        match self.hope {
            Hope::SomeProcessEnters => !edge.enters,
            Hope::Enters(process) => !(edge.enters && edge.process as usize == process),
        }
    }

    fn section(&self, state: u32, process: usize) -> Section {
        self.model.section(&self.graph.states[state as usize], process)
    }

    fn unmet_in(&self, state: u32) -> bool {
        match self.hope {
            Hope::SomeProcessEnters => (0..self.model.processes()).any(|p| self.section(state, p).tries()),
            Hope::Enters(process) => self.section(state, process).tries(),
        }
    }

    /// The edges within a component, which is given as a sorted list of states.
    fn inner<'b>(&'b self, component: &'b [u32], state: u32) -> impl Iterator<Item = &'b Edge> {
        self.graph
            .edges(state)
            .iter()
            .filter(move |edge| self.allowed(edge) && component.binary_search(&edge.to).is_ok())
    }

    /// Whether a step is fair to a process: it is a step of the process, or the process is in its remainder
    /// section.
    fn serves(&self, process: usize, state: u32, edge: &Edge) -> bool {
        edge.process as usize == process || self.section(state, process) == Section::Remainder
    }

    fn is_fair(&self, component: &[u32]) -> bool {
        if !self.unmet_in(component[0]) {
            return false;
        }
        let mut served = vec![false; self.model.processes()];
        for &state in component {
            for edge in self.inner(component, state) {
                for (process, served) in served.iter_mut().enumerate() {
                    *served |= self.serves(process, state, edge);
                }
            }
        }
        served.into_iter().all(|served| served)
    }

    fn others_enter(&self, component: &[u32]) -> bool {
        component.iter().any(|&state| self.inner(component, state).any(|edge| edge.enters))
    }

    fn lasso(&self, component: &[u32]) -> Lasso {
        let start = component[0];
        let mut cycle = vec![start];
        if self.others_enter(component) {
            self.extend(component, &mut cycle, |_, edge| edge.enters);
        }
        for process in 0..self.model.processes() {
            let served = cycle.windows(2).any(|pair| {
                let mut edges = self.inner(component, pair[0]).filter(|edge| edge.to == pair[1]);
                edges.any(|edge| self.serves(process, pair[0], edge))
            });
            if !served {
                self.extend(component, &mut cycle, |state, edge| self.serves(process, state, edge));
            }
        }
        if cycle.len() == 1 || *cycle.last().unwrap_or(&start) != start {
            self.extend(component, &mut cycle, |_, edge| edge.to == start);
        }
        Lasso { way: self.graph.way_to(start), cycle }
    }

    /// Extends the cycle by a shortest path that ends with a wanted edge.
    fn extend(&self, component: &[u32], cycle: &mut Vec<u32>, wanted: impl Fn(u32, &Edge) -> bool) {
        let place = |state: u32| component.binary_search(&state).expect("a state of the component");
        let from = cycle[cycle.len() - 1];
        let mut parents = vec![None; component.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(state) = queue.pop_front() {
            if let Some(edge) = self.inner(component, state).find(|edge| wanted(state, edge)) {
                let mut way = vec![edge.to, state];
                while let Some(&last) = way.last()
                    && last != from
                {
                    way.push(parents[place(last)].expect("every state in the queue has a parent"));
                }
                cycle.extend(way.into_iter().rev().skip(1));
                return;
            }
            for edge in self.inner(component, state) {
                let known = &mut parents[place(edge.to)];
                if known.is_none() && edge.to != from {
                    *known = Some(state);
                    queue.push_back(edge.to);
                }
            }
        }
        unreachable!("a component's states reach each other");
    }
}
