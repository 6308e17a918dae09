//! Visits every reachable state, breadth first, so that counterexamples are as short as possible.

use super::model::{Model, Section, Step};
#[expect(clippy::disallowed_types, reason = "used for lookups only, never iterated")]
use std::collections::HashMap;

/// An edge of the graph of states.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) to: u32,
    pub(super) process: u8,
    /// Whether the step enters the critical section.
    pub(super) enters: bool,
}

/// All states, numbered in the order of discovery.
pub(super) struct Graph<S> {
    pub(super) states: Vec<S>,
    /// The state from which each state was first reached; the initial state is its own parent.
    parents: Vec<u32>,
    /// The index of each state's first edge; one more element than there are expanded states.
    starts: Vec<u32>,
    edges: Vec<Edge>,
    /// The maximum length of a shortest path to a state.
    pub(super) depth: u32,
    /// Number of steps that were not followed because they exceed the bounds of the model.
    pub(super) cut: u64,
    /// Whether all states were visited before the limit was reached.
    pub(super) complete: bool,
    /// The first state in which two processes are inside.
    pub(super) two_inside: Option<u32>,
    /// The first entry of a process that overtook one that had completed its doorway before: the states
    /// before and after it.
    pub(super) overtaken: Option<(u32, u32)>,
}

impl<S> Graph<S> {
    pub(super) fn edges(&self, state: u32) -> &[Edge] {
        match self.starts.get(state as usize + 1) {
            Some(&end) => &self.edges[self.starts[state as usize] as usize..end as usize],
            // The state was found, but not expanded before the limit was reached.
            None => &[],
        }
    }

    pub(super) fn steps(&self) -> u64 {
        self.edges.len() as u64
    }

    /// The states on the shortest path to a state, both ends included.
    pub(super) fn way_to(&self, state: u32) -> Vec<u32> {
        let mut way = vec![state];
        while let Some(&last) = way.last()
            && last != 0
        {
            way.push(self.parents[last as usize]);
        }
        way.reverse();
        way
    }
}

/// Visits all states, or stops after `most` of them.
#[expect(clippy::disallowed_types, reason = "used for lookups only, never iterated")]
pub(super) fn explore<M: Model>(model: &M, most: usize) -> Graph<M::State> {
    let first = model.initial();
    let mut numbers = HashMap::from([(first.clone(), 0_u32)]);
    let mut graph = Graph {
        states: vec![first],
        parents: vec![0],
        starts: vec![0],
        edges: Vec::new(),
        depth: 0,
        cut: 0,
        complete: true,
        two_inside: None,
        overtaken: None,
    };
    let mut steps: Vec<Step<M::State, M::Event>> = Vec::new();
    let mut next = 0;
    // The number of the first state of the next depth.
    let mut deeper = 1;
    while next < graph.states.len() {
        if next == deeper {
            graph.depth += 1;
            deeper = graph.states.len();
        }
        if graph.states.len() > most {
            graph.complete = false;
            break;
        }
        let (number, from) = (next as u32, graph.states[next].clone());
        next += 1;
        steps.clear();
        model.steps(&from, &mut steps);
        for step in steps.drain(..) {
            let Some(to) = step.to else {
                graph.cut += 1;
                continue;
            };
            let inside = |state| model.section(state, step.process) == Section::Inside;
            let enters = inside(&to) && !inside(&from);
            let found = graph.states.len() as u32;
            let known = *numbers.entry(to.clone()).or_insert(found);
            if known == found {
                graph.parents.push(number);
                if graph.two_inside.is_none() && several_inside(model, &to) {
                    graph.two_inside = Some(found);
                }
                graph.states.push(to);
            }
            if enters && graph.overtaken.is_none() && model.behind(&from, step.process).is_some() {
                graph.overtaken = Some((number, known));
            }
            graph.edges.push(Edge { to: known, process: step.process as u8, enters });
        }
        graph.starts.push(graph.edges.len() as u32);
    }
    graph
}

fn several_inside<M: Model>(model: &M, state: &M::State) -> bool {
    (0..model.processes()).filter(|&p| model.section(state, p) == Section::Inside).count() > 1
}

/// A path through the graph, one sentence per step.
pub(super) fn tell<M: Model>(model: &M, graph: &Graph<M::State>, way: &[u32]) -> Vec<String> {
    let mut steps = Vec::new();
    let mut sentence = |from: u32, to: u32| {
        let (from, to) = (&graph.states[from as usize], &graph.states[to as usize]);
        steps.clear();
        model.steps(from, &mut steps);
        let step = steps.iter().find(|step| step.to.as_ref() == Some(to)).expect("an edge is a step");
        model.tell(from, step)
    };
    way.windows(2).map(|pair| sentence(pair[0], pair[1])).collect()
}
