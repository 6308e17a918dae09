//! Statements of the textbooks on all algorithms, and on their failures.

use super::{LoadSpec, SITES, assert_equal, measure};
use lockkeeper_core::{SiteId, registry};
use lockkeeper_lab::property::Property;
use lockkeeper_lab::simulator::delay::Delay;
use lockkeeper_lab::simulator::network::Partition;
use lockkeeper_lab::simulator::spec::{Action, Scripted};
use lockkeeper_lab::{Progress, Report, Scenario, Spec, Time, simulate};

/// A system of one site grants at once, without a message.
#[test]
fn single_site_enters_at_once() {
    for entry in registry::ALL {
        for load in [LoadSpec::Low, LoadSpec::High, LoadSpec::Burst] {
            // A separate coordinator is a second process, and must be asked.

            let among = [("coordinator", "1")];
            let centralized = entry.about.slug.starts_with("centralized");
            let settings: &[(&str, &str)] = if centralized { &among } else { &[] };
            let report = measure(entry.about.slug, 1, load, settings);
            assert_equal(report.messages_per_entry, 0.0, entry.about.slug);
            assert_equal(report.waiting.max, 0.0, entry.about.slug);
        }
    }
}

/// Throughput at high load is 1/(SD+E), for every duration of the critical section.
#[test]
fn throughput_is_the_inverse_of_delay_and_section() {
    for entry in registry::ALL.iter().filter(|entry| entry.about.deadlock_free) {
        for cs in ["0", "0.5", "3"] {
            let mut spec = Spec::new(entry.about.slug, 6);
            spec.entries = 60;
            spec.cs = Some(Delay::parse(cs).unwrap());
            let report = simulate(&spec, 1, 1, &Progress::default()).unwrap();
            // The delay of the gate depends on which sites have shared before.
            let Some(bound) = report.throughput_bound else {
                assert_eq!(entry.about.slug, "gate");
                continue;
            };
            assert_equal(report.throughput, bound, entry.about.slug);
        }
    }
}

/// The figures of the registry equal the measurements.
#[test]
fn figures_of_the_registry_equal_the_measurements() {
    let mut compared = 0;
    // The cost of path reversal depends on the whole history; its mean is tested separately.
    let exact =
        |slug| !["naimi-trehel", "roucairol-carvalho", "maekawa-basic", "maekawa-1985"].contains(&slug);
    for entry in registry::ALL.iter().filter(|entry| exact(entry.about.slug)) {
        for sites in SITES {
            for load in [LoadSpec::Pairs, LoadSpec::High] {
                let report = measure(entry.about.slug, sites, load, &[]);
                let beside = [
                    (report.messages_per_entry, report.expected.messages_per_entry),
                    (report.sync_delay.mean, report.expected.sync_delay),
                    (
                        report.expected.sync_delay_range.zip(report.sync_delay.mean).map(in_range),
                        report.expected.sync_delay_range.map(|_| 1.0),
                    ),
                    // The cost of a perpetual token is a mean over random times.
                    (
                        report.client_delay.mean.filter(|_| !entry.about.perpetual),
                        report.expected.client_delay,
                    ),
                ];
                let both = beside.into_iter().filter_map(|(measured, expected)| measured.zip(expected));
                for (measured, expected) in both {
                    assert_equal(Some(measured), expected, entry.about.slug);
                    compared += 1;
                }
            }
        }
    }
    // Messages at both loads, client delay at low load, synchronization delay at high load; the rings have
    // fewer figures.
    assert!(compared >= 4 * 3 * SITES.len(), "{compared}");
}

/// 1 if the value is in the range, else 0.
fn in_range(((least, most), value): ((f64, f64), f64)) -> f64 {
    f64::from(u8::from((least - 1e-9..=most + 1e-9).contains(&value)))
}

fn broken(report: &Report, property: Property) -> Option<&str> {
    let found = report.violations.iter().find(|found| found.violation.property == property)?;
    Some(&found.violation.what)
}

fn run(spec: &Spec) -> Report {
    simulate(spec, 1, 1, &Progress::default()).unwrap()
}

fn figure(name: &str) -> Report {
    run(&Scenario::open(name).unwrap().spec)
}

/// A crash of the holder, of the coordinator, or of any process in a permission algorithm: all sites wait.
#[test]
fn crash_deadlocks_the_algorithm_and_the_report_names_waiters_and_awaited_sites() {
    let cases = [
        ("holder-crashes", "S2 waits for C; C waits for S1 (crashed)"),
        ("coordinator-crashes", "S2 waits for C (crashed)"),
        ("ricart-agrawala-crash", "S1 waits for S3 (crashed); S2 waits for S1, S3 (crashed)"),
        ("token-lost", "the token is lost"),
        ("quorum-holder-crashes", "S1 waits for S2 (crashed)"),
    ];
    for (name, expected) in cases {
        let report = figure(name);
        let what =
            broken(&report, Property::NoDeadlock).unwrap_or_else(|| panic!("{name} must end in a deadlock"));
        assert!(what.contains(expected), "{name}: {what}");
    }
}

