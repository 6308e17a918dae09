//! The result of a check.

use super::counterexample::Counterexample;
use super::spec::{CheckSpec, ModelKind};
use crate::checker::explore::SearchProgress;
use crate::property::Property;
use serde::ser::SerializeSeq as _;
use serde::{Serialize, Serializer};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// The verdict on a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It holds in every reachable state.
    Holds,
    /// It is violated; see the counterexample.
    Violated,
    /// No violation was found in the part that was searched.
    Unknown,
}

/// The result of a check. The names of the fields are those of its JSON form.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// The name of the algorithm or of the mutant.
    pub algorithm: String,
    /// The kind of the model.
    pub model: ModelKind,
    /// A description of the system: the number of sites, and the options that matter for this model.
    pub system: String,
    /// Number of sites that may request, or of processes that share registers.
    pub sites: usize,
    /// Number of requests of each site. `None`: without limit, or the model has no requests.
    pub requests: Option<u8>,
    /// Whether channels were FIFO. `None`: the model has no channels.
    pub fifo: Option<bool>,
    /// Number of distinct states.
    pub distinct: u64,
    /// Number of generated states; a state counts each time it is generated.
    pub generated: u64,
    /// Length, in states, of the longest shortest run.
    pub depth: u64,
    /// Whether every reachable state was visited, or a violation was found.
    pub complete: bool,
    /// Whether states were not explored because they exceed the bounds that make the search finite.
    pub bounded: bool,
    /// Number of steps that were not followed because their successor exceeds these bounds.
    pub cut: u64,
    /// With partial-order reduction: the average number of states that each visited state represents. Some
    /// states are represented more than once, so this is an upper bound on the factor by which the full
    /// search is larger.
    pub reduction: Option<f64>,
    /// Whether a state represents all that differ from it in the names of the sites and the distances of timestamps. The
    /// maxima below are then those of a larger system, in which clocks advance by any amount.
    pub symmetry: bool,
    /// Memory per state, in bytes.
    pub bytes_per_state: f64,
    /// The checked properties and their verdicts.
    #[serde(serialize_with = "by_name")]
    pub properties: BTreeMap<Property, Verdict>,
    /// The properties that the algorithm's paper does not guarantee for this system. Their violation does not
    /// count as one.
    pub not_guaranteed: BTreeSet<Property>,
    /// Rules that never fired, messages that were never delivered and sites that never entered, of those that
    /// can.
    pub never_fired: Vec<String>,
    /// The maximum number of entries of other sites during one wait. `None` if it is unbounded.
    pub max_bypass: Option<u8>,
    /// The maximum number of messages per entry over all runs in which every request was granted.
    pub max_messages_per_entry: Option<f64>,
    /// The violation, in a sentence.
    pub wrong: Option<String>,
    /// A run that shows the violation. `None` if the budget ended before one was found.
    pub counterexample: Option<Counterexample>,
    /// Runs that show violations of other properties, where the search continues past a violation.
    #[serde(serialize_with = "in_detail")]
    pub more_counterexamples: Vec<Counterexample>,
}

fn in_detail<S: Serializer>(all: &[Counterexample], to: S) -> Result<S::Ok, S::Error> {
    let mut list = to.serialize_seq(Some(all.len()))?;
    for found in all {
        list.serialize_element(&json!({
            "property": found.violation.property,
            "what": found.violation.what,
            "cycle_after": found.cycle_after,
            "story": found.story,
        }))?;
    }
    list.end()
}

pub(super) fn rounded(number: f64) -> f64 {
    (10.0 * number).round() / 10.0
}

fn by_name<S: Serializer>(properties: &BTreeMap<Property, Verdict>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(properties)
}

impl CheckReport {
    /// A report without verdicts.
    pub(crate) fn new(spec: &CheckSpec, model: ModelKind, system: String, progress: SearchProgress) -> Self {
        let checked = model.properties().iter().filter(|property| spec.checks(**property));
        Self {
            algorithm: spec.algorithm.clone(),
            model,
            system,
            sites: spec.sites,
            requests: None,
            fifo: None,
            distinct: progress.distinct,
            generated: progress.generated,
            depth: progress.depth,
            complete: false,
            bounded: false,
            cut: 0,
            reduction: None,
            symmetry: false,
            bytes_per_state: rounded(progress.bytes as f64 / progress.distinct.max(1) as f64),
            properties: checked.map(|property| (*property, Verdict::Unknown)).collect(),
            not_guaranteed: BTreeSet::new(),
            never_fired: Vec::new(),
            max_bypass: None,
            max_messages_per_entry: None,
            wrong: None,
            counterexample: None,
            more_counterexamples: Vec::new(),
        }
    }

    /// Records a violation of a property, and of the properties that it implies.
    pub(super) fn violate(&mut self, found: Property) {
        self.properties.insert(found, Verdict::Violated);
        for (property, verdict) in &mut self.properties {
            if property.is_violated_by(found) {
                *verdict = Verdict::Violated;
            }
        }
    }

    /// Adds a counterexample. The first one of a guaranteed property becomes the report's own.
    pub(crate) fn add(&mut self, found: Counterexample) {
        let property = found.violation.property;
        self.violate(property);
        if self.counterexample.is_none() && !self.not_guaranteed.contains(&property) {
            self.wrong = Some(found.violation.what.clone());
            self.counterexample = Some(found);
        } else {
            self.more_counterexamples.push(found);
        }
    }

    /// Marks the remaining properties as holding, after a search that visited every state.
    pub(crate) fn settle(&mut self) {
        for verdict in self.properties.values_mut().filter(|verdict| **verdict == Verdict::Unknown) {
            *verdict = Verdict::Holds;
        }
    }

    /// The counterexample to a property.
    pub fn counterexample_to(&self, property: Property) -> Option<&Counterexample> {
        let mut all = self.counterexample.iter().chain(&self.more_counterexamples);
        all.find(|found| found.violation.property == property)
    }

    /// Whether every reachable state was visited without a violation of a guaranteed property.
    pub fn is_verified(&self) -> bool {
        self.complete && !self.is_violated()
    }

    /// Whether a guaranteed property is violated.
    pub fn is_violated(&self) -> bool {
        let violated = self.properties.iter().filter(|(_, verdict)| **verdict == Verdict::Violated);
        violated.into_iter().any(|(property, _)| !self.not_guaranteed.contains(property))
    }
}

/// A number with commas as thousands separators.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
