//! Starvation: a run that goes round for ever, fairly, while somebody waits.
//!
//! Going round for ever is *fair* if whatever can happen all the time does happen: a message that could be delivered
//! is delivered in the end, and whoever is inside leaves in the end. Nobody is made to ask. A set of states that can
//! be gone round in is found as a strongly connected component of those states in which the machine waits; it can be gone
//! round in fairly if each thing that can happen is impossible in one of its states, or happens on one of its steps.

use super::net::{Action, Net};
use super::search::{Search, Worker};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A run that leads to a circle, and the circle, in which a machine waits for ever.
#[derive(Clone, Debug)]
pub struct Lasso {
    /// Who waits.
    pub victim: usize,
    /// How the circle is reached.
    pub stem: Vec<Action>,
    /// The circle.
    pub circle: Vec<Action>,
}

/// What a fair run has to do sooner or later, if it stays possible.
type Duty = u32;
/// Where steps lead that were not followed. They are possible all the same.
const NOWHERE: u32 = u32::MAX;
/// A step that nobody is made to take.
const NO_DUTY: Duty = Duty::MAX;

struct Edge {
    to: u32,
    duty: Duty,
}

/// Every state and every step of a search that is done.
struct Graph {
    /// Where the steps of each state begin.
    first: Vec<usize>,
    edges: Vec<Edge>,
    /// Who waits in each state, one bit each.
    waiting: Vec<u16>,
}

impl Graph {
    fn out(&self, state: u32) -> &[Edge] {
        &self.edges[self.first[state as usize]..self.first[state as usize + 1]]
    }
}

/// Looks for starvation in everything that a search of one thread has seen.
pub fn starvation(search: &mut Search<'_, Net>, net: &Net) -> Option<Lasso> {
    let mut duties = BTreeMap::new();
    let graph = graph(search, net, &mut duties);
    (0..net.kernel.machines()).find_map(|victim| {
        let circle = fair_component(&graph, victim)?;
        Some(lasso(search, &graph, victim, &circle))
    })
}

fn graph(search: &mut Search<'_, Net>, net: &Net, duties: &mut BTreeMap<(usize, usize, u32), Duty>) -> Graph {
    let states = search.sofar().distinct as u32;
    let (mut first, mut edges, mut waiting) = (vec![0], Vec::new(), Vec::new());
    let mut steps: Vec<(Option<Vec<u32>>, Duty)> = Vec::new();
    for state in 0..states {
        steps.clear();
        waiting.push(search.visit(state, |worker, slots, tallies| {
            worker.expand(slots, tallies, &mut |next| {
                let followed = (!next.beyond).then(|| next.state.to_vec());
                steps.push((followed, duty(net, &next.action, duties)));
            });
            worker.waiting(slots)
        }));
        for (slots, duty) in &steps {
            let to = slots.as_ref().map_or(NOWHERE, |slots| search.number(slots));
            edges.push(Edge { to, duty: *duty });
        }
        first.push(edges.len());
    }
    Graph { first, edges, waiting }
}

/// What a step fulfils: the delivery of a message, or the leaving of whoever is inside.
fn duty(net: &Net, action: &Action, duties: &mut BTreeMap<(usize, usize, u32), Duty>) -> Duty {
    let key = match *action {
        Action::Deliver(from, to, parcel) => (from, to, if net.kernel.traits().fifo { 0 } else { parcel }),
        Action::Choice(who, choice) if choice.fault.is_none() && !choice.free => (who, who, choice.code),
        _ => return NO_DUTY,
    };
    let next = duties.len() as Duty;
    *duties.entry(key).or_insert(next)
}

/// The states of the first fair circle in which the victim waits.
fn fair_component(graph: &Graph, victim: usize) -> Option<BTreeSet<u32>> {
    let inside = |state: u32| graph.waiting[state as usize] >> victim & 1 == 1;
    components(graph, &inside).into_iter().find(|component| is_fair(graph, component))
}

fn is_fair(graph: &Graph, component: &BTreeSet<u32>) -> bool {
    obligations(graph, component).iter().all(|obligation| obligation.is_some())
}

