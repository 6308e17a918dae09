//! One algorithm, one size, one load: what was measured and what the paper says.

use super::state::{self, StateSize};
use crate::property::Property;
use crate::report::Report;
use crate::runner::{self, Error, Progress};
use crate::spec::Spec;
use lockkeeper_core::mutex::Family;
use lockkeeper_core::{About, Load, Sharing, registry};
use serde::Serialize;
use std::fmt;

/// How a measured figure stands to the paper's formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// The same number.
    #[serde(rename = "exact")]
    Exact,
    /// At most 2 % away: a mean over random requesters.
    #[serde(rename = "within 2 %")]
    Near,
    /// Further away.
    #[serde(rename = "off")]
    Off,
    /// There is no formula for it.
    #[serde(rename = "no formula")]
    NoFormula,
    /// There is nothing to compare: the run deadlocked.
    #[serde(rename = "deadlocks")]
    Deadlocks,
    /// There is nothing to compare: something else did not hold, or the algorithm refuses so many sites.
    #[serde(rename = "fails")]
    Fails,
}

impl Verdict {
    /// Compares a measured figure with a formula's.
    pub fn of(measured: Option<f64>, formula: Option<f64>) -> Self {
        match measured.zip(formula) {
            None => Self::NoFormula,
            Some((measured, formula)) => {
                let off = (measured - formula).abs();
                if off <= 1e-9 * formula.abs().max(1.0) {
                    Self::Exact
                } else if off <= 0.02 * formula.abs() {
                    Self::Near
                } else {
                    Self::Off
                }
            }
        }
    }

    /// A mark for a narrow column.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Exact => "=",
            Self::Near => "≈",
            Self::Off => "≠",
            Self::NoFormula => "",
            Self::Deadlocks | Self::Fails => "✗",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::Near => "within 2 %",
            Self::Off => "off",
            Self::NoFormula => "–",
            Self::Deadlocks => "deadlocks",
            Self::Fails => "fails",
        })
    }
}

/// Why a row has no figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// What happened, in a sentence.
    pub what: String,
    /// How to see it again.
    pub reproduce: String,
}

/// One algorithm, one size, one load. Times are in T.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The slug.
    pub algorithm: String,
    /// How it keeps sites apart.
    pub family: Family,
    /// Who may be inside together.
    pub sharing: Sharing,
    /// The share of requests that are to share.
    pub readers: f64,
    /// How many sites.
    pub sites: usize,
    /// The load.
    pub load: String,
    /// Entries measured.
    pub entries: u64,
    /// Messages per entry.
    pub messages_per_entry: Option<f64>,
    /// Half the width of its 95 % confidence interval.
    pub messages_per_entry_ci95: Option<f64>,
    /// The paper's formula.
    pub formula: &'static str,
    /// Its value for so many sites.
    pub formula_value: Option<f64>,
    /// How the two stand to each other.
    pub verdict: Verdict,
    /// Messages that ask for or give the right to enter.
    pub to_enter: Option<f64>,
    /// Messages that only tell of an exit.
    pub on_exit: Option<f64>,
    /// Messages per T while nobody wants anything.
    pub idle_messages: f64,
    /// Bytes per entry.
    pub bytes_per_entry: Option<f64>,
    /// Synchronization delay.
    pub sync_delay: Option<f64>,
    /// What the paper says about it.
    pub sync_delay_formula: Option<f64>,
    /// Client delay.
    pub client_delay: Option<f64>,
    /// What the paper says about it.
    pub client_delay_formula: Option<f64>,
    /// Entries per T.
    pub throughput: Option<f64>,
    /// The most sites inside at once.
    pub max_inside: usize,
    /// k/(SD+E), with the measured SD, where k may be inside at once; none where readers share.
    pub throughput_bound: Option<f64>,
    /// Jain's index.
    pub jain: Option<f64>,
    /// The most entries of others during one site's wait.
    pub max_bypass: u64,
    /// Entries out of timestamp order.
    pub timestamp_inversions: u64,
    /// Entries out of causal order.
    pub causal_inversions: Option<u64>,
    /// Messages sent or received per entry by the busiest process.
    pub busiest_site: Option<f64>,
    /// The same on average.
    pub mean_site: Option<f64>,
    /// What a site remembers.
    pub state_bytes: Option<StateSize>,
    /// Whether channels must keep order.
    pub fifo_needed: bool,
    /// What a crash does.
    pub crash: &'static str,
    /// Why there are no figures.
    pub trouble: Option<Trouble>,
}

