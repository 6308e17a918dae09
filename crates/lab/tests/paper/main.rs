//! The papers' figures and statements, paraphrased, each with its section.
//!
//! All runs here have a constant message delay of 1 T, so that exact statements of the papers are met
//! exactly.

mod centralized;
mod lamport;
mod lodha_kshemkalyani;
mod maekawa;
mod naimi_trehel;
mod others;
mod raymond;
mod ricart_agrawala;
mod sharing;
mod suzuki_kasami;
mod textbooks;
mod token_ring;

use lockkeeper_lab::simulator::spec::LoadSpec;
use lockkeeper_lab::{Progress, Report, Spec, simulate};

/// The numbers of sites for which the formulas are checked.
const SITES: [usize; 6] = [2, 3, 5, 9, 16, 33];

/// Runs an algorithm and checks that no property was violated.
fn measure(algorithm: &str, sites: usize, load: LoadSpec, settings: &[(&str, &str)]) -> Report {
    let mut spec = Spec::new(algorithm, sites);
    spec.load = load;
    spec.settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    // Whole rounds at high load; at load `pairs`, every ordered pair of requesters once.
    spec.entries = match load {
        LoadSpec::Pairs => (sites * sites) as u64,
        _ => 12 * sites as u64,
    };
    let report = simulate(&spec, 7, 1, &Progress::default()).unwrap();
    assert!(report.held(), "{:?}", report.violations);
    assert_eq!(report.entries, spec.entries);
    report
}

/// Runs an algorithm long enough for its mean to be within two percent.
fn mean(algorithm: &str, sites: usize, load: LoadSpec, settings: &[(&str, &str)]) -> Report {
    let mut spec = Spec::new(algorithm, sites);
    spec.load = load;
    spec.settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    spec.warmup = Some(200 * sites as u64);
    spec.entries = 20_000;
    let report = simulate(&spec, 7, 4, &Progress::default()).unwrap();
    assert!(report.held(), "{:?}", report.violations);
    report
}

/// Equal within two percent, for means over random choices.
fn assert_near(measured: Option<f64>, expected: f64, what: &str) {
    let measured = measured.unwrap_or(f64::NAN);
    assert!((measured / expected - 1.0).abs() < 0.02, "{what}: measured {measured}, expected {expected}");
}

/// N as the formulas use it.
fn n(sites: usize) -> f64 {
    sites as f64
}

/// Equal up to the rounding of one division.
fn assert_equal(measured: Option<f64>, expected: f64, what: &str) {
    let measured = measured.unwrap_or(f64::NAN);
    assert!((measured - expected).abs() < 1e-9, "{what}: measured {measured}, expected {expected}");
}
