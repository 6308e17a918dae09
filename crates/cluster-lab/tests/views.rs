//! The view change and the leases of whole members, in every order of events within small bounds. Members with one
//! guard disabled violate a property after a pinned number of steps; the unchanged member passes the same systems.

use lockkeeper_cluster_lab::Property::{
    self, Exclusion, Fences, Frozen, Lease, LeasesOver, OneStart, Promises, RecordedHolds, Service, Starts,
};
use lockkeeper_cluster_lab::views::{Bounds, Holder, ViewsError, bug_switches, check};
use lockkeeper_member::BugSwitch;

/// The bug switch, the violated property, and the length of the shortest run.
const PINNED: &[(&str, Property, usize)] = &[
    ("no-wait", LeasesOver, 6),
    ("proposer-waits", LeasesOver, 7),
    ("waits-for-known-holders-only", LeasesOver, 6),
    ("no-freeze", Frozen, 6),
    ("answers-old-epochs", Frozen, 10),
    ("grants-without-lease", Lease, 7),
    ("higher-epochs-dropped", Service, 10),
    ("lower-epochs-accepted", Exclusion, 13),
    ("report-changes", Service, 8),
    ("idle-instance-dropped", Fences, 3),
    ("two-coordinators", OneStart, 6),
    ("minority-grants", LeasesOver, 7),
    ("unstarted-view-left", Service, 6),
    ("starts-without-every-report", Frozen, 9),
    ("lease-from-arrival", LeasesOver, 10),
    ("no-drift", LeasesOver, 5),
    ("promised-before-commit", Promises, 1),
    ("promised-without-lease", Promises, 4),
    ("orphan-owes-nothing", RecordedHolds, 10),
    ("ttl-from-grant", RecordedHolds, 10),
    ("orphan-kept-for-ever", Service, 6),
    ("freed-before-end", Starts, 9),
    ("ending-not-reported", Starts, 9),
    ("proposed-counts-as-short", Starts, 10),
    ("excluded-records-accepted", Starts, 9),
    ("table-for-missing-only", Starts, 11),
    ("departed-not-adopted", Starts, 5),
];

/// Three members, and a client with a session at the third, which holds the lock: the bounds that differ, and the number
/// of states. The first hold is recorded and promised when the search starts, that of the last system is not.
fn recorded_holds() -> Vec<(Bounds, u64)> {
    let holder = Holder { recorded: true, contacts: 0, releases: false, returns: true };
    let crash = Bounds { lock_requests: 1, service: true, holder: Some(holder), ..Bounds::default() };
    let contact = Holder { contacts: 1, ..holder };
    vec![
        // The client sends nothing more: the lock is free after its time to live.
        (Bounds { units: 5, holder: Some(Holder { returns: false, ..holder }), ..crash }, 18_179),
        (Bounds { units: 6, service: false, ..crash }, 107_167),
        (Bounds { holder: Some(contact), ..crash }, 121_964),
        (Bounds { crashes: 0, leaves: 1, lock_requests: 0, holder: Some(contact), ..crash }, 86_601),
        (Bounds { service: false, holder: Some(Holder { recorded: false, ..contact }), ..crash }, 525_262),
    ]
}

#[test]
fn a_recorded_hold_survives_its_member_in_every_order_of_events() {
    let found: Vec<u64> = recorded_holds().iter().map(|(bounds, _)| holds("naimi-trehel", *bounds)).collect();
    let pinned: Vec<u64> = recorded_holds().iter().map(|(_, states)| *states).collect();
    assert_eq!(found, pinned, "if the change is intended, pin these");
}

/// The client may release its recorded hold, and two view changes follow each other. Half a minute to minutes:
/// `LOCKKEEPER_LONG=1 cargo test --release -p lockkeeper-cluster-lab --test views -- larger`.
#[test]
fn larger_systems_of_recorded_holds_hold() {
    if std::env::var_os("LOCKKEEPER_LONG").is_none() {
        return;
    }
    let holder = Holder { recorded: true, contacts: 1, releases: false, returns: true };
    let one = Bounds { lock_requests: 1, service: true, holder: Some(holder), ..Bounds::default() };
    let releases = Holder { releases: true, ..holder };
    for bounds in [
        Bounds { units: 5, ..one },
        Bounds { holder: Some(releases), ..one },
        Bounds {
            units: 5,
            elections: 1,
            views: 2,
            lock_requests: 0,
            holder: Some(Holder { contacts: 0, ..holder }),
            ..one
        },
        Bounds { holder: Some(Holder { recorded: false, ..releases }), ..one },
    ] {
        println!("{bounds:?}: {} states", holds("naimi-trehel", bounds));
    }
}

