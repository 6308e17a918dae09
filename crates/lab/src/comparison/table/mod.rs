//! A comparison of algorithms: the measured cost of each beside the paper's figures.
//!
//! A [`Sweep`] selects algorithms, numbers of sites and loads. [`Sweep::run`] returns one [`Row`] for each
//! combination, in an order that does not depend on the number of threads.

mod csv;
mod footnotes;
mod html;
pub mod plots;
mod row;
mod state;

pub use footnotes::{Footnote, footnotes};
pub use html::{STYLE, page};
pub use row::{Row, RowFailure, Verdict};
pub use state::{StateSize, measure};

use crate::parallel;
use crate::simulator::delay::Delay;
use crate::simulator::runner::{Error, Progress};
use crate::simulator::spec::{LoadSpec, MOST_SITES, Spec};
use crate::usage::UsageError;
use lockkeeper_core::mutex::Channels;
use lockkeeper_core::{Sharing, registry};
use serde::Serialize;

/// The parameters of a comparison.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The algorithms' slugs.
    pub algorithms: Vec<String>,
    /// The numbers of sites, one table each.
    pub sites: Vec<usize>,
    /// The loads.
    pub loads: Vec<LoadSpec>,
    /// Number of runs of each combination, with successive seeds from 1.
    pub seeds: u64,
    /// The duration of a critical section.
    pub cs: Delay,
    /// Settings; each applies to the algorithms that have it.
    pub settings: Vec<(String, String)>,
    /// The share of readers, for readers-writers algorithms.
    pub readers: f64,
}

impl Sweep {
    /// All algorithms, with the sizes of the finite planes, at low and at high load.
    pub fn all() -> Self {
        Self {
            algorithms: registry::ALL.iter().map(|entry| entry.about.slug.to_string()).collect(),
            sites: vec![3, 7, 13, 31, 57],
            loads: vec![LoadSpec::Low, LoadSpec::High],
            seeds: 5,
            cs: Spec::new("", 1).cs.unwrap_or(Delay::UNIT),
            settings: Vec::new(),
            readers: 0.5,
        }
    }

    /// The runs, ordered by load, number of sites and algorithm.
    pub fn specs(&self) -> Vec<Spec> {
        let mut specs = Vec::new();
        for &load in &self.loads {
            for &sites in &self.sites {
                for algorithm in &self.algorithms {
                    let mut spec = self.spec(algorithm, sites, load);
                    spec.entries = entries(load, sites).div_ceil(self.seeds.max(1));
                    specs.push(in_whole_rounds(spec));
                }
            }
        }
        specs
    }

    /// A run of one algorithm, with the settings that it has.
    fn spec(&self, algorithm: &str, sites: usize, load: LoadSpec) -> Spec {
        let mut spec = Spec { load, cs: Some(self.cs.clone()), ..Spec::new(algorithm, sites) };
        let its_own = self.settings.iter().filter(|(name, _)| takes(algorithm, name));
        spec.settings = its_own.cloned().collect();
        if registry::sharing(algorithm) == Some(Sharing::ReadersWriters) {
            spec.readers = self.readers;
        }
        spec
    }

    /// The total number of entries, for a progress bar.
    pub fn entries(&self) -> u64 {
        if self.check().is_err() {
            return 0;
        }
        let of = |spec: &Spec| spec.warmup().saturating_add(spec.entries).saturating_mul(self.seeds);
        self.specs().iter().map(of).fold(0, u64::saturating_add)
    }

    /// Runs all combinations on all cores.
    pub fn run(&self, progress: &Progress) -> Result<Comparison, Error> {
        self.check()?;
        let specs = self.specs();
        let measure = |index: usize| Row::measure(&specs[index], self.seeds, progress);
        let rows: Vec<Row> =
            parallel::map(specs.len(), &measure).into_iter().collect::<Result<_, Error>>()?;
        Ok(Comparison {
            sites: self.sites.clone(),
            loads: self.loads.iter().map(ToString::to_string).collect(),
            seeds: self.seeds,
            cs: self.cs.to_string(),
            footnotes: footnotes(&rows),
            rows,
        })
    }

