//! The exploration of all configurations of a protocol, and what they show: which decisions each configuration can
//! still lead to, whether events commute, whether a decision is possible without one of the processes.

use super::protocol::{
    ConfigurationOf, Event, EventOf, PROCESSES, Protocol, Value, apply, decisions, initial, rebased,
    rebased_event,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// The decisions that can be reached from a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Valence {
    /// No decision can be reached.
    Undecided,
    /// Only this value can be decided.
    Univalent(Value),
    /// Both values can be decided, depending on the order of events.
    Bivalent,
}

impl Valence {
    fn of(bits: u8) -> Self {
        match bits {
            0 => Self::Undecided,
            1 => Self::Univalent(0),
            2 => Self::Univalent(1),
            _ => Self::Bivalent,
        }
    }
}

impl fmt::Display for Valence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecided => f.write_str("without a decision"),
            Self::Univalent(value) => write!(f, "{value}-valent"),
            Self::Bivalent => f.write_str("bivalent"),
        }
    }
}

/// A step from one configuration to another.
#[derive(Clone, Copy, Debug)]
struct Edge<M> {
    event: Event<M>,
    to: usize,
    /// The number of rounds by which the configuration was rebased.
    rounds: u32,
}

/// All configurations of a protocol for all inputs; rounds are counted from the lowest round of a configuration.
pub struct Graph<P: Protocol> {
    /// The protocol.
    pub protocol: P,
    numbers: BTreeMap<ConfigurationOf<P>, usize>,
    configurations: Vec<ConfigurationOf<P>>,
    edges: Vec<Vec<Edge<P::Message>>>,
    valence: Vec<Valence>,
    /// For each configuration, bit p: a decision can be reached without a step of process p.
    without: Vec<u8>,
}

/// The protocol has more configurations than the explorer visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the protocol has more than {most} configurations; the explorer visits at most this number")]
pub struct TooManyConfigurations {
    /// The limit.
    pub most: usize,
}

impl<P: Protocol> Graph<P> {
    /// Explores every configuration that is reachable from the initial ones for all inputs.
    pub fn explore(protocol: P, most: usize) -> Result<Self, TooManyConfigurations> {
        let mut graph = Self {
            protocol,
            numbers: BTreeMap::new(),
            configurations: Vec::new(),
            edges: Vec::new(),
            valence: Vec::new(),
            without: Vec::new(),
        };
        for inputs in all_inputs() {
            let first = initial(&graph.protocol, inputs);
            graph.number(first);
        }
        let mut next = 0;
        while next < graph.configurations.len() {
            if graph.configurations.len() > most {
                return Err(TooManyConfigurations { most });
            }
            let from = graph.configurations[next].clone();
            let mut edges = Vec::with_capacity(from.buffer.len());
            for &event in &from.buffer {
                let (after, rounds) = rebased(&graph.protocol, apply(&graph.protocol, &from, event));
                edges.push(Edge { event, to: graph.number(after), rounds });
            }
            graph.edges.push(edges);
            next += 1;
        }
        graph.label();
        Ok(graph)
    }

    fn number(&mut self, configuration: ConfigurationOf<P>) -> usize {
        if let Some(&number) = self.numbers.get(&configuration) {
            return number;
        }
        let number = self.configurations.len();
        self.configurations.push(configuration.clone());
        self.numbers.insert(configuration, number);
        number
    }

