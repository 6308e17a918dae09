//! The three lemmas for one protocol, in sentences that are computed from the graph of its configurations.

use super::adversary::{Adversary, AdversaryStep};
use super::explore::{Graph, TooManyConfigurations, Valence, all_inputs};
use super::protocol::{ConfigurationOf, Event, EventOf, PROCESSES, Protocol, Value, apply, initial, name};
use super::rounds::Rounds;
use super::wait_for_all::WaitForAll;
use crate::checker::report::grouped;
use serde::Serialize;
use std::fmt::Display;

/// The most configurations of a protocol of the lesson.
const MOST_CONFIGURATIONS: usize = 200_000;

/// A part of the lesson: a heading and sentences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// The sentences.
    pub lines: Vec<String>,
}

/// The lesson about one protocol, whatever its types.
pub trait Lesson {
    /// The protocol, its configurations and the lemmas.
    fn sections(&self) -> Vec<Section>;

    /// A fair run without a decision, with the inputs that it starts from. `None` if no initial configuration is
    /// bivalent.
    fn adversary(&self) -> Option<(String, Box<dyn Iterator<Item = AdversaryStep> + '_>)>;
}

/// The lesson about the protocol of this name; `None` if there is no such protocol.
pub fn lesson(name: &str) -> Option<Result<Box<dyn Lesson>, TooManyConfigurations>> {
    fn explored<P: Protocol + 'static>(protocol: P) -> Result<Box<dyn Lesson>, TooManyConfigurations> {
        Ok(Box::new(Graph::explore(protocol, MOST_CONFIGURATIONS)?))
    }
    match name {
        "rounds" => Some(explored(Rounds::default())),
        "wait-for-all" => Some(explored(WaitForAll)),
        _ => None,
    }
}

/// An event in words: `S2 receives VOTE(1, 0) of S1`.
pub fn event_name<M: Display>(event: Event<M>) -> String {
    let to = name(event.to);
    match event.message {
        Some((from, message)) => format!("{to} receives {message} of {}", name(from)),
        None => format!("{to} takes its first step"),
    }
}

/// The messages under way in words: `VOTE(1, 0) from S1 to S2`.
pub fn messages_under_way<M: Display + Copy>(events: &[Event<M>]) -> Vec<String> {
    let text = |event: &Event<M>| {
        let (from, message) = event.message?;
        Some(format!("{message} from {} to {}", name(from), name(event.to)))
    };
    events.iter().filter_map(text).collect()
}

/// Inputs in words: `0, 0, 1`.
fn inputs_name(inputs: [Value; PROCESSES]) -> String {
    inputs.map(|input| input.to_string()).join(", ")
}

impl<P: Protocol> Graph<P> {
    /// The first bivalent initial configuration, with its inputs.
    pub fn bivalent_start(&self) -> Option<([Value; PROCESSES], ConfigurationOf<P>)> {
        all_inputs()
            .map(|inputs| (inputs, initial(&self.protocol, inputs)))
            .find(|(_, start)| self.valence(start) == Valence::Bivalent)
    }

    fn run_name(&self, events: &[EventOf<P>]) -> String {
        events.iter().map(|event| event_name(*event)).collect::<Vec<_>>().join("; ")
    }

    fn about(&self) -> Section {
        let mut lines: Vec<String> = self.protocol.rules().iter().map(ToString::to_string).collect();
        lines.push(format!(
            "Explored: {} configurations for all inputs and all orders of events. {} are 0-valent, {} 1-valent, {} \
             bivalent; from {} no decision can be reached.",
            grouped(self.len() as u64),
            grouped(self.count(Valence::Univalent(0)) as u64),
            grouped(self.count(Valence::Univalent(1)) as u64),
            grouped(self.count(Valence::Bivalent) as u64),
            grouped(self.count(Valence::Undecided) as u64),
        ));
        lines.push(match self.disagreement() {
            None => "Agreement holds: no configuration has two different decisions.".into(),
            Some(found) => {
                let states: Vec<String> =
                    found.states.iter().map(|state| self.protocol.describe(state)).collect();
                format!("Agreement is violated: {}.", states.join(" · "))
            }
        });
        lines.push(match self.blocked() {
            (0, _) => "One crash does not block it: from each configuration a decision can be reached without the \
                       steps of any one process."
                .into(),
            (blocked, _) => format!(
                "One crash blocks it: in {} configurations there is a process without whose steps no decision can be \
                 reached.",
                grouped(blocked as u64)
            ),
        });
        Section { title: format!("Protocol {}: three processes, one may crash", self.protocol.name()), lines }
    }

    fn lemma_1(&self) -> Section {
        let lines = match self.commutes() {
            Ok(pairs) => {
                let mut lines = vec![format!(
                    "Of {} pairs of events of different processes that are possible in one configuration, every one \
                     leads to the same configuration in both orders. By induction, so do two schedules of different \
                     processes.",
                    grouped(pairs as u64)
                )];
                lines.extend(self.diamond());
                lines
            }
            Err((_, [first, second])) => {
                vec![format!(
                    "Violated: the order of “{}” and “{}” matters.",
                    event_name(first),
                    event_name(second)
                )]
            }
        };
        Section { title: "Lemma 1: events of different processes commute".into(), lines }
    }

