//! What the textbooks say of all of them, and of their failures.

use super::{LoadSpec, SITES, assert_equal, measure};
use lockkeeper_core::{SiteId, registry};
use lockkeeper_lab::delay::Delay;
use lockkeeper_lab::network::Partition;
use lockkeeper_lab::property::Property;
use lockkeeper_lab::spec::{Action, Scripted};
use lockkeeper_lab::{Progress, Report, Scenario, Spec, Time, simulate};

/// A system of one site lets it in at once, without a message.
#[test]
fn a_site_alone_enters_at_once() {
    for entry in registry::ALL {
        for load in [LoadSpec::Low, LoadSpec::High, LoadSpec::Burst] {
            // A coordinator apart is a second process, and must be asked.

            let among = [("coordinator", "1")];
            let centralized = entry.about.slug.starts_with("centralized");
            let settings: &[(&str, &str)] = if centralized { &among } else { &[] };
            let report = measure(entry.about.slug, 1, load, settings);
            assert_equal(report.messages_per_entry, 0.0, entry.about.slug);
            assert_equal(report.waiting.max, 0.0, entry.about.slug);
        }
    }
}

/// Throughput at high load is 1/(SD+E), for any length of the critical section.
#[test]
fn throughput_is_the_inverse_of_delay_and_section() {
    for entry in registry::ALL.iter().filter(|entry| entry.about.deadlock_free) {
        for cs in ["0", "0.5", "3"] {
            let mut spec = Spec::new(entry.about.slug, 6);
            spec.entries = 60;
            spec.cs = Some(Delay::parse(cs).unwrap());
            let report = simulate(&spec, 1, 1, &Progress::default()).unwrap();
            // What the gate waits for depends on who has shared before.
            let Some(bound) = report.throughput_bound else {
                assert_eq!(entry.about.slug, "gate");
                continue;
            };
            assert_equal(report.throughput, bound, entry.about.slug);
        }
    }
}

/// What the papers promise is what the registry says to expect.
#[test]
fn the_registry_expects_what_is_measured() {
    let mut compared = 0;
    // What path reversal costs depends on the whole past: a mean, tested on its own.
    let exact = |slug| !["naimi-trehel", "roucairol-carvalho", "maekawa-published"].contains(&slug);
    for entry in registry::ALL.iter().filter(|entry| exact(entry.about.slug)) {
        for sites in SITES {
            for load in [LoadSpec::Pairs, LoadSpec::High] {
                let report = measure(entry.about.slug, sites, load, &[]);
                let beside = [
                    (report.messages_per_entry, report.expected.messages_per_entry),
                    (report.sync_delay.mean, report.expected.sync_delay),
                    // What a token that never rests costs an asker is a mean over random times.
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
    // Messages at both loads, client delay at low, synchronization delay at high; the rings promise less.
    assert!(compared >= 4 * 3 * SITES.len(), "{compared}");
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

/// A holder that dies inside, a coordinator that dies, any process in a permission algorithm: everybody waits.
#[test]
fn crashes_stop_the_algorithms_and_the_report_says_who_waits_for_whom() {
    let cases = [
        ("holder-crashes", "S2 waits for C; C waits for S1 (crashed)"),
        ("coordinator-crashes", "S2 waits for C (crashed)"),
        ("ricart-agrawala-crash", "S1 waits for S3 (crashed); S2 waits for S1, S3 (crashed)"),
        ("token-lost", "the token is lost"),
    ];
    for (name, expected) in cases {
        let report = figure(name);
        let what =
            broken(&report, Property::NoDeadlock).unwrap_or_else(|| panic!("{name} must end in a deadlock"));
        assert!(what.contains(expected), "{name}: {what}");
    }
}

/// The same in runs under load: one crash stops all, unless it is of somebody whom nobody needs.
#[test]
fn a_crash_under_load_blocks_everybody_who_needs_the_dead() {
    for (algorithm, victim) in [
        ("lamport", 2),
        ("ricart-agrawala", 2),
        ("token-ring", 2),
        ("centralized", 4), // the coordinator apart
    ] {
        let mut spec = Spec::new(algorithm, 4);
        spec.script =
            vec![Scripted { at: Time::from_t(20.0).unwrap(), action: Action::Crash(SiteId(victim)) }];
        let report = run(&spec);
        assert!(broken(&report, Property::NoDeadlock).is_some(), "{algorithm}");
        assert!(broken(&report, Property::MutualExclusion).is_none(), "{algorithm} stays safe");
    }
    // At low load the coordinator does not miss a site that is not inside.
    let mut spec = Spec::new("centralized", 4);
    spec.load = LoadSpec::Low;
    spec.cs = Some(Delay::parse("0").unwrap());
    spec.script = vec![Scripted { at: Time::ZERO, action: Action::Crash(SiteId(1)) }];
    let report = run(&spec);
    assert!(report.held() && report.entries == 1000);
}

/// A partition, even one that heals, loses messages that the papers assume to arrive.
#[test]
fn a_partition_stops_the_permission_algorithms() {
    for algorithm in ["lamport", "ricart-agrawala"] {
        for groups in ["1,2|3,4@20..40", "1>2@20..40"] {
            let mut spec = Spec::new(algorithm, 4);
            spec.network.partitions = vec![Partition::parse(groups, 4).unwrap()];
            let report = run(&spec);
            let what = broken(&report, Property::NoDeadlock).expect("everybody waits");
            assert!(what.contains("waits for"), "{what}");
            assert!(broken(&report, Property::MutualExclusion).is_none(), "{algorithm} stays safe");
        }
    }
}

/// A pause is no crash: everybody waits for it to end, and goes on.
#[test]
fn a_pause_costs_time_and_nothing_else() {
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

/// A coordinator that restarts from scratch has forgotten who is inside, and lets in a second.
#[test]
fn a_coordinator_that_forgets_breaks_mutual_exclusion() {
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

/// When messages cost their receiver time, the coordinator is the bottleneck: with N sites it serves three messages an
/// entry whatever N is, while the ring's sites share the work.
#[test]
fn under_a_service_time_the_coordinator_is_the_bottleneck() {
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