#[test]
fn every_disabled_guard_is_caught() {
    let found: Vec<(&str, Property, usize)> = bug_switches::all()
        .iter()
        .map(|exhibit| {
            let bug = Some(exhibit.bug().expect("a bug of that name"));
            let answer = check(exhibit.algorithm, exhibit.bounds, bug, |_| true).unwrap();
            let wrong = answer.wrong.unwrap_or_else(|| panic!("{} escaped", exhibit.name));
            (exhibit.name, wrong.property, wrong.run.len())
        })
        .collect();
    let rows: Vec<String> = found.iter().map(|row| format!("    {row:?},")).collect();
    assert_eq!(found, PINNED, "if the change is intended, pin these:\n{}", rows.join("\n"));
}

fn holds(algorithm: &str, bounds: Bounds) -> u64 {
    let answer = check(algorithm, bounds, None, |_| true).unwrap();
    assert!(answer.complete);
    assert!(answer.wrong.is_none(), "{algorithm}, {bounds:?}: {:#?}", answer.wrong);
    answer.distinct
}

#[test]
fn the_unchanged_member_passes_the_same_systems() {
    let mut systems: Vec<(&str, Bounds)> = Vec::new();
    for exhibit in bug_switches::all() {
        if !systems.contains(&(exhibit.algorithm, exhibit.bounds)) {
            systems.push((exhibit.algorithm, exhibit.bounds));
        }
    }
    for (algorithm, bounds) in systems {
        let states = holds(algorithm, bounds);
        println!("{algorithm}, {bounds:?}: {states} states");
        assert!(states > 1_000, "{bounds:?}");
    }
}

/// The clients of two members request shared mode, that of the third exclusive mode.
#[test]
fn shared_and_exclusive_holds_exclude_each_other() {
    let bounds = Bounds { crashes: 1, lock_requests: 2, readers: 0b011, service: true, ..Bounds::default() };
    assert!(holds("naimi-trehel", bounds) > 10_000);
    for (bug, promises) in [
        (BugSwitch::IdleInstanceDropped, [Fences, Exclusion]),
        (BugSwitch::ReportChanges, [Service, Service]),
    ] {
        let wrong = check("naimi-trehel", bounds, Some(bug), |_| true).unwrap().wrong;
        let wrong = wrong.unwrap_or_else(|| panic!("{bug:?} escaped"));
        assert!(promises.contains(&wrong.property), "{bug:?}: {wrong:#?}");
    }
}

/// Larger bounds, for minutes to hours: `LOCKKEEPER_LONG=1 cargo test --release -p lockkeeper-cluster-lab --test
/// views -- larger`.
#[test]
fn larger_systems_hold() {
    if std::env::var_os("LOCKKEEPER_LONG").is_none() {
        return;
    }
    let one = Bounds {
        units: 4,
        crashes: 1,
        elections: 1,
        lock_requests: 1,
        views: 1,
        service: true,
        ..Bounds::default()
    };
    let late = Bounds {
        members: 2,
        units: 8,
        crashes: 0,
        lock_requests: 0,
        late_leases: true,
        fast: Some(0),
        ..Bounds::default()
    };
    for algorithm in ["naimi-trehel", "ricart-agrawala"] {
        for bounds in [one, Bounds { restarts: 1, ..one }, Bounds { units: 6, views: 2, ..one }, late] {
            println!("{algorithm}, {bounds:?}: {} states", holds(algorithm, bounds));
        }
    }
}

#[test]
fn unsupported_algorithms_and_bounds_are_rejected() {
    let refused = |algorithm, bounds| check(algorithm, bounds, None, |_| true).unwrap_err();
    let raymond = refused("raymond", Bounds::default());
    assert!(matches!(&raymond, ViewsError::Algorithm { algorithm } if algorithm == "raymond"), "{raymond}");
    let nine = refused("naimi-trehel", Bounds { members: 9, ..Bounds::default() });
    assert_eq!(nine, ViewsError::Members { members: 9 });
    assert!(nine.to_string().contains("2 to 5"), "{nine}");
}

#[test]
fn a_budget_ends_the_search() {
    let answer = check("naimi-trehel", Bounds { sleeps: 1, ..Bounds::default() }, None, |sofar| {
        sofar.distinct < 1_000
    })
    .unwrap();
    assert!(!answer.complete && answer.wrong.is_none() && answer.distinct >= 1_000);
}
