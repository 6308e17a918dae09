//! The reachable states of a system as a TLA+ module, so that TLC can check them independently of this checker.
//!
//! The module has one variable, the number of the state, and the graph as constant tuples: for each state its successors,
//! the sites inside and the sites that wait. TLC then visits as many distinct states, and generates as many, as the
//! checker reports for the same system with every interleaving (`--full`).

use super::explore::{Model, Worker};
use super::mutual_exclusion::net::Net;
use super::registers;
use super::spec::{CheckSpec, ModelKind};
use super::{Error, mutual_exclusion_system};
use crate::usage::UsageError;
use lockkeeper_core::Sharing;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The limit on states of a module.
pub const MOST_STATES: usize = 50_000;

/// The sites in a state, for the properties of the module.
pub(super) trait Sites: Worker {
    /// The indices of the sites inside their critical section.
    fn inside(&mut self, state: &[u32]) -> Vec<usize>;
    /// The indices of the sites that have requested and not entered.
    fn waiting_sites(&mut self, state: &[u32]) -> Vec<usize>;
}

/// A module, and the configuration with which TLC checks it.
#[derive(Clone, Debug)]
pub struct TlaModule {
    /// The text of the module.
    pub module: String,
    /// The text of the configuration.
    pub config: String,
    /// The number of reachable states.
    pub states: usize,
    /// The number of steps between them. Two steps from one state to another count twice.
    pub steps: usize,
}

/// Makes the module of a system. `name` is the name of the module. Elections and systems with more than [`MOST_STATES`]
/// states are errors, as is a name that TLA+ does not permit.
pub fn module(spec: &CheckSpec, name: &str) -> Result<TlaModule, Error> {
    let permitted = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if !name.starts_with(|letter: char| letter.is_ascii_alphabetic()) || !name.chars().all(permitted) {
        return Err(UsageError::ModuleName { name: name.into() }.into());
    }
    let unknown = || UsageError::UnknownAlgorithm { name: spec.algorithm.clone() };
    let kind = ModelKind::of(&spec.algorithm).ok_or_else(unknown)?;
    spec.check(kind).map_err(UsageError::from)?;
    let (graph, exclusive) = match kind {
        ModelKind::MutualExclusion => {
            let algorithm = crate::algorithm::find_with_mutants(&spec.algorithm).ok_or_else(unknown)?;
            let (_, sites) = mutual_exclusion_system(algorithm, spec)?;
            let exclusive = sites.algorithm.sharing() == Sharing::Mutex;
            let net = Net::new(sites);
            (Graph::explore(&mut net.worker(), net.tallies())?, exclusive)
        }
        ModelKind::Registers => {
            let model = registers::model(spec)?;
            (Graph::explore(&mut model.worker(), model.tallies())?, true)
        }
        ModelKind::Election => {
            return Err(UsageError::NotAModule { algorithm: spec.algorithm.clone() }.into());
        }
    };
    Ok(graph.module(spec, name, exclusive))
}

/// The reachable states of a system.
#[derive(Default)]
struct Graph {
    numbers: BTreeMap<Vec<u32>, usize>,
    initial: usize,
    states: Vec<Stand>,
}

/// A state of the graph.
struct Stand {
    row: Vec<u32>,
    inside: Vec<usize>,
    waiting: Vec<usize>,
    /// The number of each successor, and the description of the step.
    successors: Vec<(usize, String)>,
}

impl Graph {
    /// Visits all states, breadth first.
    fn explore<W: Sites>(worker: &mut W, tallies: usize) -> Result<Self, UsageError> {
        let tallies = vec![0; tallies];
        let mut graph = Self::default();
        let mut first = Vec::new();
        worker.start(&mut |state: &[u32]| first.push(state.to_vec()));
        for row in first {
            graph.number(row);
        }
        graph.initial = graph.states.len();
        let mut at = 0;
        while at < graph.states.len() {
            let row = graph.states[at].row.clone();
            let mut steps = Vec::new();
            worker.expand(&row, &tallies, &mut |next| {
                if !next.beyond {
                    steps.push((next.action, next.state.to_vec()));
                }
            });
            for (action, to) in steps {
                let said = worker.describe(&row, &action).join(", ");
                let to = graph.number(to);
                graph.states[at].successors.push((to, said));
            }
            graph.states[at].inside = worker.inside(&row);
            graph.states[at].waiting = worker.waiting_sites(&row);
            if graph.states.len() > MOST_STATES {
                return Err(UsageError::LargeModule { most: MOST_STATES });
            }
            at += 1;
        }
        Ok(graph)
    }

