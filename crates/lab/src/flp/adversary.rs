//! The adversary of the proof: it delivers every message eventually, and chooses the order so that no process decides.
//!
//! The processes take turns. In its turn, a process has to receive its oldest message. The adversary looks for a
//! shortest run that ends with this receipt in a bivalent configuration, which lemma 3 promises, and takes its steps.

use super::explore::{Graph, Valence};
use super::lesson::{event_name, messages_under_way};
use super::protocol::{ConfigurationOf, EventOf, PROCESSES, Protocol, apply, name, rebased};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// A step of the adversary's run.
#[derive(Clone, Debug, Serialize)]
pub struct AdversaryStep {
    /// The number of the step, from 1.
    pub number: usize,
    /// The process whose turn it is.
    pub turn: String,
    /// The event.
    pub event: String,
    /// The label of the configuration after the event.
    pub valence: String,
    /// The number of the lemma that the step uses.
    pub lemma: u8,
    /// Why the adversary takes this step.
    pub why: String,
    /// The states of the processes after the event.
    pub states: Vec<String>,
    /// The messages under way after the event, oldest first.
    pub under_way: Vec<String>,
    /// The earlier step after which the configuration was the same, apart from the numbers of rounds.
    pub same_as: Option<usize>,
}

/// The endless run, as an iterator.
pub struct Adversary<'g, P: Protocol> {
    graph: &'g Graph<P>,
    now: ConfigurationOf<P>,
    /// The possible events, oldest first.
    order: Vec<EventOf<P>>,
    /// The process whose turn is next.
    next_turn: usize,
    /// The steps that are chosen, not yet taken, of the current turn.
    plan: VecDeque<EventOf<P>>,
    /// The event that has to happen in the current turn.
    due: Option<EventOf<P>>,
    taken: usize,
    /// For each configuration of the run, without the numbers of rounds, the last step that led to it.
    visited: BTreeMap<ConfigurationOf<P>, usize>,
}

impl<'g, P: Protocol> Adversary<'g, P> {
    /// The run from a bivalent configuration.
    pub fn new(graph: &'g Graph<P>, start: ConfigurationOf<P>) -> Self {
        let order = start.buffer.clone();
        let visited = BTreeMap::from([(rebased(&graph.protocol, start.clone()).0, 0)]);
        Self { graph, now: start, order, next_turn: 0, plan: VecDeque::new(), due: None, taken: 0, visited }
    }

    /// The configuration after the steps so far.
    pub fn now(&self) -> &ConfigurationOf<P> {
        &self.now
    }

    /// Chooses the steps of the next turn. Returns `false` if there is no run that lemma 3 promises.
    fn begin_turn(&mut self) -> bool {
        // A process without a message under way has nothing to receive: the next one has its turn.
        for _ in 0..PROCESSES {
            let process = self.next_turn;
            self.next_turn = (process + 1) % PROCESSES;
            let Some(&due) = self.order.iter().find(|event| event.to == process) else { continue };
            let Some(plan) = self.graph.bivalent_run(&self.now, due) else { return false };
            self.plan = plan.into();
            self.due = Some(due);
            return true;
        }
        false
    }

    fn take(&mut self, event: EventOf<P>) {
        self.now = apply(&self.graph.protocol, &self.now, event);
        let buffer = &self.now.buffer;
        self.order.retain(|known| buffer.contains(known));
        let new: Vec<EventOf<P>> =
            buffer.iter().filter(|known| !self.order.contains(known)).copied().collect();
        self.order.extend(new);
        self.taken += 1;
    }

    /// The label of the configuration that an event would lead to now; `None` if its message is stale.
    fn valence_after(&self, event: EventOf<P>) -> Option<Valence> {
        let possible = self.now.buffer.contains(&event);
        possible.then(|| self.graph.valence(&apply(&self.graph.protocol, &self.now, event)))
    }

    /// The lemma that a step uses, and the reason for the step.
    fn reason(&self, event: EventOf<P>, due: EventOf<P>, before: Option<Valence>) -> (u8, String) {
        let turn = name(due.to);
        let due_name = event_name(due);
        if event == due {
            return (
                3,
                format!("“{due_name}” is the oldest event of {turn}, and leaves both decisions possible."),
            );
        }
        let before = before.map_or_else(String::new, |valence| valence.to_string());
        let delayed =
            format!("“{due_name}” is the oldest event of {turn}, and would now make the run {before}.");
        match self.valence_after(due) {
            None => {
                (3, format!("{delayed} After this step it changes nothing any more, and counts as received."))
            }
            Some(after) if event.to == due.to => (
                3,
                format!(
                    "{delayed} This step is of {turn} too, so that the order of the two matters: after it, the \
                     delayed event leads to a configuration that is {after}."
                ),
            ),
            Some(after) => (
                1,
                format!(
                    "{delayed} This step is of another process, so that it commutes with the delayed event, which \
                     is still possible and leads to a configuration that is {after}."
                ),
            ),
        }
    }
}

impl<P: Protocol> Iterator for Adversary<'_, P> {
    type Item = AdversaryStep;

    fn next(&mut self) -> Option<AdversaryStep> {
        while self.plan.is_empty() {
            if !self.begin_turn() {
                return None;
            }
        }
        let (event, due) = (self.plan.pop_front()?, self.due?);
        let before = self.valence_after(due);
        self.take(event);
        let (lemma, why) = self.reason(event, due, before);
        let same_as = self.visited.insert(rebased(&self.graph.protocol, self.now.clone()).0, self.taken);
        Some(AdversaryStep {
            number: self.taken,
            turn: name(due.to),
            event: event_name(event),
            valence: self.graph.valence(&self.now).to_string(),
            lemma,
            why,
            states: self.now.states.iter().map(|state| self.graph.protocol.describe(state)).collect(),
            under_way: messages_under_way(&self.order),
            same_as,
        })
    }
}
