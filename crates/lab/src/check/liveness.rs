//! Starvation: an infinite, fair run in which a machine waits for ever.
//!
//! A cycle of states is *fair* if each step that stays possible all the way round is taken: a message that
//! can be delivered is delivered eventually, and a site inside its critical section leaves eventually. No
//! site has to request. The search computes the strongly connected components of those states in which the
//! victim waits. A component contains a fair cycle if each required step is impossible in one of its states,
//! or is taken between two of its states.
//!
//! Example: A and B alternate while C's REQUEST is under way to A in every state. In the cycle without its
//! delivery, the step "deliver C's REQUEST" stays possible and is never taken, so the cycle is not fair and
//! does not count as starvation. If the REQUEST is delivered on the cycle and C still never enters, it does.

use super::net::{Action, Net};
use super::search::{Search, Worker};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A run that leads to a cycle, and the cycle, in which a machine waits for ever.
#[derive(Clone, Debug)]
pub struct Lasso {
    /// The machine that waits.
    pub victim: usize,
    /// The run from the start to the cycle.
    pub stem: Vec<Action>,
    /// The actions of the cycle.
    pub circle: Vec<Action>,
}

/// A duty: a step that a fair run has to take eventually if it stays possible. Numbered in the order of
/// discovery.
type Duty = u32;
/// The target of steps that were not explored. They are possible all the same.
const NOWHERE: u32 = u32::MAX;
/// The duty of a step that fairness does not require, such as a request or a fault.
const NO_DUTY: Duty = Duty::MAX;

struct Edge {
    to: u32,
    duty: Duty,
}

/// All states and steps of a finished search.
struct Graph {
    /// For each state, the index of its first edge.
    first: Vec<usize>,
    edges: Vec<Edge>,
    /// The machines that wait in each state, one bit each.
    waiting: Vec<u16>,
}

impl Graph {
    fn out(&self, state: u32) -> &[Edge] {
        &self.edges[self.first[state as usize]..self.first[state as usize + 1]]
    }
}

/// Searches for starvation in all states that a search by one thread has visited.
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

/// The duty that a step fulfils: the delivery of a message, or the exit or timer of a site. On a FIFO channel
/// the duty is "deliver the head", independent of the message at the head.
fn duty(net: &Net, action: &Action, duties: &mut BTreeMap<(usize, usize, u32), Duty>) -> Duty {
    let key = match *action {
        Action::Deliver(from, to, parcel) => (from, to, if net.kernel.traits().fifo { 0 } else { parcel }),
        Action::Choice(who, choice) if choice.fault.is_none() && !choice.free => (who, who, choice.code),
        _ => return NO_DUTY,
    };
    let next = duties.len() as Duty;
    *duties.entry(key).or_insert(next)
}

/// The states of the first component that has a fair cycle in which the victim waits.
fn fair_component(graph: &Graph, victim: usize) -> Option<BTreeSet<u32>> {
    let inside = |state: u32| graph.waiting[state as usize] >> victim & 1 == 1;
    components(graph, &inside).into_iter().find(|component| is_fair(graph, component))
}

fn is_fair(graph: &Graph, component: &BTreeSet<u32>) -> bool {
    obligations(graph, component).iter().all(|obligation| obligation.is_some())
}

/// For each duty that occurs in a component, where a cycle through the component meets it:
/// - possible in all states: a step that fulfils it, as the state and the index of the step there; `None` if
///   no step does, so that no cycle in the component is fair;
/// - impossible in some state: that state, without a step. A cycle through this state owes nothing.
///
/// Example: in the component {5, 6}, state 5 can deliver m (to 6) and n (out of the component), and state 6
/// can deliver only n (to 5). For m the result is `(6, None)`, since 6 cannot deliver it; for n it is
/// `(6, Some(0))`.
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

/// Strongly connected components that contain a cycle, among the states that are `inside`. This is Tarjan's
/// algorithm with an explicit stack of calls, since runs can be longer than a thread's stack allows.
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
        // The call stack holds a state and the index of its next edge.
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
                // All edges are followed: return to the calling state.
            }
            calls.pop();
            if let Some(&(caller, _)) = calls.last() {
                low[caller as usize] = low[caller as usize].min(low[at]);
                // A state whose `low` is its own index is the root of a component: everything above it on the
                // stack.
            }
            if low[at] == index[at] {
                let start = stack.iter().rposition(|&other| other == state).expect("it is on the stack");
                let component: BTreeSet<u32> = stack.drain(start..).collect();
                // A single state is a cycle only if it has an edge to itself.
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

/// The run to the first state of a component, and a cycle through the component that meets every obligation.
fn lasso(search: &mut Search<'_, Net>, graph: &Graph, victim: usize, component: &BTreeSet<u32>) -> Lasso {
    let start = *component.first().expect("a component has states");
    let mut at = start;
    let mut steps: Vec<(u32, usize)> = Vec::new();
    // Visit the obligations one after the other, connected by shortest paths, then return to the start.
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
        let place = graph.out(at).iter().position(inside).expect("a component contains a cycle");
        steps.push((at, place));
        at = graph.out(at)[place].to;
    }
    steps.extend(way(graph, component, at, start));
    let stem = search.run_to(start);
    let circle = steps.into_iter().map(|(state, place)| search.action(state, place)).collect();
    Lasso { victim, stem, circle }
}

/// A shortest path between two states of a component, as steps: the state and the index of the step there.
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
