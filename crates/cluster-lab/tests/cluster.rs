//! Simulated clusters with all faults. `LOCKKEEPER_RUNS=1000` makes that many runs of each kind,
//! `LOCKKEEPER_SEED=5000` starts with another seed, and `LOCKKEEPER_ONLY=Table` selects the bug switches whose
//! names contain that text.

use lockkeeper_cluster_lab::{ClusterReport, ClusterSpec, Fault, Property, algorithms, run, run_traced};
use lockkeeper_lab::Progress;
use lockkeeper_member::BugSwitch;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn runs(default: u64) -> u64 {
    number("LOCKKEEPER_RUNS", default)
}

fn cluster(algorithm: &str, members: usize, faults: &str) -> ClusterSpec {
    let mut spec = ClusterSpec::new(algorithm, members);
    spec.faults = Fault::parse(faults).expect("known faults").into_iter().collect();
    spec
}

/// A time to live that outlasts all faults of a run.
const LONG_TTL_NS: u64 = 40_000_000_000;

fn report(spec: &ClusterSpec, seed: u64, seeds: u64) -> ClusterReport {
    run(spec, seed, seeds, &Progress::default()).expect("a valid specification")
}

fn holds(spec: &ClusterSpec, seed: u64, seeds: u64) {
    let report = report(spec, seed, seeds);
    assert!(report.found.is_empty(), "{:#?}", report.found);
    assert!(report.entries > 0 && report.views >= report.runs);
}

#[test]
fn every_algorithm_keeps_every_promise_under_all_faults() {
    let (first, seeds) = (number("LOCKKEEPER_SEED", 0), runs(6));
    for (place, algorithm) in algorithms().enumerate() {
        for members in [3, 5, 9] {
            holds(&cluster(algorithm, members, "all"), first + 1000 * place as u64, seeds);
        }
    }
}

/// Runs that violated a property in an earlier version.
#[test]
fn runs_that_once_violated_a_property_satisfy_all_of_them() {
    for (algorithm, members, seed) in [("token-ring-recovering", 3, 70_051_027), ("maekawa", 5, 70_082_041)] {
        holds(&cluster(algorithm, members, "all"), seed, 1);
    }
    // A record stayed in the table because its repeated write was refused.
    let mut spec = cluster("naimi-trehel", 5, "home-cut");
    spec.longest_ttl_ns = LONG_TTL_NS;
    holds(&spec, 9, 1);
}

/// A daemon without a lease reported the rest of its promise on a slow clock, and the adopting daemon kept the hold for the
/// same duration on a fast one.
#[test]
fn an_adopted_hold_outlasts_the_promise_of_a_daemon_with_a_slower_clock() {
    for algorithm in ["majority", "lamport"] {
        holds(&cluster(algorithm, 5, "all"), 110_223_028, 1);
    }
}

/// An operator revoked a hold after its member had announced its departure, and the record was ended at once, although the
/// client relied on the lease that the member had given up.
#[test]
fn a_hold_that_is_revoked_after_a_departure_outlasts_the_lease_that_was_given_up() {
    holds(&cluster("token-ring", 5, "all"), 110_199_018, 1);
}

/// The votes of a quorum carried no times, so that members that learned of few requests overtook the others again and
/// again, until one of these was not served in time.
#[test]
fn members_outside_of_a_quorum_do_not_overtake_its_waiters_again_and_again() {
    for (algorithm, seed) in
        [("tree-quorum", 110_094_006), ("majority", 110_287_003), ("maekawa", 110_287_003)]
    {
        holds(&cluster(algorithm, 9, "all"), seed, 1);
    }
}

/// A step answered a keep-alive and then sent the departure notice, and the run took the promise for one without a lease.
#[test]
fn a_promise_in_the_step_that_ends_with_the_departure_notice_has_a_lease() {
    holds(&cluster("naimi-trehel", 5, "leave,revoke"), 453, 1);
}

