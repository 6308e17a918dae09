//! The conformance test of an algorithm: one call runs many random systems, loads and networks, and checks
//! every property.
//!
//! ```
//! use lockkeeper_core::algorithms::ricart_agrawala::RicartAgrawala;
//!
//! lockkeeper_lab::conformance::<RicartAgrawala>();
//! ```
//!
//! A failure prints the end of the run's trace and the number of the case. Setting `LOCKKEEPER_CASE` to that
//! number runs that case alone.

use crate::algorithm::{self, Configured};
use crate::property::{Names, Violation};
use crate::simulator::delay::Delay;
use crate::simulator::rng::{Purpose, Rng};
use crate::simulator::run::{Outcome, Sim};
use crate::simulator::spec::{Action, DetectorSpec, LoadSpec, MessageSelector, Scripted, Spec};
use crate::simulator::time::Time;
use crate::trace::{Story, Tracer};
use lockkeeper_core::mutex::Channels;
use lockkeeper_core::{Holder, Mode, MutualExclusion, Sharing, SiteId};
use std::fmt;
use std::ops::Range;

/// Number of cases that [`conformance`] runs.
const CASES: u64 = 300;
/// Number of trace lines that a failure prints.
const LAST_LINES: usize = 30;

/// Tests an algorithm with its default options; panics with a description of the first failure.
pub fn conformance<P: MutualExclusion>() {
    conformance_with::<P>(&P::Options::default());
}

/// Tests an algorithm with the given options; panics with a description of the first failure.
pub fn conformance_with<P: MutualExclusion>(options: &P::Options) {
    conforms(&*algorithm::with::<P>(options.clone()));
}

fn conforms(algorithm: &dyn Configured) {
    let alone = std::env::var("LOCKKEEPER_CASE").ok().and_then(|case| case.parse::<u64>().ok());
    let cases = alone.map_or(0..CASES, |case| case..case + 1);
    let coverage = check(algorithm, cases).unwrap_or_else(|failure| panic!("{failure}"));
    if alone.is_none() {
        let never = coverage.never(algorithm);
        assert!(
            never.is_empty(),
            "in {CASES} cases of {} there was never {}",
            algorithm.algorithm().about().slug,
            never.join(", nor ")
        );
    }
}

/// Counts of entries, deliveries and rules.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Number of entries.
    pub entries: u64,
    /// Number of deliveries, by message type.
    pub delivered: Vec<u64>,
    /// Number of firings, by rule.
    pub rules: Vec<u64>,
}

impl Coverage {
    fn add(&mut self, outcome: &Outcome) {
        fn add(into: &mut Vec<u64>, from: &[u64]) {
            into.resize(from.len(), 0);
            for (into, from) in into.iter_mut().zip(from) {
                *into += from;
            }
        }
        self.entries += outcome.measures.counts.entries;
        add(&mut self.delivered, &outcome.delivered);
        add(&mut self.rules, &outcome.rules);
    }

    /// The rules and message types that never occurred although they can: the test does not cover them.
    pub fn never(&self, algorithm: &dyn Configured) -> Vec<String> {
        let (unreachable, algorithm) = (algorithm.unreachable_labels(), algorithm.algorithm());
        let kinds = algorithm.kinds().iter().map(|kind| kind.name).zip(&self.delivered);
        let rules = algorithm.rules().into_iter().zip(&self.rules);
        let never = kinds.chain(rules).filter(|(what, n)| **n == 0 && !unreachable.contains(what));
        never.map(|(what, _)| format!("'{what}'")).collect()
    }
}

/// A case in which a property was violated.
#[derive(Debug)]
pub struct Failure {
    /// The number of the case.
    pub case: u64,
    /// The violations.
    pub violations: Vec<Violation>,
    /// The command that runs the case, if the algorithm is in the registry.
    pub command: String,
    /// The last lines of the run's trace.
    pub story: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        writeln!(f, "the last lines of the run:")?;
        for line in &self.story {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "run this case alone with LOCKKEEPER_CASE={}", self.case)?;
        write!(f, "or, for an algorithm of the registry: {}", self.command)
    }
}

/// Runs the given cases; stops at the first failure.
pub fn check(algorithm: &dyn Configured, cases: Range<u64>) -> Result<Coverage, Box<Failure>> {
    let mut coverage = Coverage::default();
    for case in cases {
        let spec = spec_of(algorithm, case);
        let (outcome, _) = Sim::new(&spec, algorithm, case, None).run(|_| true);
        if !outcome.violations.is_empty() {
            return Err(Box::new(failure(&spec, algorithm, case, outcome.violations)));
        }
        coverage.add(&outcome);
    }
    Ok(coverage)
}