impl Row {
    /// Runs a spec with seeds from 1 and compares.
    pub fn measure(spec: &Spec, seeds: u64, progress: &Progress) -> Result<Self, Error> {
        let entry = registry::find(&spec.algorithm)
            .ok_or_else(|| Error::Usage(format!("there is no algorithm '{}'", spec.algorithm)))?;
        let mut row = Self::empty(spec, entry.about);
        match runner::simulate(spec, 1, seeds, progress) {
            Ok(report) => {
                row.fill(&report);
                row.state_bytes = state::measure(&small(spec), 1, progress)?;
                Ok(row)
            }
            // A size for which the algorithm has no form is a fact about it, not a reason to stop.
            Err(Error::Usage(what)) => {
                row.verdict = Verdict::Fails;
                row.trouble = Some(Trouble { what, reproduce: spec.command(1) });
                Ok(row)
            }
            Err(error) => Err(error),
        }
    }

    fn empty(spec: &Spec, about: &'static About) -> Self {
        Self {
            algorithm: spec.algorithm.clone(),
            family: about.family,
            sharing: registry::sharing(&spec.algorithm).unwrap_or_default(),
            readers: spec.readers,
            sites: spec.sites,
            load: spec.load.to_string(),
            entries: 0,
            messages_per_entry: None,
            messages_per_entry_ci95: None,
            formula: match spec.load.of_the_papers() {
                Some(Load::Low) => about.cost.low,
                Some(Load::High) => about.cost.high,
                None => "–",
            },
            formula_value: None,
            verdict: Verdict::NoFormula,
            to_enter: None,
            on_exit: None,
            idle_messages: 0.0,
            bytes_per_entry: None,
            sync_delay: None,
            sync_delay_formula: None,
            client_delay: None,
            client_delay_formula: None,
            throughput: None,
            max_inside: 0,
            throughput_bound: None,
            jain: None,
            max_bypass: 0,
            timestamp_inversions: 0,
            causal_inversions: None,
            busiest_site: None,
            mean_site: None,
            state_bytes: None,
            fifo_needed: about.channels == lockkeeper_core::mutex::Channels::Fifo,
            crash: about.crash,
            trouble: None,
        }
    }

    fn fill(&mut self, report: &Report) {
        if let Some(found) = report.violations.first() {
            let deadlock = found.violation.property == Property::NoDeadlock;
            self.verdict = if deadlock { Verdict::Deadlocks } else { Verdict::Fails };
            self.trouble =
                Some(Trouble { what: found.violation.to_string(), reproduce: found.reproduce.clone() });
            return;
        }
        let expected = &report.expected;
        self.sharing = report.sharing;
        self.max_inside = report.max_inside;
        self.entries = report.entries;
        self.messages_per_entry = report.messages_per_entry;
        self.messages_per_entry_ci95 = report.messages_per_entry_ci95;
        self.formula_value = expected.messages_per_entry;
        self.verdict = Verdict::of(report.messages_per_entry, expected.messages_per_entry);
        self.to_enter = report.to_enter;
        self.on_exit = report.on_exit;
        self.idle_messages = report.idle_messages;
        self.bytes_per_entry = report.bytes_per_entry;
        self.sync_delay = report.sync_delay.mean;
        self.sync_delay_formula = expected.sync_delay;
        self.client_delay = report.client_delay.mean;
        self.client_delay_formula = expected.client_delay;
        self.throughput = report.throughput;
        self.throughput_bound = report.throughput_bound;
        self.jain = report.fairness.jain;
        self.max_bypass = report.fairness.max_bypass;
        self.timestamp_inversions = report.fairness.timestamp_inversions;
        self.causal_inversions = report.fairness.causal_inversions;
        self.busiest_site = report.site_load.max;
        self.mean_site = report.site_load.mean;
    }
}

/// A short run of the same kind: looking at every site after every entry is dear.
fn small(spec: &Spec) -> Spec {
    Spec { entries: 3 * spec.sites.min(100) as u64, ..spec.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_say_how_near() {
        let of = |measured, formula| Verdict::of(Some(measured), Some(formula));
        assert_eq!(of(16.0, 16.0), Verdict::Exact);
        assert_eq!(of(2.666_666_666_666_666_5, 8.0 / 3.0), Verdict::Exact, "but for rounding");
        assert_eq!(of(16.3, 16.0), Verdict::Near);
        assert_eq!(of(16.4, 16.0), Verdict::Off);
        assert_eq!(of(0.0, 0.0), Verdict::Exact, "a site alone");
        assert_eq!(of(0.1, 0.0), Verdict::Off);
        assert_eq!(Verdict::of(Some(1.0), None), Verdict::NoFormula);
    }
}