/// A re-entrant acquisition of a promised hold was recorded while its member was frozen, and never promised itself. It
/// lapsed with the session's lease, and its release, which the session kept, was taken for a promise.
#[test]
fn a_kept_release_of_an_acquisition_without_a_promise_is_no_lost_recorded_hold() {
    let mut spec = cluster("naimi-trehel", 5, "crash,pause,cut,delay");
    spec.longest_ttl_ns = LONG_TTL_NS;
    holds(&spec, 1391, 10);
}

#[test]
fn a_cluster_without_faults_has_one_view_and_loses_no_session() {
    let report = report(&cluster("naimi-trehel", 5, "none"), 1, 5);
    assert_eq!((report.views, report.lost, report.found.len()), (5, 0, 0));
}

#[test]
fn sessions_acquire_reentrant_locks_that_they_hold() {
    let report = report(&cluster("naimi-trehel", 5, "all"), 1, 5);
    assert!(report.nested > 50 && report.found.is_empty(), "{report:?}");
}

#[test]
fn clients_with_a_lease_at_a_daemon_are_served_and_exclude_each_other() {
    for faults in ["drift", "revoke,leave,drift", "crash,pause,cut,leader,drift,client"] {
        holds(&cluster("naimi-trehel", 5, faults), 1, runs(40));
    }
    let report = report(&cluster("naimi-trehel", 5, "drift"), 1, 5);
    assert!(report.leased > 100, "{report:?}");
}

#[test]
fn clients_leave_a_member_that_is_isolated_permanently() {
    holds(&cluster("naimi-trehel", 5, "isolate"), 1, runs(60));
}

#[test]
fn clients_of_surviving_members_lose_no_hold() {
    holds(&cluster("naimi-trehel", 5, "crash,hiccup,drift,duplicate"), 1, runs(40));
}

#[test]
fn planned_leaves_cost_other_clients_no_hold() {
    let spec = cluster("naimi-trehel", 5, "leave,drift,duplicate");
    holds(&spec, 1, runs(40));
    let report = report(&spec, 1, 10);
    // Every planned leave was completed.
    assert!(report.leaves >= 3 * report.runs, "{report:?}");
}

/// Every kind of fault that lets a member adopt holds does so, of clients with and without a session of their own.
#[test]
fn holds_of_both_kinds_of_clients_are_recorded_and_adopted_under_all_faults() {
    for (members, faults) in
        [(3, "all"), (5, "all"), (5, "leave"), (5, "restart-all"), (5, "restart-in-turn")]
    {
        let report = report(&cluster("naimi-trehel", members, faults), 1, 20);
        assert!(report.found.is_empty(), "{:#?}", report.found);
        assert!(report.recorded > 10 * report.runs, "{report:?}");
        assert!(report.adopted > 5 && report.adopted_leases > 1, "{report:?}");
    }
}

/// Members crash, restart, pause, leave and lose their links, one or all at once, for 20 s. The recorded holds live for
/// longer than that, so their clients keep all of them.
#[test]
fn no_recorded_hold_is_lost_while_members_come_and_go() {
    const ALL_BUT_CLIENTS: &str = "crash,restart-all,restart-in-turn,pause,hiccup,cut,home-cut,loss,duplicate,delay,drift,leader,leave,settings,theft";
    for faults in [
        ALL_BUT_CLIENTS,
        "crash",
        "leave",
        "restart-all",
        "restart-in-turn",
        "cut,home-cut",
        "crash,leave,drift",
    ] {
        for members in [3, 5] {
            let mut spec = cluster("naimi-trehel", members, faults);
            spec.longest_ttl_ns = LONG_TTL_NS;
            holds(&spec, 1, runs(15));
            let report = report(&spec, 1, runs(15));
            assert!(report.adopted > report.runs / 2, "{faults}: {report:?}");
        }
    }
}

#[test]
fn changes_of_settings_cost_survivors_no_hold() {
    holds(&cluster("naimi-trehel", 5, "settings,crash,drift,duplicate"), 1, runs(40));
}

#[test]
fn a_cluster_founded_after_the_loss_of_all_disks_keeps_every_promise() {
    holds(&cluster("naimi-trehel", 3, "lose-all,drift,client"), 1, runs(40));
}