/// For each duty that is possible all around: the step that fulfils it, as the state where it is taken and its place
/// there, or nothing if there is none. Duties that are impossible somewhere: that state, and no step.
fn obligations(graph: &Graph, component: &BTreeSet<u32>) -> Vec<Option<(u32, Option<usize>)>> {
    let mut always: Option<BTreeSet<Duty>> = None;
    let mut ever = BTreeMap::new();
    for &state in component {
        let here: BTreeSet<Duty> =
            graph.out(state).iter().map(|edge| edge.duty).filter(|&duty| duty != NO_DUTY).collect();
        for &duty in &here {
            ever.entry(duty).or_insert(state);
        }
        always = Some(match always {
            None => here,
            Some(always) => always.intersection(&here).copied().collect(),
        });
    }
    let always = always.unwrap_or_default();
    let mut taken: BTreeMap<Duty, (u32, Option<usize>)> = BTreeMap::new();
    for &state in component {
        for (place, edge) in graph.out(state).iter().enumerate() {
            if component.contains(&edge.to) && always.contains(&edge.duty) {
                taken.entry(edge.duty).or_insert((state, Some(place)));
            }
        }
    }
    let impossible = |duty: Duty| {
        let lacks = |state: &&u32| graph.out(**state).iter().all(|edge| edge.duty != duty);
        component.iter().find(lacks).map(|&state| (state, None))
    };
    ever.into_keys()
        .map(|duty| if always.contains(&duty) { taken.get(&duty).copied() } else { impossible(duty) })
        .collect()
}

/// Strongly connected components that can be gone round in, among the states that are `inside`: Tarjan's algorithm, with a
/// stack of its own.
fn components(graph: &Graph, inside: &dyn Fn(u32) -> bool) -> Vec<BTreeSet<u32>> {
    const NEW: u32 = u32::MAX;
    let states = graph.waiting.len();
    let (mut index, mut low) = (vec![NEW; states], vec![0; states]);
    let mut on_stack = vec![false; states];
    let (mut stack, mut calls, mut found) = (Vec::new(), Vec::<(u32, usize)>::new(), Vec::new());
    let mut next_index = 0;
    for root in (0..states as u32).filter(|&state| inside(state)) {
        if index[root as usize] != NEW {
            continue;
        }
        calls.push((root, 0));
        while let Some(&mut (state, ref mut place)) = calls.last_mut() {
            let at = state as usize;
            if *place == 0 && index[at] == NEW {
                (index[at], low[at]) = (next_index, next_index);
                next_index += 1;
                stack.push(state);
                on_stack[at] = true;
            }
            if let Some(edge) = graph.out(state).get(*place) {
                *place += 1;
                if edge.to == NOWHERE {
                    continue;
                }
                let to = edge.to as usize;
                if inside(edge.to) && index[to] == NEW {
                    calls.push((edge.to, 0));
                } else if on_stack[to] {
                    low[at] = low[at].min(index[to]);
                }
                continue;
            }
            calls.pop();
            if let Some(&(caller, _)) = calls.last() {
                low[caller as usize] = low[caller as usize].min(low[at]);
            }
            if low[at] == index[at] {
                let start = stack.iter().rposition(|&other| other == state).expect("it is on the stack");
                let component: BTreeSet<u32> = stack.drain(start..).collect();
                component.iter().for_each(|&member| on_stack[member as usize] = false);
                let circular = component.len() > 1 || graph.out(state).iter().any(|edge| edge.to == state);
                if circular {
                    found.push(component);
                }
            }
        }
    }
    found
}

/// The run to the first state of a component, and a way round that meets every obligation.
fn lasso(search: &mut Search<'_, Net>, graph: &Graph, victim: usize, component: &BTreeSet<u32>) -> Lasso {
    let start = *component.first().expect("a component has states");
    let mut at = start;
    let mut steps: Vec<(u32, usize)> = Vec::new();
    for (state, place) in obligations(graph, component).into_iter().flatten() {
        steps.extend(way(graph, component, at, state));
        at = state;
        if let Some(place) = place {
            steps.push((state, place));
            at = graph.out(state)[place].to;
        }
    }
    if steps.is_empty() {
        let inside = |edge: &Edge| component.contains(&edge.to);
        let place = graph.out(at).iter().position(inside).expect("one can go round in it");
        steps.push((at, place));
        at = graph.out(at)[place].to;
    }
    steps.extend(way(graph, component, at, start));
    let stem = search.run_to(start);
    let circle = steps.into_iter().map(|(state, place)| search.action(state, place)).collect();
    Lasso { victim, stem, circle }
}

/// A shortest way from one state of a component to another, as steps: the state and the place of the step there.
fn way(graph: &Graph, component: &BTreeSet<u32>, from: u32, to: u32) -> Vec<(u32, usize)> {
    let mut came: BTreeMap<u32, (u32, usize)> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(state) = queue.pop_front() {
        if state == to {
            break;
        }
        for (place, edge) in graph.out(state).iter().enumerate() {
            if component.contains(&edge.to) && edge.to != from && !came.contains_key(&edge.to) {
                came.insert(edge.to, (state, place));
                queue.push_back(edge.to);
            }
        }
    }
    let mut steps = Vec::new();
    let mut at = to;
    while at != from {
        let step = came[&at];
        steps.push(step);
        at = step.0;
    }
    steps.reverse();
    steps
}