    /// Labels each configuration: goes from the decisions backwards.
    fn label(&mut self) {
        let mut before: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.configurations.len()];
        for (from, edges) in self.edges.iter().enumerate() {
            for edge in edges {
                before[edge.to].push((from, edge.event.to));
            }
        }
        let decided: Vec<u8> = self
            .configurations
            .iter()
            .map(|configuration| decisions(&self.protocol, configuration))
            .collect();
        let mut reached = vec![0_u8; decided.len()];
        for value in [0, 1] {
            spread(
                &before,
                |number| decided[number] & 1 << value != 0,
                |_| true,
                |number| {
                    reached[number] |= 1 << value;
                },
            );
        }
        self.valence = reached.into_iter().map(Valence::of).collect();
        let mut without = vec![0_u8; decided.len()];
        for process in 0..PROCESSES {
            spread(
                &before,
                |number| decided[number] != 0,
                |mover| mover != process,
                |number| {
                    without[number] |= 1 << process;
                },
            );
        }
        self.without = without;
    }

    /// The number of configurations.
    pub fn len(&self) -> usize {
        self.configurations.len()
    }

    /// Whether there is no configuration.
    pub fn is_empty(&self) -> bool {
        self.configurations.is_empty()
    }

    /// The number of configurations with this label.
    pub fn count(&self, valence: Valence) -> usize {
        self.valence.iter().filter(|known| **known == valence).count()
    }

    /// The label of a configuration, whose rounds may be counted from any round.
    ///
    /// # Panics
    /// If the configuration is not reachable.
    pub fn valence(&self, configuration: &ConfigurationOf<P>) -> Valence {
        self.valence[self.find(configuration).0]
    }

    fn find(&self, configuration: &ConfigurationOf<P>) -> (usize, u32) {
        let (rebased, rounds) = rebased(&self.protocol, configuration.clone());
        (self.numbers[&rebased], rounds)
    }

    /// A reachable configuration in which two processes have decided differently.
    pub fn disagreement(&self) -> Option<&ConfigurationOf<P>> {
        self.configurations.iter().find(|known| decisions(&self.protocol, known) == 3)
    }

    /// The number of configurations from which no decision is reachable without a step of some process, and the first
    /// of them with that process. A protocol that tolerates one crash has none.
    pub fn blocked(&self) -> (usize, Option<(&ConfigurationOf<P>, usize)>) {
        let all = (1 << PROCESSES) - 1;
        let blocked = self.without.iter().filter(|without| **without != all).count();
        let first = self.without.iter().position(|without| *without != all);
        let first = first.map(|number| {
            let process = (0..PROCESSES).find(|process| self.without[number] & 1 << process == 0);
            (&self.configurations[number], process.expect("a bit is not set"))
        });
        (blocked, first)
    }

    /// Whether a decision can be reached from a configuration without a step of this process.
    pub fn decides_without(&self, configuration: &ConfigurationOf<P>, process: usize) -> bool {
        self.without[self.find(configuration).0] & 1 << process != 0
    }

    /// Lemma 1: whether every two possible events of different processes lead to the same configuration in both orders.
    /// Returns the number of pairs, or the first pair that does not.
    pub fn commutes(&self) -> Result<usize, (&ConfigurationOf<P>, [EventOf<P>; 2])> {
        let mut pairs = 0;
        for configuration in &self.configurations {
            for (place, &first) in configuration.buffer.iter().enumerate() {
                for &second in configuration.buffer[place + 1..].iter().filter(|other| other.to != first.to) {
                    let both = |a, b| apply(&self.protocol, &apply(&self.protocol, configuration, a), b);
                    if both(first, second) != both(second, first) {
                        return Err((configuration, [first, second]));
                    }
                    pairs += 1;
                }
            }
        }
        Ok(pairs)
    }

    /// Lemma 3: whether for every bivalent configuration and every event that is possible in it, there is a run that
    /// ends with the event in a bivalent configuration. Returns the number of pairs, or the first pair without one.
    pub fn stays_bivalent(&self) -> Result<usize, (&ConfigurationOf<P>, EventOf<P>)> {
        let mut pairs = 0;
        for (number, configuration) in self.configurations.iter().enumerate() {
            if self.valence[number] != Valence::Bivalent {
                continue;
            }
            for &event in &configuration.buffer {
                if self.detour(number, event).is_none() {
                    return Err((configuration, event));
                }
                pairs += 1;
            }
        }
        Ok(pairs)
    }

    /// The shortest list of events from a configuration that ends with this event in a bivalent configuration. If the
    /// event does not occur in the list, its message has become stale on the way, and its receipt changes nothing.
    pub fn bivalent_run(
        &self,
        configuration: &ConfigurationOf<P>,
        event: EventOf<P>,
    ) -> Option<Vec<EventOf<P>>> {
        let (number, rounds) = self.find(configuration);
        let path = self.detour(number, rebased_event(&self.protocol, event, rounds))?;
        // The events of the path are in the rounds of their configurations: takes them again from the start.
        let mut events = Vec::new();
        let mut now = configuration.clone();
        for place in path {
            let taken = now.buffer[place];
            events.push(taken);
            now = apply(&self.protocol, &now, taken);
        }
        Some(events)
    }

    /// The same, as the places of the events in the buffers.
    fn detour(&self, start: usize, event: EventOf<P>) -> Option<Vec<usize>> {
        // A node of the search is a configuration with the event in its rounds; for each node, the step that led to it.
        let mut nodes = vec![(start, event)];
        let mut steps: Vec<SearchStep> = vec![None];
        let mut seen = BTreeSet::from([(start, event)]);
        let mut waiting = VecDeque::from([0]);
        while let Some(at) = waiting.pop_front() {
            let (number, event) = nodes[at];
            let taken = self.edges[number].iter().position(|edge| edge.event == event);
            let Some(taken) = taken else {
                // The message is stale here: its receipt changes nothing.
                if self.valence[number] == Valence::Bivalent {
                    return Some(path_to(&steps, at));
                }
                continue;
            };
            if self.valence[self.edges[number][taken].to] == Valence::Bivalent {
                let mut path = path_to(&steps, at);
                path.push(taken);
                return Some(path);
            }
            for (place, edge) in self.edges[number].iter().enumerate().filter(|(place, _)| *place != taken) {
                let event = rebased_event(&self.protocol, event, edge.rounds);
                // From a univalent configuration, no bivalent one can be reached.
                if self.valence[edge.to] == Valence::Bivalent && seen.insert((edge.to, event)) {
                    nodes.push((edge.to, event));
                    steps.push(Some((at, place)));
                    waiting.push_back(nodes.len() - 1);
                }
            }
        }
        None
    }

    /// A shortest run from a configuration to a decision for this value, in which only `movers` take steps.
    pub fn deciding_run(
        &self,
        configuration: &ConfigurationOf<P>,
        value: Value,
        movers: impl Fn(usize) -> bool,
    ) -> Option<Vec<EventOf<P>>> {
        let start = self.find(configuration).0;
        let mut before: BTreeMap<usize, Option<(usize, usize)>> = BTreeMap::from([(start, None)]);
        let mut waiting = VecDeque::from([start]);
        let is_goal =
            |number: usize| decisions(&self.protocol, &self.configurations[number]) & 1 << value != 0;
        while let Some(number) = waiting.pop_front() {
            if is_goal(number) {
                let (mut places, mut at) = (Vec::new(), number);
                while let Some((from, place)) = before[&at] {
                    places.push(place);
                    at = from;
                }
                let mut now = configuration.clone();
                let events = places.into_iter().rev().map(|place| {
                    let event = now.buffer[place];
                    now = apply(&self.protocol, &now, event);
                    event
                });
                return Some(events.collect());
            }
            for (place, edge) in
                self.edges[number].iter().enumerate().filter(|(_, edge)| movers(edge.event.to))
            {
                before.entry(edge.to).or_insert_with(|| {
                    waiting.push_back(edge.to);
                    Some((number, place))
                });
            }
        }
        None
    }
}