#[test]
fn clusters_of_one_and_two_members_work() {
    for members in [1, 2] {
        holds(&cluster("naimi-trehel", members, "crash,pause,drift,client,leave,revoke"), 1, runs(20));
    }
}

#[test]
fn algorithms_that_cannot_serve_a_cluster_are_rejected_with_a_reason() {
    let refused = |algorithm: &str| {
        let spec = cluster(algorithm, 3, "none");
        run(&spec, 1, 1, &Progress::default()).expect_err("refused").to_string()
    };
    assert!(refused("maekawa-basic").contains("deadlock"));
    assert!(refused("readers-writers").contains("not a mutex"));
}

#[test]
fn a_seed_gives_the_same_run_with_and_without_a_trace() {
    let spec = cluster("ricart-agrawala", 5, "all");
    let mut lines = 0;
    let traced = run_traced(&spec, 7, &mut |_| lines += 1).expect("a run");
    let (once, again) = (report(&spec, 7, 1), report(&spec, 7, 1));
    for other in [&once, &again] {
        let same = |report: &ClusterReport| (report.entries, report.views, report.lost, report.frames);
        assert_eq!(same(&traced), same(other));
    }
    assert!(lines > 1000);
}

/// A bug switch, the algorithm and faults under which it shows, and the properties of which it violates at least
/// one. The search begins at a seed that is close to the first violation.
struct Case {
    bug: Option<BugSwitch>,
    algorithm: &'static str,
    faults: &'static str,
    breaks: &'static [Property],
    from: u64,
    /// The longest time to live, if it is not the usual one.
    ttl_ns: Option<u64>,
}

const fn case(bug: BugSwitch, faults: &'static str, breaks: &'static [Property], from: u64) -> Case {
    Case { bug: Some(bug), algorithm: "naimi-trehel", faults, breaks, from, ttl_ns: None }
}

const SAFETY: &[Property] = &[
    Property::Exclusion,
    Property::Fences,
    Property::LeasesOver,
    Property::Frozen,
    Property::Starts,
    Property::Promises,
];

/// Recorded holds that outlive all faults show a hold that was lost.
const RECORDS: &[Property] =
    &[Property::RecordedHolds, Property::Starts, Property::Exclusion, Property::Fences, Property::Service];

/// The table of recorded holds, the starts and the promises disagree.
const TABLE: &[Property] = &[
    Property::Starts,
    Property::Promises,
    Property::RecordedHolds,
    Property::Exclusion,
    Property::Fences,
    Property::Service,
];

