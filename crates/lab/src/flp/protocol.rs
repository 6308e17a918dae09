//! Consensus protocols as pure state machines, and the configurations of a system that runs one.
//!
//! The model is the one of Fischer, Lynch and Paterson: a configuration is the states of all processes and the buffer
//! of the messages under way. A step is the receipt of one message, in any order; the process changes its state and
//! sends messages. A crashed process is one that takes no more steps.

use std::fmt::{Debug, Display};

/// The number of processes.
pub const PROCESSES: usize = 3;

/// A value that the processes decide on: 0 or 1.
pub type Value = u8;

/// A consensus protocol of three processes, of which one may crash.
pub trait Protocol {
    /// The state of a process.
    type State: Clone + Debug + Ord;
    /// A message. Every message is sent to all other processes.
    type Message: Copy + Debug + Display + Ord;

    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// The rules of the protocol, one sentence each.
    fn rules(&self) -> &'static [&'static str];

    /// The state of a process before its first step.
    fn initial(&self, input: Value) -> Self::State;

    /// The first step of a process that receives no message in it. Returns the messages that it sends.
    fn start(&self, me: usize, state: &mut Self::State) -> Vec<Self::Message>;

    /// Receives a message. Returns the messages that the process sends.
    fn receive(
        &self,
        me: usize,
        state: &mut Self::State,
        from: usize,
        message: Self::Message,
    ) -> Vec<Self::Message>;

    /// Whether the process has taken its first step.
    fn has_started(&self, state: &Self::State) -> bool;

    /// The value that the process has decided on.
    fn decision(&self, state: &Self::State) -> Option<Value>;

    /// Whether a message changes nothing any more at its receiver, now and later.
    fn is_stale(&self, state: &Self::State, message: Self::Message) -> bool;

    /// The state in words.
    fn describe(&self, state: &Self::State) -> String;

    /// The round of a process, in a protocol with rounds. A process that is not concerned by rounds has none.
    fn round(&self, _state: &Self::State) -> Option<u32> {
        None
    }

    /// Subtracts a number of rounds from a state, so that equal situations in different rounds are equal.
    fn rebase(&self, _state: &mut Self::State, _rounds: u32) {}

    /// Subtracts a number of rounds from a message.
    fn rebase_message(&self, message: Self::Message, _rounds: u32) -> Self::Message {
        message
    }
}

/// The receipt of a message by a process: an event that is possible while the message is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event<M> {
    /// The process that takes the step, from 0.
    pub to: usize,
    /// The message, with its sender. `None` for the first step of a process without a message.
    pub message: Option<(usize, M)>,
}

/// The states of all processes, and the messages under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Configuration<S, M> {
    /// The states.
    pub states: Vec<S>,
    /// The possible events, in order. A message that is stale at its receiver is left out: its receipt changes nothing,
    /// so that it counts as received.
    pub buffer: Vec<Event<M>>,
}

/// The configuration of a protocol.
pub type ConfigurationOf<P> = Configuration<<P as Protocol>::State, <P as Protocol>::Message>;

/// The event of a protocol.
pub type EventOf<P> = Event<<P as Protocol>::Message>;

/// The initial configuration for these inputs.
pub fn initial<P: Protocol>(protocol: &P, inputs: [Value; PROCESSES]) -> ConfigurationOf<P> {
    Configuration {
        states: inputs.iter().map(|input| protocol.initial(*input)).collect(),
        buffer: (0..PROCESSES).map(|to| Event { to, message: None }).collect(),
    }
}

/// The configuration after an event.
///
/// # Panics
/// If the event is not possible.
pub fn apply<P: Protocol>(
    protocol: &P,
    before: &ConfigurationOf<P>,
    event: EventOf<P>,
) -> ConfigurationOf<P> {
    let mut after = before.clone();
    let place = after.buffer.iter().position(|known| *known == event);
    after.buffer.remove(place.expect("the message is under way"));
    let state = &mut after.states[event.to];
    let mut sent = Vec::new();
    if !protocol.has_started(state) {
        sent.extend(protocol.start(event.to, state));
    }
    if let Some((from, message)) = event.message {
        sent.extend(protocol.receive(event.to, state, from, message));
    }
    for message in sent {
        for to in (0..PROCESSES).filter(|to| *to != event.to) {
            after.buffer.push(Event { to, message: Some((event.to, message)) });
        }
    }
    let Configuration { states, buffer } = &mut after;
    buffer.retain(|event| match event.message {
        Some((_, message)) => !protocol.is_stale(&states[event.to], message),
        None => !protocol.has_started(&states[event.to]),
    });
    buffer.sort_unstable();
    after
}

/// The same configuration with the lowest round as round 1, and the number of rounds that were subtracted.
pub fn rebased<P: Protocol>(
    protocol: &P,
    mut configuration: ConfigurationOf<P>,
) -> (ConfigurationOf<P>, u32) {
    let lowest = configuration.states.iter().filter_map(|state| protocol.round(state)).min();
    let rounds = lowest.unwrap_or(1) - 1;
    if rounds > 0 {
        configuration.states.iter_mut().for_each(|state| protocol.rebase(state, rounds));
        for event in &mut configuration.buffer {
            *event = rebased_event(protocol, *event, rounds);
        }
    }
    (configuration, rounds)
}

/// The same event with this number of rounds subtracted.
pub fn rebased_event<P: Protocol>(protocol: &P, event: EventOf<P>, rounds: u32) -> EventOf<P> {
    let message = event.message.map(|(from, message)| (from, protocol.rebase_message(message, rounds)));
    Event { message, ..event }
}

/// The values that processes have decided on, as a set of bits: 1 for the value 0, 2 for the value 1.
pub fn decisions<P: Protocol>(protocol: &P, configuration: &ConfigurationOf<P>) -> u8 {
    let decided = configuration.states.iter().filter_map(|state| protocol.decision(state));
    decided.fold(0, |bits, value| bits | 1 << value)
}

/// The name of a process.
pub fn name(process: usize) -> String {
    format!("S{}", process + 1)
}
