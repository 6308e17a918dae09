//! The cases whose cost the papers and textbooks give, measured: the table of elections over N.

use super::{ElectionSpec, Error, elect};
use crate::spec::{Action, Scripted};
use crate::time::Time;
use lockkeeper_core::election::Case;
use lockkeeper_core::registry::{self, ElectionVisitor};
use lockkeeper_core::{Election, SiteId};
use serde::Serialize;
use std::collections::BTreeMap;

/// One case at one size.
#[derive(Clone, Debug, Serialize)]
pub struct CostRow {
    /// The election's slug.
    pub election: &'static str,
    /// What the case is called.
    pub case: &'static str,
    /// How many sites, dead or not.
    pub sites: usize,
    /// Messages by name, as measured.
    pub measured: BTreeMap<&'static str, u64>,
    /// Messages by name, as the formulas have it.
    pub expected: BTreeMap<&'static str, u64>,
    /// The formula of their sum.
    pub formula: &'static str,
    /// All bytes.
    pub bytes: u64,
    /// From the first message to agreement, in T.
    pub time: Option<f64>,
}

impl CostRow {
    /// All messages.
    pub fn messages(&self) -> u64 {
        self.measured.values().sum()
    }

    /// Whether each kind of message came exactly as often as expected.
    pub fn is_exact(&self) -> bool {
        let nonzero = |counts: &BTreeMap<&'static str, u64>| {
            counts.iter().filter(|(_, n)| **n > 0).map(|(name, n)| (*name, *n)).collect::<Vec<_>>()
        };
        nonzero(&self.measured) == nonzero(&self.expected)
    }
}

/// Every case of an election, or of all of them, at each of these sizes.
pub fn costs(election: Option<&str>, sizes: &[usize]) -> Result<Vec<CostRow>, Error> {
    let mut rows = Vec::new();
    let wanted = registry::ELECTIONS.iter().map(|entry| entry.about.slug);
    for slug in wanted.filter(|slug| election.is_none_or(|wanted| wanted == *slug)) {
        for &sites in sizes {
            let cases = registry::visit_election(slug, Cases(sites)).unwrap_or_default();
            for case in cases {
                rows.push(measure(slug, sites, case)?);
            }
        }
    }
    Ok(rows)
}

struct Cases(usize);

impl ElectionVisitor for Cases {
    type Output = Vec<Case>;

    fn visit<E: Election>(self) -> Vec<Case> {
        E::cases(self.0)
    }
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