const CASES: &[Case] = &[
    case(BugSwitch::HigherEpochsDropped, "all", &[Property::Service], 1),
    Case { algorithm: "ricart-agrawala", ..case(BugSwitch::LowerEpochsAccepted, "all", SAFETY, 1) },
    case(BugSwitch::ReportChanges, "all", &[Property::Service], 1),
    case(BugSwitch::FreezeStopsRenewals, "crash,hiccup,drift", &[Property::Survivors], 1),
    case(BugSwitch::NoFreeze, "all", &[Property::Frozen], 1),
    case(BugSwitch::TwoCoordinators, "all", &[Property::OneStart, Property::Exclusion], 1),
    case(BugSwitch::UnstartedViewLeft, "crash,leader", &[Property::Service], 1),
    case(BugSwitch::StartsWithoutEveryReport, "all", SAFETY, 1),
    case(BugSwitch::NoWait, "all", SAFETY, 1),
    case(BugSwitch::WaitsForKnownHoldersOnly, "all", SAFETY, 1),
    case(BugSwitch::ProposerWaits, "pause,crash,leader,hiccup", SAFETY, 441),
    case(BugSwitch::AnswersOldEpochs, "pause,cut,leader", SAFETY, 531),
    case(BugSwitch::MinorityGrants, "cut,leader,pause", SAFETY, 1),
    case(BugSwitch::LeaseFromArrival, "delay,cut,pause", SAFETY, 1),
    case(BugSwitch::ClientLeaseFromArrival, "client,delay,drift", SAFETY, 1651),
    case(BugSwitch::ClientOutlivesMember, "cut,pause", SAFETY, 1),
    case(BugSwitch::GrantsWithoutLease, "all", &[Property::Lease], 1),
    case(BugSwitch::SilentClientForgotten, "client,drift", SAFETY, 1),
    case(BugSwitch::RevokedAtOnce, "revoke", SAFETY, 1),
    case(BugSwitch::IdleInstanceDropped, "none", SAFETY, 1),
    case(BugSwitch::NoDrift, "all", SAFETY, 1),
    case(BugSwitch::LeavesInUse, "leave", SAFETY, 1),
    case(BugSwitch::NothingSetAside, "none", &[Property::Fences], 1),
    case(BugSwitch::DelegationsNeverEnd, "none", &[Property::Service], 1),
    case(BugSwitch::OwnLeaseWaitedFor, "settings,crash,pause", SAFETY, 1),
    case(BugSwitch::OwnAlgorithm, "settings", SAFETY, 1),
    case(BugSwitch::FounderDoesNotWait, "lose-all,client,delay", SAFETY, 1),
    case(BugSwitch::FounderWaitsForOwnLease, "lose-all,settings,client", SAFETY, 1),
    case(BugSwitch::OneBigStep, "crash,hiccup,drift", &[Property::Steps, Property::Survivors], 1),
    case(BugSwitch::TableNeverReclaimed, "drift", &[Property::Service], 1),
    case(BugSwitch::RequestsSentOnce, "isolate,pause,cut,leader", &[Property::Service], 21),
    case(BugSwitch::SilentLinkKept, "isolate", &[Property::Service], 71),
    case(BugSwitch::LeaseWithoutDrift, "drift", SAFETY, 1),
    case(BugSwitch::PromisedPerSession, "crash,client,leave,cut", SAFETY, 771),
    case(BugSwitch::PromisedBeforeCommit, "crash,cut,client,pause", SAFETY, 1),
    case(BugSwitch::PromisedWithoutLease, "isolate", SAFETY, 51),
    case(BugSwitch::OrphanOwesNothing, "crash,client,cut", SAFETY, 521),
    case(BugSwitch::OrphanKeptForEver, "crash,client", &[Property::Service], 1),
    case(BugSwitch::FreedBeforeEnd, "crash,cut,client", SAFETY, 1),
    case(BugSwitch::ProposedCountsAsShort, "crash,cut,client", SAFETY, 231),
    case(BugSwitch::TableForMissingOnly, "crash,leader,pause,cut", RECORDS, 1),
    case(BugSwitch::ProofNotCompared, "theft", SAFETY, 1),
    case(BugSwitch::DepartsUnrecorded, "leave", RECORDS, 1),
    case(BugSwitch::FounderIgnoresTtl, "lose-all,client", SAFETY, 1),
    case(BugSwitch::LapsedHoldRevived, "crash,client,cut,home-cut", SAFETY, 61),
    case(BugSwitch::DepartedNotAdopted, "leave", RECORDS, 1),
    case(BugSwitch::EndingNotReported, "crash,cut,client,settings", TABLE, 1),
    case(BugSwitch::TableBesideReports, "crash,leader", TABLE, 1),
    case(BugSwitch::ExcludedRecordsAccepted, "pause,cut,crash", TABLE, 21),
    case(BugSwitch::WritesAppliedTwice, "crash,cut,delay", TABLE, 1),
    case(BugSwitch::OrphanFreedByForce, "crash,revoke,client", SAFETY, 11),
    case(BugSwitch::AdoptedPromiseForgotten, "leave,crash,revoke", SAFETY, 1531),
    case(BugSwitch::FormerHomeEnds, "crash,pause,cut,home-cut", SAFETY, 71),
    case(BugSwitch::StaleEpochAccepted, "crash,pause,cut", &[Property::Records], 1),
    case(BugSwitch::PromisedWhileFrozen, "crash,leader", &[Property::Promises], 1),
    case(BugSwitch::OldGenerationAccepted, "leave,delay,home-cut", &[Property::Generations], 501),
    case(BugSwitch::ResidentPromisedWithoutLease, "isolate", SAFETY, 41),
    Case { algorithm: "majority", ..case(BugSwitch::AdoptedWithoutDrift, "all", SAFETY, 110_223_021) },
    case(BugSwitch::GivenUpLeaseForgotten, "leave,revoke", SAFETY, 1231),
    // Half of the time to live is longer than a member's lease and the silence of a tenant.
    Case { ttl_ns: Some(5_000_000_000), ..case(BugSwitch::AdoptedLeaseCutShort, "leave,client", SAFETY, 91) },
    Case {
        bug: None,
        ..case(
            BugSwitch::NoWait,
            "restart-all,crash",
            &[Property::OneStart, Property::Fences, Property::Frozen],
            1,
        )
    },
    Case {
        bug: None,
        ..case(BugSwitch::NoWait, "lose-all", &[Property::OneStart, Property::Fences, Property::Frozen], 1)
    },
];

