//! Every algorithm of the registry, in every reachable state. The state counts are pinned: they may change
//! only with an intended change of an algorithm or of the checker.

use lockkeeper_core::registry;
use lockkeeper_lab::checker::{CheckReport, CheckSpec, Fault, Faults, Verdict, check};
use lockkeeper_lab::property::Property;

/// Algorithm; number of states of 2 sites with one request each, of 2 with three, of 3 with one; the same
/// with partial-order reduction, which saves nothing if a token circulates perpetually.
type Row = (&'static str, [u64; 3], [u64; 3]);

const PINNED: &[Row] = &[
    ("centralized", [34, 374, 191], [22, 244, 110]),
    ("centralized-failover", [34, 322, 191], [22, 178, 110]),
    ("lamport", [79, 16647, 577960], [52, 9330, 90092]),
    ("lamport-suppressed", [62, 8453, 233764], [44, 4855, 40562]),
    ("ricart-agrawala", [35, 580, 2949], [31, 507, 716]),
    ("roucairol-carvalho", [20, 279, 417], [18, 245, 168]),
    ("lodha-kshemkalyani", [31, 654, 2184], [26, 529, 449]),
    ("bakery-messages", [171, 4417, 298275], [156, 3904, 233748]),
    ("token-ring", [30, 210, 162], [30, 210, 162]),
    ("token-ring-parked", [23, 191, 470], [23, 191, 470]),
    ("token-ring-recovering", [34, 214, 186], [34, 214, 186]),
    ("misra-ping-pong", [158, 1172, 1227], [158, 1172, 1227]),
    ("maekawa", [82, 19816, 720], [46, 10905, 286]),
    ("majority", [82, 19816, 720], [46, 10905, 286]),
    ("tree-quorum", [82, 19816, 769], [46, 10905, 406]),
    ("suzuki-kasami", [21, 234, 727], [19, 202, 395]),
    ("raymond", [21, 149, 152], [19, 131, 122]),
    ("naimi-trehel", [21, 149, 164], [19, 131, 124]),
    ("neilsen-mizuno", [21, 149, 158], [19, 131, 118]),
    ("k-mutual-exclusion", [78, 52622, 11614], [48, 26241, 7844]),
    ("readers-writers", [159, 12465, 46252], [147, 11191, 23421]),
    ("gate", [81, 7615, 1489], [73, 6877, 1079]),
];

fn verified(spec: &CheckSpec) -> CheckReport {
    let report = check(spec, |_| true).unwrap();
    assert!(report.is_verified(), "{}: {:#?}", spec.algorithm, report.counterexample);
    assert!(!report.bounded || spec.requests.is_none());
    report
}

#[test]
fn every_algorithm_is_verified_and_its_states_are_counted() {
    let proven: Vec<&str> = registry::ALL
        .iter()
        .filter(|entry| entry.about.deadlock_free)
        .map(|entry| entry.about.slug)
        .collect();
    assert_eq!(
        proven.len() + 2,
        registry::ALL.len(),
        "only Maekawa's algorithm without its deadlock messages, and as published in 1985, is known to deadlock"
    );
    let found: Vec<Row> = proven
        .into_iter()
        .map(|slug| {
            let states = |full| {
                let once = verified(&CheckSpec { full, ..CheckSpec::new(slug, 2) });
                let thrice = verified(&CheckSpec { full, ..CheckSpec::new(slug, 2).requests(3) });
                let three = verified(&CheckSpec { full, threads: 2, ..CheckSpec::new(slug, 3) });
                let holds = |(_, verdict): (&Property, &Verdict)| *verdict == Verdict::Holds;
                assert!(three.properties.iter().all(holds), "{slug}: {:?}", three.properties);
                [once.distinct, thrice.distinct, three.distinct]
            };
            (slug, states(true), states(false))
        })
        .collect();
    let rows: Vec<String> = found.iter().map(|row| format!("    {row:?},")).collect();
    assert_eq!(found, PINNED, "if the change is intended, pin these:\n{}", rows.join("\n"));
}

/// The search reports the same rules as the simulator as never fired; with two and three sites, most rules
/// fire.
#[test]
fn rules_and_messages_that_never_occur_are_reported() {
    let report = verified(&CheckSpec::new("ricart-agrawala", 2).requests(2));
    assert_eq!(report.never_fired, [] as [&str; 0]);
    let report = verified(&CheckSpec::new("maekawa", 2).requests(3));
    assert!(
        report.never_fired.contains(&"INQUIRE is delivered".to_string()),
        "an arbiter has only two voters"
    );
    let report = verified(&CheckSpec::new("lamport", 1));
    assert!(report.never_fired.contains(&"REPLY is delivered".to_string()), "{:?}", report.never_fired);
}

#[test]
fn maekawa_basic_deadlocks_with_the_triangle() {
    let report = check(&CheckSpec::new("maekawa-basic", 3), |_| true).unwrap();
    let found = report.counterexample.unwrap();
    assert_eq!((found.violation.property, found.steps), (Property::NoDeadlock, 6));
    assert!(found.violation.what.contains("S1, S2, S3"), "{}", found.violation.what);
}

/// The flaw of the paper of 1985 needs four sites: with three, an arbiter has only two voters, so that its queue never has
/// two requests. `maekawa` passes the same search: it is the twin in the gallery.
#[test]
fn maekawa_as_published_in_1985_deadlocks_with_four_sites() {
    verified(&CheckSpec::new("maekawa-1985", 3));
    let report = check(&CheckSpec { full: true, ..CheckSpec::new("maekawa-1985", 4) }, |_| true).unwrap();
    let found = report.counterexample.unwrap();
    assert_eq!((found.violation.property, found.steps), (Property::NoDeadlock, 14));
}

/// Either token may be lost at any time, and the other one replaces it. If both are lost, no site enters.
#[test]
fn misra_survives_the_loss_of_either_token() {
    let spec = |sites, losses| CheckSpec {
        faults: Faults::default().with(Fault::Loss, losses),
        ..CheckSpec::new("misra-ping-pong", sites)
    };
    for sites in [2, 3] {
        let report = verified(&spec(sites, 1));
        assert_eq!(report.never_fired, ["a site is alone on the ring and keeps PING"], "{sites} sites");
    }
    let report = check(&spec(2, 2), |_| true).unwrap();
    assert_eq!(report.counterexample.unwrap().violation.property, Property::NoDeadlock);
}

/// Freedom from starvation implies freedom from deadlock: a site that waits in a deadlock waits for ever.
#[test]
fn deadlock_violates_freedom_from_starvation() {
    let spec = CheckSpec::new("maekawa-basic", 3);
    let both = check(&spec, |_| true).unwrap();
    assert_eq!(both.properties[&Property::NoDeadlock], Verdict::Violated);
    assert_eq!(both.properties[&Property::NoStarvation], Verdict::Violated);
    for requests in [Some(1), None] {
        let only = Some(Property::NoStarvation);
        let report = check(&CheckSpec { only, requests, ..spec.clone() }, |_| true).unwrap();
        assert_eq!(report.properties, [(Property::NoStarvation, Verdict::Violated)].into());
        let found = report.counterexample.unwrap();
        assert_eq!((found.violation.property, found.steps), (Property::NoStarvation, 6));
        assert_eq!(Some(found.story), both.counterexample.as_ref().map(|found| found.story.clone()));
    }
}

/// The first search defers silent deliveries; the search for cycles needs the full graph.
#[test]
fn starvation_without_a_deadlock_is_found_when_only_starvation_is_checked() {
    let spec = CheckSpec::new("raymond-lowest-number-first", 3);
    let only = Some(Property::NoStarvation);
    let report = check(&CheckSpec { only, ..spec }, |_| true).unwrap();
    let found = report.counterexample.unwrap();
    assert_eq!((found.violation.property, found.steps), (Property::NoStarvation, 11));
}

#[test]
fn message_bounds_of_the_papers_are_maxima_over_all_runs() {
    for (slug, most) in
        [("lamport", 6.0), ("ricart-agrawala", 4.0), ("bakery-messages", 12.0), ("suzuki-kasami", 3.0)]
    {
        assert_eq!(verified(&CheckSpec::new(slug, 3)).max_messages_per_entry, Some(most), "{slug}");
    }
}

#[test]
fn unlimited_requests_are_free_of_starvation() {
    for slug in ["centralized", "ricart-agrawala", "lamport", "raymond", "naimi-trehel", "token-ring"] {
        let report = verified(&CheckSpec { requests: None, ..CheckSpec::new(slug, 2) });
        assert_eq!(report.properties[&Property::NoStarvation], Verdict::Holds, "{slug}");
    }
}

#[test]
fn crash_of_the_holder_is_a_deadlock() {
    let faults = Faults::default().with(Fault::Crash, 1);
    let report = check(&CheckSpec { faults, ..CheckSpec::new("ricart-agrawala", 2) }, |_| true).unwrap();
    assert_eq!(report.counterexample.unwrap().violation.property, Property::NoDeadlock);
}

#[test]
fn loss_of_a_message_is_a_deadlock() {
    let faults = Faults::default().with(Fault::Loss, 1);
    let report = check(&CheckSpec { faults, ..CheckSpec::new("ricart-agrawala", 2) }, |_| true).unwrap();
    let found = report.counterexample.unwrap();
    assert_eq!((found.violation.property, found.steps), (Property::NoDeadlock, 2), "{:?}", found.story);
}

#[test]
fn answer_does_not_depend_on_the_number_of_threads() {
    for slug in ["bakery-messages-without-choosing", "suzuki-kasami", "lamport-any-message-counts"] {
        let of = |threads| check(&CheckSpec { threads, ..CheckSpec::new(slug, 3) }, |_| true).unwrap();
        let (one, three) = (serde_json::to_string(&of(1)).unwrap(), serde_json::to_string(&of(3)).unwrap());
        let without_memory = |text: &str| text.split("\"bytes_per_state\"").next().unwrap().to_string();
        assert_eq!(without_memory(&one), without_memory(&three), "{slug}");
    }
}

#[test]
fn search_that_exceeds_its_budget_is_reported_as_incomplete() {
    let report = check(&CheckSpec { threads: 1, ..CheckSpec::new("lamport", 3) }, |progress| {
        progress.distinct < 10_000
    })
    .unwrap();
    assert!(!report.complete && !report.is_violated() && !report.is_verified());
    assert!(report.depth > 5 && report.distinct >= 10_000);
    assert_eq!(report.properties[&Property::MutualExclusion], Verdict::Unknown);
}

#[test]
fn start_with_a_holder_is_verified() {
    for entry in registry::ALL.iter().filter(|entry| entry.about.deadlock_free) {
        let holders = vec![lockkeeper_core::Holder::exclusive(lockkeeper_core::SiteId(1))];
        verified(&CheckSpec { holders, ..CheckSpec::new(entry.about.slug, 2) });
    }
}
