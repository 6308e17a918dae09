//! What a check came to.

use super::Question;
use super::counterexample::Counterexample;
use super::machine::{Breach, Machines};
use super::mutex::Sites;
use super::net::Seen;
use super::search::Sofar;
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
    /// The share of states in which not every step was tried, if commuting steps were not all tried.
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
    /// What is wrong, and how it comes about.
    pub counterexample: Option<Counterexample>,
}

fn by_name<S: Serializer>(properties: &BTreeMap<Property, Verdict>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(properties)
}

impl Answer {
    pub(super) fn new<P: MutualExclusion>(
        question: &Question,
        sites: &Sites<P>,
        seen: &Seen,
        sofar: Sofar,
    ) -> Self {
        let mut properties: BTreeMap<Property, Verdict> = [
            Property::MutualExclusion,
            Property::NoDeadlock,
            Property::NoStarvation,
            Property::FenceMonotone,
            Property::Invariant,
        ]
        .map(|property| (property, Verdict::Unknown))
        .into();
        if P::in_timestamp_order() {
            properties.insert(Property::TimestampOrder, Verdict::Unknown);
        }
        if P::most_messages(question.sites, &sites.setup.options).is_some() {
            properties.insert(Property::MessageBound, Verdict::Unknown);
        }
        Self {
            algorithm: question.algorithm.clone(),
            sites: question.sites,
            requests: question.requests,
            fifo: sites.fifo,
            distinct: sofar.distinct,
            generated: sofar.generated,
            depth: sofar.depth,
            complete: false,
            bounded: false,
            reduction: (seen.reduced > 0).then(|| seen.reduced as f64 / seen.expanded as f64),
            bytes_per_state: (10.0 * sofar.bytes as f64 / sofar.distinct.max(1) as f64).round() / 10.0,
            properties,
            never_fired: Vec::new(),
            max_bypass: (seen.max_bypass < u8::MAX).then_some(seen.max_bypass),
            max_messages_per_entry: seen
                .dearest
                .filter(|(messages, _)| *messages < u8::MAX)
                .map(|(messages, entries)| f64::from(messages) / f64::from(entries)),
            counterexample: None,
        }
    }

    pub(super) fn violated(&mut self, breach: &Breach) {
        self.properties.insert(breach.property, Verdict::Violated);
    }

    /// Nothing was found: what does that say?
    pub(super) fn judge<P: MutualExclusion>(
        &mut self,
        sites: &Sites<P>,
        seen: &Seen,
        starvation_known: bool,
    ) {
        self.never_fired = never::<P>(sites, seen);
        if !self.complete {
            return;
        }
        let bound = P::most_messages(self.sites, &sites.setup.options);
        for (property, verdict) in &mut self.properties {
            *verdict = match property {
                Property::NoStarvation if !starvation_known => Verdict::Unknown,
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

/// What never happened, of all that could: a proof about it would say nothing.
fn never<P: MutualExclusion>(sites: &Sites<P>, seen: &Seen) -> Vec<String> {
    let dormant = P::dormant(&sites.setup.options);
    let rules = <P as Protocol>::Rule::ALL.iter();
    let rules = rules
        .filter(|rule| seen.rules >> rule.index() & 1 == 0)
        .map(|rule| rule.sentence())
        .filter(|sentence| !dormant.contains(sentence))
        .map(|sentence| format!("a site {sentence}"));
    let words = <P as Protocol>::Message::WORDS.iter().enumerate();
    let words = words
        .filter(|(index, word)| seen.words >> index & 1 == 0 && !dormant.contains(&word.name))
        .map(|(_, word)| format!("{} is delivered", word.name));
    let entered = (0..sites.setup.sites)
        .filter(|who| seen.entered >> who & 1 == 0 && *who < sites.machines())
        .map(|who| format!("{} enters", SiteId::new(who)));
    entered.chain(words).chain(rules).collect()
}