/// The same under load: one crash blocks all sites, unless no other site needs the crashed one.
#[test]
fn crash_under_load_blocks_all_sites_that_need_the_crashed_one() {
    for (algorithm, victim) in [
        ("lamport", 2),
        ("ricart-agrawala", 2),
        ("token-ring", 2),
        ("centralized", 4), // the separate coordinator
    ] {
        let mut spec = Spec::new(algorithm, 4);
        spec.script =
            vec![Scripted { at: Time::from_t(20.0).unwrap(), action: Action::Crash(SiteId(victim)) }];
        let report = run(&spec);
        assert!(broken(&report, Property::NoDeadlock).is_some(), "{algorithm}");
        assert!(broken(&report, Property::MutualExclusion).is_none(), "{algorithm} stays safe");
    }
    // At low load the coordinator does not need a crashed site that is not inside.
    let mut spec = Spec::new("centralized", 4);
    spec.load = LoadSpec::Low;
    spec.cs = Some(Delay::parse("0").unwrap());
    spec.script = vec![Scripted { at: Time::ZERO, action: Action::Crash(SiteId(1)) }];
    let report = run(&spec);
    assert!(report.held() && report.entries == 1000);
}

/// A partition, even a temporary one, loses messages whose delivery the papers assume.
#[test]
fn partition_deadlocks_the_permission_algorithms() {
    for algorithm in ["lamport", "ricart-agrawala"] {
        for groups in ["1,2|3,4@20..40", "1>2@20..40"] {
            let mut spec = Spec::new(algorithm, 4);
            spec.network.partitions = vec![Partition::parse(groups, 4).unwrap()];
            let report = run(&spec);
            let what = broken(&report, Property::NoDeadlock).expect("all sites wait");
            assert!(what.contains("waits for"), "{what}");
            assert!(broken(&report, Property::MutualExclusion).is_none(), "{algorithm} stays safe");
        }
    }
}

/// A pause is not a crash: all sites wait for its end, and continue.
#[test]
fn pause_costs_only_time() {
    for entry in registry::ALL.iter().filter(|entry| entry.about.deadlock_free) {
        let mut spec = Spec::new(entry.about.slug, 4);
        spec.entries = 200;
        let calm = run(&spec);
        spec.script = vec![
            Scripted { at: Time::from_t(20.0).unwrap(), action: Action::Pause(SiteId(1)) },
            Scripted { at: Time::from_t(70.0).unwrap(), action: Action::Resume(SiteId(1)) },
        ];
        let paused = run(&spec);
        assert!(paused.held(), "{}: {:?}", entry.about.slug, paused.violations);
        assert!(
            paused.virtual_time > calm.virtual_time + Time::from_t(20.0).unwrap(),
            "{}",
            entry.about.slug
        );
    }
}

/// A coordinator that restarts with an initial state has forgotten the holder, and grants to a second site.
#[test]
fn coordinator_that_restarts_without_its_state_violates_mutual_exclusion() {
    let mut spec = Spec::new("centralized", 4);
    spec.cs = Some(Delay::parse("3").unwrap());
    spec.load = LoadSpec::Poisson(0.03);
    let at = |t: f64| Time::from_t(t).unwrap();
    spec.script = vec![
        Scripted { at: at(50.0), action: Action::Crash(SiteId(4)) },
        Scripted { at: at(50.1), action: Action::Recover(SiteId(4)) },
    ];
    let found = (1..50).any(|seed| {
        let report = simulate(&spec, seed, 1, &Progress::default()).unwrap();
        broken(&report, Property::MutualExclusion).is_some()
    });
    assert!(found);
}

/// If messages take processing time at their receiver, the coordinator is the bottleneck: it processes three
/// messages per entry for every N, while the sites of the ring share the work.
#[test]
fn coordinator_is_the_bottleneck_when_messages_take_processing_time() {
    let throughput = |algorithm: &str, service: f64| {
        let mut spec = Spec::new(algorithm, 16);
        spec.entries = 480;
        spec.network.delay = Delay::parse("constant:0.01").unwrap();
        spec.cs = Some(Delay::parse("0").unwrap());
        spec.network.service = Time::from_t(service).unwrap();
        run(&spec).throughput.unwrap()
    };
    // Two messages arrive at the coordinator for each entry, one after the other.
    let coordinator = throughput("centralized", 0.1);
    assert!(coordinator <= 1.0 / 0.2 + 1e-9, "{coordinator}");
    assert!(throughput("token-ring", 0.1) > coordinator * 1.5);
    assert!(throughput("centralized", 0.0) > coordinator * 5.0);
}
