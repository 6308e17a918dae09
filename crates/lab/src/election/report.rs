//! The report of simulated elections.

use super::ElectionSpec;
use super::algorithm::ElectionAlgorithm;
use crate::algorithm::Message;
use crate::property::Property;
use crate::simulator::time::Time;
use lockkeeper_core::SiteId;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Number of messages, by type.
    pub by_kind: Vec<u64>,
    /// Total size of the messages, in bytes.
    pub bytes: u64,
    /// The sites that became leader, each with the time.
    pub announced: Vec<Announced>,
    /// The elections: from the first message without agreement until agreement.
    pub elections: Vec<ElectionDuration>,
    /// The leader at the end, if all sites agree.
    pub leader: Option<SiteId>,
    /// The state of each site at the end.
    pub outcome: Vec<Outcome>,
    /// The violations.
    pub violations: Vec<Violation>,
    /// Number of events.
    pub events: u64,
    /// The duration, in virtual time.
    pub end: Time,
}

impl Run {
    pub(super) fn new(sites: usize, kinds: usize) -> Self {
        let outcome = |site| Outcome { site, up: true, leader: None, since: None };
        Self {
            by_kind: vec![0; kinds],
            bytes: 0,
            announced: Vec::new(),
            elections: Vec::new(),
            leader: None,
            outcome: SiteId::all(sites).map(outcome).collect(),
            violations: Vec::new(),
            events: 0,
            end: Time::ZERO,
        }
    }

    pub(super) fn count(&mut self, message: &Message) {
        self.by_kind[message.kind()] += 1;
        self.bytes += message.bytes();
    }

    /// The duration of the last election.
    pub fn time_to_agreement(&self) -> Option<Time> {
        self.elections.last().filter(|_| self.leader.is_some()).map(|took| took.to - took.from)
    }
}

/// A site became leader.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Announced {
    /// The time.
    pub at: Time,
    /// The site.
    #[serde(serialize_with = "number")]
    pub site: SiteId,
}

/// The duration of an election.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ElectionDuration {
    /// The time of the first message sent without agreement.
    pub from: Time,
    /// The time of agreement.
    pub to: Time,
}

/// The state of a site at the end.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Outcome {
    /// The site.
    #[serde(serialize_with = "number")]
    pub site: SiteId,
    /// Whether it is up.
    pub up: bool,
    /// The leader that it knows.
    #[serde(serialize_with = "maybe_number")]
    pub leader: Option<SiteId>,
    /// The time at which it last learned a leader.
    pub since: Option<Time>,
}

/// A violation of a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The violated property.
    pub property: Property,
    /// The time of the violation.
    pub at: Time,
    /// A sentence that describes it.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} T: {}", self.property.violation_name(), self.at, self.what)
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
    /// The settings that were given.
    pub settings: BTreeMap<String, String>,
    /// Number of sites.
    pub sites: usize,
    /// The first seed.
    pub seed: u64,
    /// Number of runs, with successive seeds.
    pub seeds: u64,
    /// Number of messages of all runs.
    pub messages: u64,
    /// Number of messages, by the paper's name.
    pub by_message: BTreeMap<&'static str, u64>,
    /// Total size of the messages, in bytes.
    pub bytes: u64,
    /// The duration of the last election of a run, in T: the mean over the runs that ended in agreement.
    pub time_to_agreement: Option<f64>,
    /// The leaders at the end, each with the number of runs in which all sites agreed on it.
    pub leaders: BTreeMap<String, u64>,
    /// The verdicts on the properties.
    pub properties: Properties,
    /// In the first run: the sites that became leader, each with the time.
    pub announced: Vec<Announced>,
    /// In the first run: the elections.
    pub elections: Vec<ElectionDuration>,
    /// In the first run: the state of each site at the end.
    pub outcome: Vec<Outcome>,
    /// The violations, each with the command that reproduces it.
    pub violations: Vec<Found>,
    /// Number of events of all runs.
    pub events: u64,
    /// Virtual duration of all runs.
    pub virtual_time: Time,
}

/// The verdicts on the properties, over all runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Properties {
    /// `held`, `violated`, or `not claimed` where any site may win.
    pub highest_leads: &'static str,
    /// `held`, `violated`, or `not claimed` where only the highest site may win.
    pub one_leader: &'static str,
    /// `held` or `violated`.
    pub agreement: &'static str,
    /// `held` or `violated`.
    pub termination: &'static str,
}

/// A violation, with its seed and the command that reproduces it.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// The seed of the run.
    pub seed: u64,
    /// The violation.
    #[serde(flatten)]
    pub violation: Violation,
    /// The command that reproduces it.
    pub reproduce: String,
}

impl Report {
    pub(super) fn new(
        spec: &ElectionSpec,
        seed: u64,
        election: &dyn ElectionAlgorithm,
        runs: Vec<Run>,
    ) -> Self {
        let kinds = election.kinds();
        let unclaimed = super::model::unclaimed(election.about().winner);
        let sum = |of: fn(&Run) -> u64| runs.iter().map(of).sum();
        let by_kind = |kind: usize| runs.iter().map(|run| run.by_kind[kind]).sum::<u64>();
        let held = |property| {
            let broke =
                runs.iter().flat_map(|run| &run.violations).any(|violation| violation.property == property);
            if broke { "violated" } else { "held" }
        };
        let claimed = |property| if property == unclaimed { "not claimed" } else { held(property) };
        let times: Vec<f64> = runs.iter().filter_map(Run::time_to_agreement).map(Time::as_t).collect();
        let mut leaders = BTreeMap::new();
        for leader in runs.iter().filter_map(|run| run.leader) {
            *leaders.entry(leader.to_string()).or_default() += 1;
        }
        let found = |(run, seed): (&Run, u64)| {
            let of = |violation: &Violation| Found {
                seed,
                violation: violation.clone(),
                reproduce: spec.command(seed),
            };
            run.violations.iter().map(of).collect::<Vec<_>>()
        };
        let first = runs.first();
        Self {
            election: spec.system.algorithm.clone(),
            settings: spec.system.settings.iter().cloned().collect(),
            sites: spec.system.sites,
            seed,
            seeds: runs.len() as u64,
            messages: sum(|run| run.by_kind.iter().sum()),
            by_message: kinds.iter().enumerate().map(|(at, kind)| (kind.name, by_kind(at))).collect(),
            bytes: sum(|run| run.bytes),
            time_to_agreement: (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64),
            leaders,
            properties: Properties {
                highest_leads: claimed(Property::HighestLeads),
                one_leader: claimed(Property::OneLeader),
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

    /// Whether no property was violated.
    pub fn held(&self) -> bool {
        self.violations.is_empty()
    }
}
