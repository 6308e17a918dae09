//! The coordinator that fails over: a crash at every step of a run, and the limits of the algorithm.

use lockkeeper_core::algorithms::centralized_failover::CentralizedFailover;
use lockkeeper_core::settings::Settings;
use lockkeeper_core::{Holder, MutualExclusion, SiteId};
use lockkeeper_lab::algorithm::{self, Algorithm};
use lockkeeper_lab::mutants;
use lockkeeper_lab::property::{Property, Violation};
use lockkeeper_lab::simulator::delay::Delay;
use lockkeeper_lab::simulator::run::{Outcome, Sim};
use lockkeeper_lab::simulator::spec::{Action, DetectorSpec, Scripted};
use lockkeeper_lab::trace::{Record, Sink};
use lockkeeper_lab::{Progress, Spec, Time, simulate, trace_run};
use std::collections::BTreeSet;
use std::io;

/// The configuration of a system, and the process that crashes.
#[derive(Clone, Copy, Debug)]
struct System {
    election: &'static str,
    coordinator: &'static str,
    victim: SiteId,
    /// The time between the victim's crash and its recovery.
    back_after: Option<f64>,
}

const FAILOVER: &dyn Algorithm = algorithm::of::<CentralizedFailover>();
const SITES: usize = 4;
const ENTRIES: u64 = 16;

impl System {
    fn spec(&self, crash: Option<Time>) -> Spec {
        let mut spec = Spec::new(CentralizedFailover::ABOUT.slug, SITES);
        spec.settings =
            vec![("election".into(), self.election.into()), ("coordinator".into(), self.coordinator.into())];
        spec.entries = ENTRIES;
        spec.warmup = Some(0);
        // The maximum delay with which a reply arrives within the election's timeout.
        spec.network.delay = Delay::parse("uniform:0.5..1.4").unwrap();
        spec.cs = Some(Delay::parse("uniform:0.1..2").unwrap());
        spec.detector = DetectorSpec::Perfect;
        if let Some(at) = crash {
            spec.script.push(Scripted { at, action: Action::Crash(self.victim) });
            if let Some(back) = self.back_after {
                let at = at + Time::from_t(back).unwrap();
                spec.script.push(Scripted { at, action: Action::Recover(self.victim) });
            }
        }
        spec
    }

    fn run(&self, algorithm: &dyn Algorithm, crash: Option<Time>, seed: u64) -> Outcome {
        let mut settings = Settings::new(self.spec(None).settings);
        let configured = algorithm.configure(&mut settings, SITES).unwrap();
        Sim::new(&self.spec(crash), &*configured, seed, None).run(|_| true).0
    }

    /// The time of every event of a run without a crash, and an instant later.
    fn moments(&self, seed: u64) -> BTreeSet<Time> {
        let mut times = Times::default();
        trace_run(&self.spec(None), seed, &mut times, &Progress::default()).unwrap();
        times.0.iter().flat_map(|&at| [at, at + Time::from_ticks(1)]).collect()
    }

    /// Crashes the victim at every step of a run. Returns the violations of the first run that has any, and
    /// how often each rule fired.
    fn crash_everywhere(&self, algorithm: &dyn Algorithm, seed: u64) -> (Vec<Violation>, Vec<u64>) {
        let mut fired = vec![0; algorithm.rules().len()];
        for at in self.moments(seed) {
            let outcome = self.run(algorithm, Some(at), seed);
            if !outcome.violations.is_empty() {
                return (outcome.violations, fired);
            }
            assert!(outcome.measures.counts.entries >= ENTRIES, "{}", self.spec(Some(at)).command(seed));
            fired.iter_mut().zip(&outcome.rules).for_each(|(sum, n)| *sum += n);
        }
        (Vec::new(), fired)
    }
}

#[derive(Default)]
struct Times(BTreeSet<Time>);

impl Sink for Times {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.0.insert(record.at);
        Ok(())
    }
    fn finish(&mut self, _end: Time) -> io::Result<()> {
        Ok(())
    }
}

/// Every combination of election and coordinator, with the coordinator as the victim, which recovers never,
/// soon or late.
fn systems() -> Vec<System> {
    let mut systems = Vec::new();
    for election in ["bully", "ring"] {
        for (coordinator, victim) in [("apart", SITES), ("4", 3), ("1", 0)] {
            for back_after in [None, Some(0.3), Some(7.0), Some(25.0)] {
                systems.push(System { election, coordinator, victim: SiteId::new(victim), back_after });
            }
        }
    }
    systems
}