    fn check(&self) -> Result<(), UsageError> {
        if self.algorithms.is_empty() || self.sites.is_empty() || self.loads.is_empty() || self.seeds == 0 {
            return Err(UsageError::EmptyComparison);
        }
        if let Some(&sites) = self.sites.iter().find(|&&sites| sites == 0 || sites > MOST_SITES) {
            return Err(UsageError::Sites { sites });
        }
        if matches!(self.cs, Delay::Matrix(_)) {
            return Err(UsageError::MatrixAsDuration);
        }
        if let Some(unknown) = self.algorithms.iter().find(|slug| registry::find(slug).is_none()) {
            return Err(UsageError::UnknownAlgorithm { name: unknown.clone() });
        }
        let in_vain =
            |(name, _): &&(String, String)| !self.algorithms.iter().any(|algorithm| takes(algorithm, name));
        match self.settings.iter().find(in_vain) {
            Some((name, _)) => Err(UsageError::UnusedSetting { name: name.clone() }),
            None => Ok(()),
        }
    }
}

/// Whether an algorithm has a setting of this name.
fn takes(algorithm: &str, setting: &str) -> bool {
    registry::find(algorithm).is_some_and(|entry| entry.about.settings.iter().any(|own| own.name == setting))
}

/// Number of entries that gives a mean over random requesters an accuracy well below 2 %. An entry costs
/// nothing where the token already is, with probability 1/N, so small systems have the largest variance.
fn entries(load: LoadSpec, sites: usize) -> u64 {
    match load {
        LoadSpec::Low => 12_000 + 90_000 / sites as u64,
        LoadSpec::Pairs => 1,
        _ => (20 * sites as u64).max(2_000),
    }
}

/// Rounds the number of entries up to whole rounds of the load, so that all sites enter equally often.
fn in_whole_rounds(mut spec: Spec) -> Spec {
    let sites = spec.sites as u64;
    let round = match spec.load {
        LoadSpec::Pairs => sites.saturating_mul(sites),
        _ => sites,
    };
    spec.entries = spec.entries.div_ceil(round.max(1)).saturating_mul(round.max(1));
    spec
}

/// The result of a [`Sweep`].
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The numbers of sites.
    pub sites: Vec<usize>,
    /// The loads.
    pub loads: Vec<String>,
    /// Number of runs of each combination.
    pub seeds: u64,
    /// The duration of a critical section.
    pub cs: String,
    /// One row for each algorithm, number of sites and load.
    pub rows: Vec<Row>,
    /// Remarks on textbook figures that are wrong or imprecise.
    pub footnotes: Vec<Footnote>,
}

impl Comparison {
    /// The rows of one load and size, in the order of the algorithms.
    pub fn table(&self, load: &str, sites: usize) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.load == load && row.sites == sites)
    }

    /// The slugs, each once, in order.
    pub fn algorithms(&self) -> Vec<&str> {
        let mut slugs: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !slugs.contains(&row.algorithm.as_str()) {
                slugs.push(&row.algorithm);
            }
        }
        slugs
    }

    /// The row of an algorithm.
    pub fn row(&self, algorithm: &str, load: &str, sites: usize) -> Option<&Row> {
        self.table(load, sites).find(|row| row.algorithm == algorithm)
    }

    /// The title of the column with the throughput that the measured SD allows.
    pub fn bound_title(&self) -> &'static str {
        if self.rows.iter().all(|row| row.sharing.capacity() == 1) { "1/(SD+E)" } else { "k/(SD+E)" }
    }

    /// The marks of the footnotes on an algorithm.
    pub fn marks(&self, algorithm: &str) -> String {
        let of_it = self.footnotes.iter().filter(|note| note.algorithms.iter().any(|slug| slug == algorithm));
        of_it.map(|note| superscript(note.number)).collect::<Vec<_>>().join(",")
    }

    /// The rows as CSV.
    pub fn csv(&self) -> String {
        csv::write(&self.rows)
    }
}

fn superscript(number: usize) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    number.to_string().bytes().map(|digit| DIGITS[usize::from(digit - b'0')]).collect()
}

/// A number with at most `digits` decimal places, without trailing zeros.
pub fn number(value: Option<f64>, digits: usize) -> String {
    match value {
        None => "–".into(),
        Some(value) => {
            let text = format!("{value:.digits$}");
            let text =
                if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
            text.into()
        }
    }
}

/// Whether the algorithm needs FIFO channels, as `yes` or `no`.
pub fn fifo_word(channels: Channels) -> &'static str {
    if channels == Channels::Fifo { "yes" } else { "no" }
}