fn failure(spec: &Spec, algorithm: &dyn Configured, case: u64, violations: Vec<Violation>) -> Failure {
    let mut story = Story::default();
    let tracer = Tracer::new(&mut story, Names { sites: spec.sites }, spec.sites + algorithm.helpers());
    let (_, _) = Sim::new(spec, algorithm, case, Some(tracer)).run(|_| true);
    let skipped = story.lines.len().saturating_sub(LAST_LINES);
    let story = story.lines.iter().skip(skipped).map(|(at, line)| format!("{at} T  {line}")).collect();
    Failure { case, violations, command: spec.command(case), story }
}

/// The system of a case. Most are small, because conflicts are frequent there.
pub fn spec_of(algorithm: &dyn Configured, case: u64) -> Spec {
    let (sharing, algorithm) = (algorithm.sharing(), algorithm.algorithm());
    let mut rng = Rng::new(case, Purpose::Conformance);
    let sites = match rng.below(10) {
        0..7 => 1 + rng.below(6),
        7..9 => 7 + rng.below(10),
        _ => 17 + rng.below(24),
    };
    let t = |t: f64| Time::from_t(t).unwrap_or(Time::UNIT);
    let mut spec = Spec::new(algorithm.about().slug, sites);
    spec.load = *rng.pick(&[
        LoadSpec::Low,
        LoadSpec::High,
        LoadSpec::High,
        LoadSpec::Burst,
        LoadSpec::Poisson(0.02),
        LoadSpec::Poisson(0.3),
    ]);
    // Long enough for a starving site to exceed the bypass bound.
    spec.entries = 20 * sites as u64 + 150;
    spec.warmup = Some(0);
    let delays = [
        Delay::UNIT,
        Delay::Uniform(t(0.1), t(1.9)),
        Delay::Uniform(t(0.9), t(1.1)),
        Delay::Exponential(t(1.0)),
        Delay::LogNormal { mean: t(1.0), sigma: 1.5 },
    ];
    spec.network.delay = rng.pick(&delays).clone();
    spec.network.fifo = algorithm.about().channels == Channels::Fifo || rng.chance(0.5);
    spec.cs = Some(
        rng.pick(&[Delay::Constant(t(0.0)), Delay::Constant(t(0.1)), Delay::Exponential(t(1.0))]).clone(),
    );
    if rng.chance(0.2) {
        spec.network.service = t(0.05);
    }
    let holder = rng.chance(0.3).then(|| SiteId::new(rng.below(sites)));
    spec.holders = holder.into_iter().map(Holder::exclusive).collect();
    share(&mut spec, sharing, &mut rng);
    if algorithm.survives_crashes() && rng.chance(0.8) {
        add_crashes(&mut spec, &mut rng);
    }
    if algorithm.survives_a_loss() && rng.chance(0.8) {
        add_loss(&mut spec, &mut rng);
    }
    spec
}

/// Makes some requests shared and adds holders at the start, as far as the lock's sharing allows it.
fn share(spec: &mut Spec, sharing: Sharing, rng: &mut Rng) {
    if sharing.knows(Mode::Shared) {
        spec.readers = *rng.pick(&[0.0, 0.2, 0.5, 0.8, 0.95, 1.0]);
        if rng.chance(0.5) {
            spec.holders.iter_mut().for_each(|holder| holder.mode = Mode::Shared);
        }
    }
    let Some(&first) = spec.holders.first() else { return };
    let mut site = first.site;
    while rng.chance(0.6) {
        site = site.next_on_ring(spec.sites);
        spec.holders.push(Holder { site, ..first });
        if sharing.check(&spec.holders).is_err() {
            spec.holders.pop();
            return;
        }
    }
}

/// Loses the first message that a random site sends to the next one on the ring after a random time.
fn add_loss(spec: &mut Spec, rng: &mut Rng) {
    let from = SiteId::new(rng.below(spec.sites));
    let which = MessageSelector { from, to: from.next_on_ring(spec.sites), name: None };
    let at = Time::from_milli_t(rng.below(60_000) as u64);
    spec.script.push(Scripted { at, action: Action::Lose(which) });
}

/// Lets sites crash and recover, all but one: some stay down, some recover soon, some crash repeatedly.
fn add_crashes(spec: &mut Spec, rng: &mut Rng) {
    spec.detector = DetectorSpec::Perfect;
    let survivor = SiteId::new(rng.below(spec.sites));
    let until = |rng: &mut Rng, t: u64| Time::from_milli_t(rng.below(1000 * t as usize) as u64);
    for site in SiteId::all(spec.sites).filter(|&site| site != survivor) {
        let mut at = until(rng, 60);
        while rng.chance(0.6) {
            spec.script.push(Scripted { at, action: Action::Crash(site) });
            if rng.chance(0.4) {
                break;
            }
            let away = *rng.pick(&[1, 5, 30]);
            at += until(rng, away);
            spec.script.push(Scripted { at, action: Action::Recover(site) });
            at += until(rng, 40);
        }
    }
    spec.script.sort_by_key(|scripted| scripted.at);
}
