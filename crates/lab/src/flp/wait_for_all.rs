//! A protocol that is blocked by one crash: every process waits for the inputs of all others.

use super::protocol::{PROCESSES, Protocol, Value};
use std::fmt;

/// The protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitForAll;

/// The state of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    started: bool,
    /// Its own input, by which it starts.
    input: Value,
    /// The inputs that it has received from others.
    received: Vec<(usize, Value)>,
}

/// The input of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Input(Value);

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "INPUT({})", self.0)
    }
}

impl Protocol for WaitForAll {
    type State = State;
    type Message = Input;

    fn name(&self) -> &'static str {
        "wait-for-all"
    }

    fn rules(&self) -> &'static [&'static str] {
        &[
            "A process sends its input, and waits for the inputs of all others.",
            "With all three inputs it decides on the value that occurs at least twice.",
        ]
    }

    fn initial(&self, input: Value) -> State {
        State { started: false, input, received: Vec::new() }
    }

    fn start(&self, _me: usize, state: &mut State) -> Vec<Input> {
        state.started = true;
        vec![Input(state.input)]
    }

    fn receive(&self, _me: usize, state: &mut State, from: usize, Input(value): Input) -> Vec<Input> {
        state.received.push((from, value));
        state.received.sort_unstable();
        Vec::new()
    }

    fn has_started(&self, state: &State) -> bool {
        state.started
    }

    fn decision(&self, state: &State) -> Option<Value> {
        let all = state.started && state.received.len() == PROCESSES - 1;
        let ones = state.input + state.received.iter().map(|(_, value)| value).sum::<Value>();
        all.then_some(Value::from(usize::from(ones) * 2 > PROCESSES))
    }

    fn is_stale(&self, _state: &State, _message: Input) -> bool {
        false
    }

    fn describe(&self, state: &State) -> String {
        match (state.started, self.decision(state)) {
            (false, _) => format!("input {}, not started", state.input),
            (true, Some(value)) => format!("decided {value}"),
            (true, None) => {
                format!("input {}, has {} of {} inputs", state.input, state.received.len() + 1, PROCESSES)
            }
        }
    }
}