#[test]
fn crash_of_the_coordinator_at_any_step_loses_no_request() {
    let mut fired = vec![0; FAILOVER.rules().len()];
    for system in systems() {
        for seed in 1..4 {
            let (violations, rules) = system.crash_everywhere(FAILOVER, seed);
            assert!(violations.is_empty(), "{system:?}, seed {seed}: {violations:?}");
            fired.iter_mut().zip(rules).for_each(|(sum, n)| *sum += n);
        }
    }
    let never = FAILOVER.rules().into_iter().zip(&fired).filter(|(_, n)| **n == 0);
    let never: Vec<&str> = never.map(|(rule, _)| rule).collect();
    assert!(never.is_empty(), "never {never:?}");
}

/// The holder or a waiter crashes: with a detector, the other sites continue.
#[test]
fn crash_of_any_site_at_any_step_does_not_block_the_others() {
    for election in ["bully", "ring"] {
        for (victim, back_after) in [(0, None), (2, None), (0, Some(0.3)), (2, Some(9.0))] {
            let system = System { election, coordinator: "apart", victim: SiteId::new(victim), back_after };
            let (violations, _) = system.crash_everywhere(FAILOVER, 1);
            assert!(violations.is_empty(), "{system:?}: {violations:?}");
        }
    }
}

/// Without failures the cost is that of the plain coordinator.
#[test]
fn cost_without_crashes_is_that_of_the_plain_coordinator() {
    for sites in [1, 2, 5, 16] {
        for settings in [vec![], vec![("coordinator".to_string(), "1".to_string())]] {
            let report = |algorithm| {
                let mut spec = Spec::new(algorithm, sites);
                spec.settings = settings.clone();
                spec.detector = DetectorSpec::Perfect;
                simulate(&spec, 7, 1, &Progress::default()).unwrap()
            };
            let (plain, failover) = (report("centralized"), report("centralized-failover"));
            assert!(failover.held());
            assert_eq!(plain.messages_per_entry, failover.messages_per_entry);
            assert_eq!(plain.sync_delay.mean, failover.sync_delay.mean);
        }
    }
}

fn broken(spec: &Spec) -> bool {
    simulate(spec, 1, 1, &Progress::default()).unwrap().properties.mutual_exclusion == "violated"
}

/// The limit of the algorithm: a coordinator that is slow and has not crashed. It is inside; the others elect
/// a new one, which needs no majority. They cannot ask the old one, and grant to a second site.
#[test]
fn slow_coordinator_that_is_suspected_leads_to_two_holders() {
    for election in ["bully", "ring"] {
        let mut spec = Spec::new("centralized-failover", 3);
        spec.settings = vec![("coordinator".into(), "3".into()), ("election".into(), election.into())];
        spec.cs = Some(Delay::parse("5").unwrap());
        spec.holders = vec![Holder::exclusive(SiteId(2))];
        spec.detector = DetectorSpec::parse("timeout:4").unwrap();
        assert!(!broken(&spec), "{election}: no site is slow");
        spec.script = vec![
            Scripted { at: Time::UNIT, action: Action::Pause(SiteId(2)) },
            Scripted { at: Time::from_t(60.0).unwrap(), action: Action::Resume(SiteId(2)) },
        ];
        assert!(broken(&spec), "{election}");
        spec.detector = DetectorSpec::Perfect;
        assert!(!broken(&spec), "{election}: a perfect detector is enough");
    }
}

/// The same with a partition: the holder and the coordinator on one side, the others on the other.
#[test]
fn partition_leads_to_two_holders() {
    let mut spec = Spec::new("centralized-failover", 4);
    spec.detector = DetectorSpec::parse("timeout:4").unwrap();
    spec.cs = Some(Delay::parse("50").unwrap());
    spec.holders = vec![Holder::exclusive(SiteId(0))];
    spec.network.partitions =
        vec![lockkeeper_lab::simulator::network::Partition::parse("1,5|2,3,4@1..40", 5).unwrap()];
    assert!(broken(&spec));
}

/// The twin passes the same runs in the first test of this file.
#[test]
fn every_failover_mutant_is_caught() {
    for mutant in mutants::failover::ALL {
        let broken: BTreeSet<Property> = systems()
            .iter()
            .flat_map(|system| system.crash_everywhere(mutant.algorithm, 1).0)
            .map(|violation| violation.property)
            .collect();
        assert!(broken.contains(&mutant.breaks), "{} broke {broken:?} only", mutant.name);
    }
}