/// The step of a search that led to a node: the node before, and the place of the event in its buffer. The first node has
/// none.
type SearchStep = Option<(usize, usize)>;

/// The places of the events that led to a node.
fn path_to(steps: &[SearchStep], mut at: usize) -> Vec<usize> {
    let mut path = Vec::new();
    while let Some((before, place)) = steps[at] {
        path.push(place);
        at = before;
    }
    path.reverse();
    path
}

/// Calls `reach` for every configuration from which a goal can be reached by steps of processes that `moves` allows.
fn spread(
    before: &[Vec<(usize, usize)>],
    goal: impl Fn(usize) -> bool,
    moves: impl Fn(usize) -> bool,
    mut reach: impl FnMut(usize),
) {
    let mut seen = vec![false; before.len()];
    let mut waiting: Vec<usize> = (0..before.len()).filter(|number| goal(*number)).collect();
    waiting.iter().for_each(|number| seen[*number] = true);
    while let Some(number) = waiting.pop() {
        reach(number);
        for &(from, mover) in &before[number] {
            if moves(mover) && !std::mem::replace(&mut seen[from], true) {
                waiting.push(from);
            }
        }
    }
}

/// The inputs of all initial configurations, in the order of binary numbers.
pub fn all_inputs() -> impl Iterator<Item = [Value; PROCESSES]> {
    (0..1_u8 << PROCESSES).map(|bits| {
        let mut inputs = [0; PROCESSES];
        for (place, input) in inputs.iter_mut().rev().enumerate() {
            *input = bits >> place & 1;
        }
        inputs
    })
}
