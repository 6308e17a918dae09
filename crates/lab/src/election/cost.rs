//! The cost of elections over N, measured in the cases for which papers and textbooks give figures.

use super::{ElectionSpec, Error, algorithm, elect};
use crate::simulator::spec::{Action, Scripted};
use crate::simulator::time::Time;
use lockkeeper_core::election::Case;
use lockkeeper_core::{SiteId, registry};
use serde::Serialize;
use std::collections::BTreeMap;

/// The cost of one case with one number of sites.
#[derive(Clone, Debug, Serialize)]
pub struct CostRow {
    /// The election's slug.
    pub election: &'static str,
    /// The name of the case.
    pub case: &'static str,
    /// Number of sites, crashed ones included.
    pub sites: usize,
    /// Number of measured messages, by name.
    pub measured: BTreeMap<&'static str, u64>,
    /// Number of messages according to the formulas, by name.
    pub expected: BTreeMap<&'static str, u64>,
    /// The formula of their sum.
    pub formula: &'static str,
    /// Total size of the messages, in bytes.
    pub bytes: u64,
    /// The time from the first message to agreement, in T.
    pub time: Option<f64>,
}

impl CostRow {
    /// Number of all messages.
    pub fn messages(&self) -> u64 {
        self.measured.values().sum()
    }

    /// Whether the number of messages of each type is exactly the expected one.
    pub fn is_exact(&self) -> bool {
        let nonzero = |counts: &BTreeMap<&'static str, u64>| {
            counts.iter().filter(|(_, n)| **n > 0).map(|(name, n)| (*name, *n)).collect::<Vec<_>>()
        };
        nonzero(&self.measured) == nonzero(&self.expected)
    }
}

/// The costs of all cases of one election, or of all elections, with each of these numbers of sites.
pub fn costs(election: Option<&str>, sizes: &[usize]) -> Result<Vec<CostRow>, Error> {
    let mut rows = Vec::new();
    let wanted = registry::ELECTIONS.iter().map(|entry| entry.about.slug);
    for slug in wanted.filter(|slug| election.is_none_or(|wanted| wanted == *slug)) {
        let algorithm = algorithm::find(slug).expect("every entry of the registry is an election");
        for &sites in sizes {
            for case in algorithm.cases(sites) {
                rows.push(measure(slug, sites, case)?);
            }
        }
    }
    Ok(rows)
}

fn measure(election: &'static str, sites: usize, case: Case) -> Result<CostRow, Error> {
    let mut spec = ElectionSpec::new(election, sites);
    let noticed = Time::UNIT;
    spec.initiators = case.initiators.iter().map(|&site| (site, noticed)).collect();
    if case.leader_is_dead {
        spec.system.script.push(Scripted { at: Time::ZERO, action: Action::Crash(SiteId::new(sites - 1)) });
    }
    let report = elect(&spec, 1, 1)?;
    Ok(CostRow {
        election,
        case: case.name,
        sites,
        measured: report.by_message,
        expected: case.messages.into_iter().collect(),
        formula: case.formula,
        bytes: report.bytes,
        time: report.time_to_agreement,
    })
}
