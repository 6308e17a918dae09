//! The specification for stateright, with ordinary Rust types as its state.

use crate::lamport_mutex::{LamportMutex, Message, Process};
use stateright::{Model, Property};

/// The specification as a model of stateright.
pub struct Spec(pub LamportMutex);

/// The processes, and the messages under way from each to each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    processes: Vec<Process>,
    network: Vec<Vec<Vec<Message>>>,
}

/// A step of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// This process requests the critical section.
    Request(usize),
    /// This process enters it.
    Enter(usize),
    /// This process leaves it.
    Exit(usize),
    /// The first process's next message arrives at the second.
    Receive(usize, usize),
}

impl State {
    fn broadcast(&mut self, from: usize, message: Message) {
        for (to, channel) in self.network[from].iter_mut().enumerate() {
            if to != from {
                channel.push(message);
            }
        }
    }
}

impl Model for Spec {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let processes = self.0.processes;
        vec![State {
            processes: vec![self.0.first(); processes],
            network: vec![vec![Vec::new(); processes]; processes],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (me, process) in state.processes.iter().enumerate() {
            if self.0.can_request(me, process) {
                actions.push(Action::Request(me));
            }
            if self.0.can_enter(me, process) {
                actions.push(Action::Enter(me));
            }
            if process.critical {
                actions.push(Action::Exit(me));
            }
            actions.extend(
                (0..self.0.processes)
                    .filter(|&from| !state.network[from][me].is_empty())
                    .map(|from| Action::Receive(from, me)),
            );
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        match action {
            Action::Request(me) => {
                let message = self.0.request(me, &mut state.processes[me]);
                state.broadcast(me, message);
            }
            Action::Enter(me) => state.processes[me].critical = true,
            Action::Exit(me) => {
                let message = self.0.exit(me, &mut state.processes[me]);
                state.broadcast(me, message);
            }
            Action::Receive(from, me) => {
                let message = state.network[from][me].remove(0);
                if let Some(answer) = self.0.receive(&mut state.processes[me], from, message) {
                    state.network[me][from].push(answer);
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("mutual exclusion", |_, state: &State| {
            state.processes.iter().filter(|process| process.critical).count() <= 1
        })]
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.processes.iter().all(|process| process.clock <= self.0.max_clock)
    }
}