    /// The number of a state. A new one gets the next number.
    fn number(&mut self, row: Vec<u32>) -> usize {
        let next = self.states.len();
        *self.numbers.entry(row.clone()).or_insert_with(|| {
            let (inside, waiting, successors) = Default::default();
            self.states.push(Stand { row, inside, waiting, successors });
            next
        })
    }

    fn module(&self, spec: &CheckSpec, name: &str, exclusive: bool) -> TlaModule {
        let steps = self.states.iter().map(|state| state.successors.len()).sum();
        let mut text = format!("---- MODULE {name} ----\n");
        let _ = writeln!(
            text,
            "\\* The reachable states of {}, {} sites: {} states, {steps} steps.\n\\* Made by: lockkeeper check {} --tla",
            spec.algorithm,
            spec.sites,
            self.states.len(),
            spec.algorithm
        );
        text.push_str("EXTENDS Naturals, Sequences, FiniteSets\n\nVARIABLE state\n\n");
        text.push_str("\\* The successors of each state.\nSucc == <<\n");
        for (index, state) in self.states.iter().enumerate() {
            let successors: Vec<String> =
                state.successors.iter().map(|(to, _)| (to + 1).to_string()).collect();
            let said: Vec<&str> = state.successors.iter().map(|(_, said)| said.as_str()).collect();
            let comma = if index + 1 < self.states.len() { "," } else { "" };
            let _ = writeln!(
                text,
                "  <<{}>>{comma} \\* {}: {}",
                successors.join(", "),
                index + 1,
                plain(&said.join(" | "))
            );
        }
        text.push_str(">>\n\n");
        self.sets(&mut text, "The sites inside in each state.", "Inside", |state| &state.inside);
        self.sets(&mut text, "The sites that wait in each state.", "Waiting", |state| &state.waiting);
        let _ = writeln!(
            text,
            "Init == state \\in 1..{}\nNext == \\E step \\in 1..Len(Succ[state]) : state' = Succ[state][step]\n\
             Spec == Init /\\ [][Next]_state\n",
            self.initial
        );
        text.push_str("TypeOK == state \\in 1..Len(Succ)\n");
        if exclusive {
            text.push_str("MutualExclusion == Cardinality(Inside[state]) <= 1\n");
        }
        text.push_str("NoDeadlock == Waiting[state] = {} \\/ Succ[state] # <<>>\n====\n");
        let exclusion = if exclusive { "INVARIANT MutualExclusion\n" } else { "" };
        let config = format!(
            "SPECIFICATION Spec\nINVARIANT TypeOK\n{exclusion}INVARIANT NoDeadlock\n\
             \\* A run may end when all requests have been served.\nCHECK_DEADLOCK FALSE\n"
        );
        TlaModule { module: text, config, states: self.states.len(), steps }
    }

    /// Writes a tuple with a set of sites for each state.
    fn sets(&self, text: &mut String, what: &str, name: &str, of: impl Fn(&Stand) -> &Vec<usize>) {
        let set = |state: &Stand| {
            let sites: Vec<String> = of(state).iter().map(|site| (site + 1).to_string()).collect();
            format!("{{{}}}", sites.join(", "))
        };
        let sets: Vec<String> = self.states.iter().map(set).collect();
        let lines: Vec<String> = sets.chunks(12).map(|chunk| format!("  {}", chunk.join(", "))).collect();
        let _ = writeln!(text, "\\* {what}\n{name} == <<\n{}\n>>\n", lines.join(",\n"));
    }
}

/// The text in ASCII, which every reader of TLA+ takes.
fn plain(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_ascii() && !letter.is_ascii_control() { letter } else { '?' })
        .collect()
}