#[test]
fn every_bug_switch_is_caught() {
    const MOST: u64 = 3000;
    const AT_ONCE: u64 = 10;
    let only = std::env::var("LOCKKEEPER_ONLY").unwrap_or_default();
    for case in CASES.iter().filter(|case| format!("{:?}", case.bug).contains(&only)) {
        let mut right = cluster(case.algorithm, 5, case.faults);
        if case.breaks.contains(&Property::RecordedHolds) {
            right.longest_ttl_ns = LONG_TTL_NS;
        }
        right.longest_ttl_ns = case.ttl_ns.unwrap_or(right.longest_ttl_ns);
        let mut wrong = right.clone();
        wrong.bug = case.bug;
        wrong.forgets_epochs = case.bug.is_none() && case.faults.contains("restart-all");
        wrong.epochs_begin_at_one = case.bug.is_none() && case.faults.contains("lose-all");
        let breaks = |seed: &u64| {
            report(&wrong, *seed, AT_ONCE).found.iter().any(|found| case.breaks.contains(&found.property))
        };
        let caught = (case.from..case.from + MOST).step_by(AT_ONCE as usize).find(breaks);
        let Some(seed) = caught else { panic!("{:?} was not caught in {MOST} runs", case.bug) };
        println!("{:?} is caught in the {AT_ONCE} runs from seed {seed}", case.bug);
        // The unchanged cluster passes the same seeds.
        holds(&right, seed, AT_ONCE);
    }
}

#[test]
fn every_bug_switch_has_a_case() {
    let searched = lockkeeper_cluster_lab::views::bug_switches::all();
    for (name, bug) in BugSwitch::ALL {
        let simulated = CASES.iter().any(|case| case.bug == Some(*bug));
        let searched = searched.iter().any(|case| case.name == *name);
        assert!(simulated || searched, "{name}");
    }
}

/// Hundreds of names for tables of a few dozen locks: all requests are served, and the view changes that make room
/// lose no hold.
#[test]
fn a_small_table_serves_hundreds_of_names() {
    for faults in ["none", "crash,hiccup,drift,duplicate", "leave,drift,duplicate", "all"] {
        for (place, algorithm) in algorithms().enumerate() {
            let mut spec = cluster(algorithm, 3, faults);
            spec.jobs = 600;
            spec.most_own_locks = Some(spec.clients + 6);
            let report = report(&spec, 100 * place as u64 + 20, runs(2));
            assert!(report.found.is_empty(), "{faults}, {algorithm}: {:#?}", report.found);
            assert!(report.views > 2 * report.runs, "{faults}, {algorithm}: {} views", report.views);
            assert!(faults != "none" || report.lost == 0, "{algorithm}: {} sessions lost", report.lost);
        }
    }
}

/// Hundreds of holds, and steps that take a millisecond for each of them. A member that handled all of them in one
/// step would be excluded for its silence.
#[test]
fn hundreds_of_holds_cause_no_long_step_and_no_lost_hold() {
    for (place, algorithm) in algorithms().enumerate() {
        for faults in ["crash,hiccup,drift,duplicate", "leave,drift", "all"] {
            let mut spec = cluster(algorithm, 3, faults);
            (spec.long_holders, spec.locks_per_long_holder, spec.item_ns) = (3, 150, 1_000_000);
            holds(&spec, 100 * place as u64, runs(1));
        }
    }
}
