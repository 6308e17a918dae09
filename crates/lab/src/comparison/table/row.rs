//! One row of a comparison: the measurements of an algorithm with one number of sites and one load, and the
//! paper's figures.

use super::number;
use super::state::{self, StateSize};
use crate::property::Property;
use crate::simulator::report::Report;
use crate::simulator::runner::{self, Error, Progress};
use crate::simulator::spec::Spec;
use crate::usage::UsageError;
use lockkeeper_core::mutex::Family;
use lockkeeper_core::{About, Load, Sharing, registry};
use serde::Serialize;
use std::fmt;

/// The relation of a measured value to the paper's formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// They are equal.
    #[serde(rename = "exact")]
    Exact,
    /// They differ by at most 2 %: a mean over random requesters.
    #[serde(rename = "within 2 %")]
    Near,
    /// They differ by more than 2 %.
    #[serde(rename = "off")]
    Off,
    /// There is no formula.
    #[serde(rename = "no formula")]
    NoFormula,
    /// There is no value: the run deadlocked.
    #[serde(rename = "deadlocks")]
    Deadlocks,
    /// There is no value: another property was violated, or the algorithm does not support this number of
    /// sites.
    #[serde(rename = "fails")]
    Fails,
}

impl Verdict {
    /// Compares a measured value with that of a formula.
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

/// The reason why a row has no values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowFailure {
    /// A sentence that describes the problem.
    pub what: String,
    /// The command that reproduces it.
    pub reproduce: String,
}

/// The row of one algorithm, number of sites and load. Times are in T.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The slug of the algorithm.
    pub algorithm: String,
    /// The family of the algorithm.
    pub family: Family,
    /// The modes that may be inside together.
    pub sharing: Sharing,
    /// The share of requests that are shared.
    pub readers: f64,
    /// Number of sites.
    pub sites: usize,
    /// The load.
    pub load: String,
    /// Number of measured entries.
    pub entries: u64,
    /// Messages per entry.
    pub messages_per_entry: Option<f64>,
    /// Half the width of its 95 % confidence interval.
    pub messages_per_entry_ci95: Option<f64>,
    /// The paper's formula.
    pub formula: &'static str,
    /// Its value for this number of sites.
    pub formula_value: Option<f64>,
    /// The relation of the measured value to the formula.
    pub verdict: Verdict,
    /// Messages per entry that request or grant the right to enter.
    pub to_enter: Option<f64>,
    /// Messages per entry that only report an exit.
    pub on_exit: Option<f64>,
    /// Messages per T while no site waits or is inside.
    pub idle_messages: f64,
    /// Bytes per entry.
    pub bytes_per_entry: Option<f64>,
    /// Synchronization delay.
    pub sync_delay: Option<f64>,
    /// The paper's value of it.
    pub sync_delay_formula: Option<f64>,
    /// The least and the largest value of it, where the paper gives no single value.
    pub sync_delay_range: Option<(f64, f64)>,
    /// Client delay.
    pub client_delay: Option<f64>,
    /// The paper's value of it.
    pub client_delay_formula: Option<f64>,
    /// Entries per T.
    pub throughput: Option<f64>,
    /// The maximum number of sites inside at once.
    pub max_inside: usize,
    /// k/(SD+E) with the measured SD, where k sites may be inside at once. `None` if there are readers.
    pub throughput_bound: Option<f64>,
    /// Jain's index.
    pub jain: Option<f64>,
    /// The maximum number of entries of others during one wait.
    pub max_bypass: u64,
    /// Entries out of timestamp order.
    pub timestamp_inversions: u64,
    /// Entries out of causal order.
    pub causal_inversions: Option<u64>,
    /// Messages sent or received per entry by the busiest process.
    pub busiest_site: Option<f64>,
    /// The mean of the same over all processes.
    pub mean_site: Option<f64>,
    /// The size of a site's state.
    pub state_bytes: Option<StateSize>,
    /// Whether the algorithm needs FIFO channels.
    pub fifo_needed: bool,
    /// The effect of a crash.
    pub crash: &'static str,
    /// The reason why there are no values.
    pub trouble: Option<RowFailure>,
}

impl Row {
    /// Runs a spec with seeds from 1 and compares the measurements with the formulas.
    pub fn measure(spec: &Spec, seeds: u64, progress: &Progress) -> Result<Self, Error> {
        let entry = registry::find(&spec.algorithm)
            .ok_or_else(|| UsageError::UnknownAlgorithm { name: spec.algorithm.clone() })?;
        let mut row = Self::empty(spec, entry.about);
        match runner::simulate(spec, 1, seeds, progress) {
            Ok(report) => {
                row.fill(&report);
                row.state_bytes = state::measure(&small(spec), 1, progress)?;
                Ok(row)
            }
            // An unsupported number of sites is a result of the comparison and does not end it.
            Err(Error::Usage(error)) => {
                row.verdict = Verdict::Fails;
                row.trouble = Some(RowFailure { what: error.to_string(), reproduce: spec.command(1) });
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
            sync_delay_range: None,
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
                Some(RowFailure { what: found.violation.to_string(), reproduce: found.reproduce.clone() });
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
        self.sync_delay_range = expected.sync_delay_range;
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

impl Row {
    /// The paper's synchronization delay as a text: a number, or a range such as `1–2`.
    pub fn stated_sync_delay(&self) -> String {
        match (self.sync_delay_formula, self.sync_delay_range) {
            (None, Some((least, most))) => format!("{}–{}", number(Some(least), 3), number(Some(most), 3)),
            (value, _) => number(value, 3),
        }
    }
}

/// A short run of the same kind: inspecting every site after every entry is expensive.
fn small(spec: &Spec) -> Spec {
    Spec { entries: 3 * spec.sites.min(100) as u64, ..spec.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_depends_on_the_relative_difference() {
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
