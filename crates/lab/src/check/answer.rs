//! The result of a check.

use super::counterexample::Counterexample;
use super::net::Net;
use super::search::{Ended, Witness};
use super::seen::Seen;
use super::{Question, Searched};
use crate::property::Property;
use lockkeeper_core::{MutualExclusion, Protocol, Rules, SiteId, Vocabulary};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

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
pub struct Answer {
    /// The name of the algorithm or of the mutant.
    pub algorithm: String,
    /// Number of sites that may request.
    pub sites: usize,
    /// Number of requests of each site. `None`: without limit.
    pub requests: Option<u8>,
    /// Whether channels were FIFO.
    pub fifo: bool,
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
    /// With partial-order reduction: the average number of states that each visited state represents. Some
    /// states are represented more than once, so this is an upper bound on the factor by which the full
    /// search is larger.
    pub reduction: Option<f64>,
    /// Memory per state, in bytes.
    pub bytes_per_state: f64,
    /// The checked properties and their verdicts.
    #[serde(serialize_with = "by_name")]
    pub properties: BTreeMap<Property, Verdict>,
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
}

fn rounded(number: f64) -> f64 {
    (10.0 * number).round() / 10.0
}

fn by_name<S: Serializer>(properties: &BTreeMap<Property, Verdict>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(properties)
}

/// The guarantees of an algorithm, and its rules and messages.
pub(super) struct Promised {
    timestamp_order: bool,
    most_messages: Option<usize>,
    rules: Vec<&'static str>,
    words: Vec<&'static str>,
    dormant: &'static [&'static str],
}

impl Promised {
    /// The guarantees of algorithm `P` in the system of the question.
    pub fn by<P: MutualExclusion>(question: &Question, options: &P::Options) -> Self {
        Self {
            timestamp_order: P::in_timestamp_order(),
            // A site that starts inside sends without a request, and faults cost messages of their own.
            most_messages: P::most_messages(question.sites, options)
                .filter(|_| question.holders.is_empty() && question.faults.none()),
            rules: <P as Protocol>::Rule::ALL.iter().map(|rule| rule.sentence()).collect(),
            words: <P as Protocol>::Message::WORDS.iter().map(|word| word.name).collect(),
            dormant: P::dormant(options),
        }
    }

    /// The bound on messages per entry, if it is checked.
    pub fn most_messages(&self, question: &Question) -> Option<u32> {
        let asked = question.only.is_none_or(|only| only == Property::MessageBound);
        self.most_messages.filter(|_| asked).and_then(|most| most.try_into().ok())
    }

    /// The answer to a question, from the result of a search.
    pub fn answer(&self, question: &Question, net: &Net, searched: &Searched) -> Answer {
        let mut answer = Answer::new(self, question, net, searched);
        answer.complete = !matches!(searched.ended, Ended::Stopped);
        answer.bounded = searched.bounded;
        let (breach, run, circle) = match (&searched.ended, &searched.lasso) {
            (Ended::Wrong(Witness { breach, run }), _) => (breach.clone(), run.as_deref(), [].as_slice()),
            (_, Some(lasso)) => (lasso.breach(), Some(lasso.stem.as_slice()), lasso.circle.as_slice()),
            _ => {
                answer.judge(self, question, searched);
                return answer;
            }
        };
        answer.properties.insert(breach.property, Verdict::Violated);
        for (property, verdict) in &mut answer.properties {
            if property.is_violated_by(breach.property) {
                *verdict = Verdict::Violated;
            }
        }
        answer.wrong = Some(breach.what.clone());
        answer.counterexample = run.map(|run| Counterexample::new(question, net, breach, run, circle));
        answer
    }

    /// Rules, messages and entries that never occurred although they can. A property was not tested where
    /// they matter.
    fn never(&self, question: &Question, seen: &Seen) -> Vec<String> {
        let missing = |names: &[&'static str], bits: u128| -> Vec<&'static str> {
            let names = names.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 0);
            names.map(|(_, name)| *name).filter(|name| !self.dormant.contains(name)).collect()
        };
        let sites = (0..question.sites).filter(|who| seen.entered >> who & 1 == 0);
        let entered = sites.map(|who| format!("{} enters", SiteId::new(who)));
        let words =
            missing(&self.words, seen.words.into()).into_iter().map(|word| format!("{word} is delivered"));
        let rules = missing(&self.rules, seen.rules).into_iter().map(|rule| format!("a site {rule}"));
        entered.chain(words).chain(rules).collect()
    }
}

impl Answer {
    fn new(promised: &Promised, question: &Question, net: &Net, searched: &Searched) -> Self {
        let Searched { seen, sofar, .. } = searched;
        let mut properties: BTreeMap<Property, Verdict> = [
            Property::MutualExclusion,
            Property::NoDeadlock,
            Property::NoStarvation,
            Property::FenceMonotone,
            Property::Invariant,
        ]
        .map(|property| (property, Verdict::Unknown))
        .into();
        if let Some(only) = question.only {
            properties.retain(|property, _| *property == only);
        }
        if promised.timestamp_order && question.only.is_none_or(|only| only == Property::TimestampOrder) {
            properties.insert(Property::TimestampOrder, Verdict::Unknown);
        }
        if promised.most_messages(question).is_some() {
            properties.insert(Property::MessageBound, Verdict::Unknown);
        }
        Self {
            algorithm: question.algorithm.clone(),
            sites: question.sites,
            requests: question.requests,
            fifo: net.kernel.traits().fifo,
            distinct: sofar.distinct,
            generated: sofar.generated,
            depth: sofar.depth,
            complete: false,
            bounded: false,
            reduction: net.reduced.then(|| rounded(seen.stood_for / seen.expanded.max(1) as f64)),
            bytes_per_state: rounded(sofar.bytes as f64 / sofar.distinct.max(1) as f64),
            properties,
            never_fired: Vec::new(),
            max_bypass: (seen.max_bypass < u8::MAX).then_some(seen.max_bypass),
            max_messages_per_entry: seen
                .dearest
                .filter(|(messages, _)| *messages < u8::MAX)
                .map(|(messages, entries)| f64::from(messages) / f64::from(entries)),
            wrong: None,
            counterexample: None,
        }
    }

    /// Sets the verdicts after a search that found no violation.
    fn judge(&mut self, promised: &Promised, question: &Question, searched: &Searched) {
        self.never_fired = promised.never(question, &searched.seen);
        if !self.complete {
            return;
        }
        let bound = promised.most_messages;
        for (property, verdict) in &mut self.properties {
            *verdict = match property {
                Property::NoStarvation if !searched.looked_for_starvation => Verdict::Unknown,
                Property::MessageBound => match (self.max_messages_per_entry, bound) {
                    (Some(most), Some(bound)) if most > bound as f64 => Verdict::Violated,
                    (Some(_), _) => Verdict::Holds,
                    (None, _) => Verdict::Unknown,
                },
                _ => Verdict::Holds,
            };
        }
    }

    /// Whether every reachable state was visited without a violation.
    pub fn is_verified(&self) -> bool {
        self.complete && !self.is_violated()
    }

    /// Whether a property is violated.
    pub fn is_violated(&self) -> bool {
        self.properties.values().any(|verdict| *verdict == Verdict::Violated)
    }
}
