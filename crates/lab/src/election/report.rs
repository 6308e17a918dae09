//! What elections told.

use super::ElectionSpec;
use super::electorate::Property;
use crate::observer::encoded_size;
use crate::time::Time;
use lockkeeper_core::{SiteId, Vocabulary, Word};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// What came of one run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Messages, by kind.
    pub by_word: Vec<u64>,
    /// Their bytes.
    pub bytes: u64,
    /// Who came to lead, and when.
    pub announced: Vec<Announced>,
    /// From the first message without agreement until agreement, each time.
    pub elections: Vec<Took>,
    /// Whom everybody agrees on in the end.
    pub leader: Option<SiteId>,
    /// What each site believes in the end.
    pub outcome: Vec<Outcome>,
    /// What did not hold.
    pub breaches: Vec<Breach>,
    /// How many events there were.
    pub events: u64,
    /// How long it took, in virtual time.
    pub end: Time,
}

impl Run {
    pub(super) fn new(sites: usize, words: usize) -> Self {
        let outcome = |site| Outcome { site, up: true, leader: None, since: None };
        Self {
            by_word: vec![0; words],
            bytes: 0,
            announced: Vec::new(),
            elections: Vec::new(),
            leader: None,
            outcome: SiteId::all(sites).map(outcome).collect(),
            breaches: Vec::new(),
            events: 0,
            end: Time::ZERO,
        }
    }

    pub(super) fn count<M: Vocabulary + Serialize>(&mut self, message: &M) {
        self.by_word[message.word()] += 1;
        self.bytes += encoded_size(message);
    }

    /// How long the last election took.
    pub fn time_to_agreement(&self) -> Option<Time> {
        self.elections.last().filter(|_| self.leader.is_some()).map(|took| took.to - took.from)
    }
}

/// A site came to lead.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Announced {
    /// When.
    pub at: Time,
    /// Who.
    #[serde(serialize_with = "number")]
    pub site: SiteId,
}

/// An election took so long.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Took {
    /// From the first message sent without agreement.
    pub from: Time,
    /// Until agreement.
    pub to: Time,
}

/// What a site believes in the end.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Outcome {
    /// Which site.
    #[serde(serialize_with = "number")]
    pub site: SiteId,
    /// Whether it is up.
    pub up: bool,
    /// Whom it takes for the leader.
    #[serde(serialize_with = "maybe_number")]
    pub leader: Option<SiteId>,
    /// When it was last told.
    pub since: Option<Time>,
}

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Breach {
    /// Which.
    pub property: Property,
    /// When it broke.
    pub at: Time,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} T: {}", self.property, self.at, self.what)
    }
}

fn number<S: Serializer>(site: &SiteId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(site.number() as u64)
}

fn maybe_number<S: Serializer>(site: &Option<SiteId>, serializer: S) -> Result<S::Ok, S::Error> {
    site.map(SiteId::number).serialize(serializer)
}

/// The report of one election, or of several that differ by their seed.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The election's slug.
    pub election: String,
    /// Its settings, where any were given.
    pub settings: BTreeMap<String, String>,
    /// How many sites there were.
    pub sites: usize,
    /// The first seed.
    pub seed: u64,
    /// How many runs, with successive seeds.
    pub seeds: u64,
    /// Messages of all runs.
    pub messages: u64,
    /// By the paper's name.
    pub by_message: BTreeMap<&'static str, u64>,
    /// Their bytes.
    pub bytes: u64,
    /// How long the last election of a run took, in T, on average over the runs that ended in agreement.
    pub time_to_agreement: Option<f64>,
    /// Whom everybody agreed on in the end, and in how many runs.
    pub leaders: BTreeMap<String, u64>,
    /// What held.
    pub properties: Properties,
    /// Of the first run: who came to lead, and when.
    pub announced: Vec<Announced>,
    /// Of the first run: when there was no agreement and messages flowed.
    pub elections: Vec<Took>,
    /// Of the first run: what each site believed in the end.
    pub outcome: Vec<Outcome>,
    /// What did not hold, and how to see it again.
    pub violations: Vec<Found>,
    /// Events of all runs.
    pub events: u64,
    /// Virtual time of all runs.
    pub virtual_time: Time,
}

/// What held, in all runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Properties {
    /// `held` or `violated`.
    pub highest_leads: &'static str,
    /// `held` or `violated`.
    pub agreement: &'static str,
    /// `held` or `violated`.
    pub termination: &'static str,
}

/// A breach, with the seed that shows it and the command that shows it again.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The seed of the run.
    pub seed: u64,
    /// What happened.
    #[serde(flatten)]
    pub breach: Breach,
    /// How to see it again.
    pub reproduce: String,
}

impl Report {
    pub(super) fn new(spec: &ElectionSpec, seed: u64, words: &[Word], runs: Vec<Run>) -> Self {
        let sum = |of: fn(&Run) -> u64| runs.iter().map(of).sum();
        let by_word = |word: usize| runs.iter().map(|run| run.by_word[word]).sum::<u64>();
        let held = |property| {
            let broke = runs.iter().flat_map(|run| &run.breaches).any(|breach| breach.property == property);
            if broke { "violated" } else { "held" }
        };
        let times: Vec<f64> = runs.iter().filter_map(Run::time_to_agreement).map(Time::as_t).collect();
        let mut leaders = BTreeMap::new();
        for leader in runs.iter().filter_map(|run| run.leader) {
            *leaders.entry(leader.to_string()).or_default() += 1;
        }
        let found = |(run, seed): (&Run, u64)| {
            let of = |breach: &Breach| Found { seed, breach: breach.clone(), reproduce: spec.command(seed) };
            run.breaches.iter().map(of).collect::<Vec<_>>()
        };
        let first = runs.first();
        Self {
            election: spec.system.algorithm.clone(),
            settings: spec.system.settings.iter().cloned().collect(),
            sites: spec.system.sites,
            seed,
            seeds: runs.len() as u64,
            messages: sum(|run| run.by_word.iter().sum()),
            by_message: words.iter().enumerate().map(|(at, word)| (word.name, by_word(at))).collect(),
            bytes: sum(|run| run.bytes),
            time_to_agreement: (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64),
            leaders,
            properties: Properties {
                highest_leads: held(Property::HighestLeads),
                agreement: held(Property::Agreement),
                termination: held(Property::Termination),
            },
            announced: first.map(|run| run.announced.clone()).unwrap_or_default(),
            elections: first.map(|run| run.elections.clone()).unwrap_or_default(),
            outcome: first.map(|run| run.outcome.clone()).unwrap_or_default(),
            violations: runs.iter().zip(seed..).flat_map(found).collect(),
            events: sum(|run| run.events),
            virtual_time: runs.iter().fold(Time::ZERO, |sum, run| sum + run.end),
        }
    }

    /// Whether everything held.
    pub fn held(&self) -> bool {
        self.violations.is_empty()
    }
}