    /// Two events that commute, with the configuration that both orders lead to.
    fn diamond(&self) -> Option<String> {
        let (inputs, mut now) = self.bivalent_start().or_else(|| {
            let inputs = all_inputs().nth(1)?;
            Some((inputs, initial(&self.protocol, inputs)))
        })?;
        for process in 0..PROCESSES {
            now = apply(&self.protocol, &now, Event { to: process, message: None });
        }
        let first = *now.buffer.first()?;
        let second = *now.buffer.iter().find(|event| event.to != first.to)?;
        let both = |one, other| apply(&self.protocol, &apply(&self.protocol, &now, one), other);
        let (left, right) = (both(first, second), both(second, first));
        let same = if left == right { "the same" } else { "not the same" };
        let states: Vec<String> = left.states.iter().map(|state| self.protocol.describe(state)).collect();
        Some(format!(
            "Example with the inputs {}, after the first steps: {}, and {}. Both orders lead to {same} configuration: \
             {}.",
            inputs_name(inputs),
            event_name(first),
            event_name(second),
            states.join(" · ")
        ))
    }

    fn lemma_2(&self) -> Section {
        let mut lines: Vec<String> = all_inputs()
            .map(|inputs| {
                format!("Inputs {}: {}.", inputs_name(inputs), self.valence(&initial(&self.protocol, inputs)))
            })
            .collect();
        if let Some((inputs, start)) = self.bivalent_start() {
            lines.push(format!("Bivalent with the inputs {}:", inputs_name(inputs)));
            for value in [0, 1] {
                if let Some(run) = self.deciding_run(&start, value, |_| true) {
                    lines.push(format!("Decision {value} is reached by: {}.", self.run_name(&run)));
                }
            }
        } else {
            lines.push("No initial configuration is bivalent.".into());
            lines.extend(self.neighbours());
        }
        Section { title: "Lemma 2: some initial configuration is bivalent".into(), lines }
    }

    /// Two initial configurations with different decisions that differ in one input, and what follows if the process
    /// with this input crashes.
    fn neighbours(&self) -> Vec<String> {
        let all: Vec<_> = all_inputs().collect();
        let univalent = |inputs: &[Value; PROCESSES], value| {
            self.valence(&initial(&self.protocol, *inputs)) == Valence::Univalent(value)
        };
        let differing = |a: &[Value; PROCESSES], b: &[Value; PROCESSES]| {
            let mut places = (0..PROCESSES).filter(|place| a[*place] != b[*place]);
            places.next().filter(|_| places.next().is_none())
        };
        let pairs = all.iter().flat_map(|zero| all.iter().map(move |one| (zero, one)));
        let found = pairs
            .filter(|(zero, one)| univalent(zero, 0) && univalent(one, 1))
            .find_map(|(zero, one)| Some((*zero, *one, differing(zero, one)?)));
        let Some((zero, one, silent)) = found else { return Vec::new() };
        let mut lines = vec![format!(
            "The inputs {} and {} differ only in the input of {2}, but lead to different decisions. If {2} crashes \
             before its first step, the other processes cannot distinguish them, so that they cannot decide in both.",
            inputs_name(zero),
            inputs_name(one),
            name(silent)
        )];
        for inputs in [zero, one] {
            lines.push(self.run_without(inputs, silent));
        }
        lines
    }

    /// What a run without the steps of one process leads to.
    fn run_without(&self, inputs: [Value; PROCESSES], silent: usize) -> String {
        let start = initial(&self.protocol, inputs);
        let decides = self.decides_without(&start, silent);
        let mut now = start;
        let mut steps = 0;
        // A protocol without an end is stopped after a number of steps; those of this lesson end sooner.
        while steps < 1_000
            && let Some(&event) = now.buffer.iter().find(|event| event.to != silent)
        {
            now = apply(&self.protocol, &now, event);
            steps += 1;
        }
        let others = (0..PROCESSES).filter(|process| *process != silent);
        let states: Vec<String> = others
            .map(|process| format!("{}: {}", name(process), self.protocol.describe(&now.states[process])))
            .collect();
        let verdict =
            if decides { "a decision can be reached" } else { "no decision can be reached: it blocks" };
        format!(
            "Inputs {}, without {}: {verdict}. After {steps} steps: {}.",
            inputs_name(inputs),
            name(silent),
            states.join(" · ")
        )
    }

    fn lemma_3(&self) -> Section {
        let title = "Lemma 3: from a bivalent configuration another one can be reached".into();
        let lines = match self.stays_bivalent() {
            Ok(0) => vec!["There is no bivalent configuration to start from.".into()],
            Ok(pairs) => vec![format!(
                "For {} pairs of a bivalent configuration and an event that is possible in it, every one has a run \
                 that ends with the event in a bivalent configuration. So an adversary can let every event happen and \
                 keep both decisions possible for ever.",
                grouped(pairs as u64)
            )],
            Err((_, event)) => {
                vec![format!(
                    "Violated: after “{}” no bivalent configuration can be reached.",
                    event_name(event)
                )]
            }
        };
        Section { title, lines }
    }
}

impl<P: Protocol> Lesson for Graph<P> {
    fn sections(&self) -> Vec<Section> {
        vec![self.about(), self.lemma_1(), self.lemma_2(), self.lemma_3()]
    }

    fn adversary(&self) -> Option<(String, Box<dyn Iterator<Item = AdversaryStep> + '_>)> {
        let (inputs, start) = self.bivalent_start()?;
        Some((inputs_name(inputs), Box::new(Adversary::new(self, start))))
    }
}
