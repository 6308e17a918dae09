//! Failure detectors: which suspicions they raise.

use lockkeeper_core::SiteId;
use lockkeeper_lab::simulator::spec::{Action, DetectorSpec, LoadSpec, Scripted};
use lockkeeper_lab::trace::{EventKind, Record, Sink};
use lockkeeper_lab::{Progress, Spec, Time, trace_run};
use std::io;

/// Records the suspicions: time, site, suspected site.
#[derive(Default)]
struct Suspicions(Vec<(f64, usize, usize)>);

impl Sink for Suspicions {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        if let EventKind::Suspect { suspect } = record.what {
            self.0.push((record.at.as_t(), record.site.number(), suspect.number()));
        }
        Ok(())
    }
    fn finish(&mut self, _end: Time) -> io::Result<()> {
        Ok(())
    }
}

fn suspicions(detector: &str, faults: &[(f64, Action)]) -> Vec<(f64, usize, usize)> {
    let mut spec = Spec::new("token-ring", 3);
    spec.load = LoadSpec::Low;
    spec.entries = 40;
    spec.detector = DetectorSpec::parse(detector).unwrap();
    let scripted =
        |(at, action): &(f64, Action)| Scripted { at: Time::from_t(*at).unwrap(), action: action.clone() };
    spec.script = faults.iter().map(scripted).collect();
    let mut found = Suspicions::default();
    trace_run(&spec, 1, &mut found, &Progress::default()).unwrap();
    found.0
}

const S2: SiteId = SiteId(1);

#[test]
fn no_site_is_suspected_without_a_detector() {
    assert!(suspicions("none", &[(10.0, Action::Crash(S2))]).is_empty());
}

#[test]
fn perfect_detector_suspects_exactly_the_crashed_sites() {
    assert!(suspicions("perfect", &[(10.0, Action::Pause(S2)), (30.0, Action::Resume(S2))]).is_empty());
    let found = suspicions("perfect", &[(10.0, Action::Crash(S2))]);
    assert_eq!(found, [(11.0, 1, 2), (11.0, 3, 2)]);
}

#[test]
fn timeout_detector_suspects_crashed_and_paused_sites() {
    assert!(suspicions("timeout:4", &[]).is_empty());
    let crashed = suspicions("timeout:4", &[(10.0, Action::Crash(S2))]);
    assert_eq!(crashed.iter().map(|(_, by, whom)| (*by, *whom)).collect::<Vec<_>>(), [(1, 2), (3, 2)]);
    assert!(crashed.iter().all(|(at, ..)| (13.0..19.0).contains(at)), "{crashed:?}");
    let paused = suspicions("timeout:4", &[(10.0, Action::Pause(S2)), (20.0, Action::Resume(S2))]);
    assert!(paused.iter().any(|(_, _, whom)| *whom == 2), "a paused site is suspected, wrongly: {paused:?}");
}

#[test]
fn false_suspicions_occur_at_their_rate() {
    let found = suspicions("false:0.5", &[]);
    let time = 40.0 * 2.0; // at least; the run lasts a few T per entry
    assert!(found.len() as f64 > 0.5 * 3.0 * time * 0.5, "{}", found.len());
    assert!(found.iter().all(|(_, by, whom)| by != whom));
}
