//! What a check came to.

use super::counterexample::Counterexample;
use super::net::Net;
use super::search::{Ended, Witness};
use super::seen::Seen;
use super::{Question, Searched};
use crate::property::Property;
use lockkeeper_core::{MutualExclusion, Protocol, Rules, SiteId, Vocabulary};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// What is known of a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It holds in every reachable state.
    Holds,
    /// It does not; see the counterexample.
    Violated,
    /// Nothing was found against it, in what was searched.
    Unknown,
}

/// What a check came to. Its JSON has these names.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The algorithm, or the variant.
    pub algorithm: String,
    /// How many sites may ask.
    pub sites: usize,
    /// How often each does; for ever if nothing is said.
    pub requests: Option<u8>,
    /// Whether channels keep their order.
    pub fifo: bool,
    /// Different states.
    pub distinct: u64,
    /// States generated, each as often as it was.
    pub generated: u64,
    /// How many states the longest of the shortest runs has.
    pub depth: u64,
    /// Whether everything reachable was seen, or enough to find what is wrong.
    pub complete: bool,
    /// Whether something was left alone because it lies beyond bounds that make the search finite.
    pub bounded: bool,
    /// If not every order was tried: how many states each one stands for, on average. Some are stood for more than once, so this is the
    /// most by which the full search can be larger.
    pub reduction: Option<f64>,
    /// Memory for each state.
    pub bytes_per_state: f64,
    /// What must hold.
    #[serde(serialize_with = "by_name")]
    pub properties: BTreeMap<Property, Verdict>,
    /// Rules that never fired and messages that were never delivered, of those that can be; sites that never entered.
    pub never_fired: Vec<String>,
    /// The largest number of others that entered while one waited; nothing where there is no end to it.
    pub max_bypass: Option<u8>,
    /// The most messages per entry of any run in which everybody was served.
    pub max_messages_per_entry: Option<f64>,
    /// What is wrong, in a sentence.
    pub wrong: Option<String>,
    /// How it comes about; nothing if the budget was reached before that was found.
    pub counterexample: Option<Counterexample>,
}

fn rounded(number: f64) -> f64 {
    (10.0 * number).round() / 10.0
}

fn by_name<S: Serializer>(properties: &BTreeMap<Property, Verdict>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(properties)
}

/// What an algorithm promises, and what can happen in it.
pub(super) struct Promised {
    timestamp_order: bool,
    most_messages: Option<usize>,
    rules: Vec<&'static str>,
    words: Vec<&'static str>,
    dormant: &'static [&'static str],
}

impl Promised {
    /// What this algorithm promises in the system that is asked about.
    pub fn by<P: MutualExclusion>(question: &Question, options: &P::Options) -> Self {
        Self {
            timestamp_order: P::in_timestamp_order(),
            // Who starts inside sends without having asked, and faults cost messages of their own.
            most_messages: P::most_messages(question.sites, options)
                .filter(|_| question.holders.is_empty() && question.faults.none()),
            rules: <P as Protocol>::Rule::ALL.iter().map(|rule| rule.sentence()).collect(),
            words: <P as Protocol>::Message::WORDS.iter().map(|word| word.name).collect(),
            dormant: P::dormant(options),
        }
    }

    /// The most messages for each entry, if that is asked about.
    pub fn most_messages(&self, question: &Question) -> Option<u32> {
        let asked = question.only.is_none_or(|only| only == Property::MessageBound);
        self.most_messages.filter(|_| asked).and_then(|most| most.try_into().ok())
    }

    /// The answer to a question, from what a search came to.
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

    /// What never happened, of all that could: a proof about it would say nothing.
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

    /// Nothing was found: what does that say?
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

    /// Whether everything was seen and nothing is wrong.
    pub fn is_verified(&self) -> bool {
        self.complete && !self.is_violated()
    }

    /// Whether something is wrong.
    pub fn is_violated(&self) -> bool {
        self.properties.values().any(|verdict| *verdict == Verdict::Violated)
    }
}
