//! Fault-tolerant algorithms: correct under their assumptions, and wrong where an assumption is violated.

use lockkeeper_core::algorithms::maekawa::{Majority, Options};
use lockkeeper_core::algorithms::token_ring_recovering::TokenRingRecovering;
use lockkeeper_core::quorum::Construction;
use lockkeeper_core::{Mode, SiteId};
use lockkeeper_lab::algorithm;
use lockkeeper_lab::conformance::{check, spec_of};
use lockkeeper_lab::property::Property;
use lockkeeper_lab::simulator::run::Sim;
use lockkeeper_lab::simulator::spec::{Action, DetectorSpec, LoadSpec, Scripted};
use lockkeeper_lab::{Progress, Report, Scenario, Spec, Time, simulate};

fn run(spec: &Spec) -> Report {
    simulate(spec, 1, 1, &Progress::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn figure(name: &str) -> Report {
    run(&Scenario::open(name).unwrap().spec)
}

fn broken(report: &Report) -> Vec<Property> {
    report.violations.iter().map(|found| found.violation.property).collect()
}

fn crash(site: usize, tenths: u64) -> Scripted {
    Scripted { at: Time::from_milli_t(100 * tenths), action: Action::Crash(SiteId::new(site)) }
}

fn recovering_ring(sites: usize, script: Vec<Scripted>) -> Spec {
    let mut spec = Spec::new("token-ring-recovering", sites);
    spec.load = LoadSpec::Burst;
    spec.entries = 20;
    spec.warmup = Some(0);
    spec.detector = DetectorSpec::Perfect;
    spec.script = script;
    spec
}

/// A crash of every site at every tenth of T over several rounds: of the holder, and while the token is under
/// way to or from the crashed site.
#[test]
fn ring_recovers_from_a_crash_of_any_site_at_any_time() {
    for sites in 2..=5 {
        for (victim, tenths) in (0..sites).flat_map(|site| (0..120).map(move |tenths| (site, tenths))) {
            let spec = recovering_ring(sites, vec![crash(victim, tenths)]);
            let report = run(&spec);
            assert!(report.held(), "{}\n{:?}", spec.command(1), report.violations);
            assert!(report.entries >= 19, "{}", spec.command(1));
        }
    }
}

/// Two crashes of four sites at every pair of times in a round, and then crashes of all but one.
#[test]
fn ring_recovers_from_several_crashes() {
    for (first, second) in (0..4).flat_map(|a| (0..4).filter(move |&b| b != a).map(move |b| (a, b))) {
        for (at, later) in (0..50).step_by(3).flat_map(|at| (0..25).step_by(3).map(move |later| (at, later)))
        {
            let mut script = vec![crash(first, at), crash(second, at + later)];
            for and_a_third in [false, true] {
                if and_a_third {
                    let third = (0..4).find(|site| ![first, second].contains(site)).unwrap();
                    script.push(crash(third, at + later + 7));
                }
                let spec = recovering_ring(4, script.clone());
                let report = run(&spec);
                assert!(report.held(), "{}\n{:?}", spec.command(1), report.violations);
            }
        }
    }
}

/// Random crashes that earlier versions of the ring did not survive.
#[test]
fn ring_survives_the_cases_that_broke_earlier_versions() {
    let cases = [
        (60, "a token regenerated and used by a site that crashed at once, twice: fences did not rise"),
        (194, "a JOIN that arrived after the crash of its sender was relied on for ever"),
        (1_678, "a WHO-HAS that arrived after the crash of its sender stopped a live requester"),
        (11_545, "a WELCOME for an earlier incarnation"),
        (12_800, "a holder's token was refused in favour of a crashed requester"),
        (14_941, "a WELCOME that arrived after the crash of its sender stopped a live requester"),
        (20_139, "a token was declined by a site that had not rejoined, and requested in too low an epoch"),
        (50_312, "an old token was kept and used by a site that had not rejoined"),
    ];
    let algorithm = algorithm::with::<TokenRingRecovering>(());
    for (case, what) in cases {
        if let Err(failure) = check(&*algorithm, case..case + 1) {
            panic!("{what}:\n{failure}");
        }
    }
}

#[test]
fn lost_token_is_regenerated_and_the_next_site_enters() {
    let report = figure("token-ring-recovers");
    assert!(report.held(), "{:?}", report.violations);
    assert_eq!(report.entries, 1, "S4 enters; S2 crashed inside");
    assert_eq!(report.by_message["WHO-HAS"], 2);
    assert_eq!(report.by_message["ANSWER"], 2);
}

/// The detector suspects a paused site that has the token, and a second token is created.
#[test]
fn false_suspicion_leads_to_two_tokens_and_two_holders() {
    assert!(broken(&figure("token-ring-two-tokens")).contains(&Property::MutualExclusion));
    let mut right = Scenario::open("token-ring-two-tokens").unwrap().spec;
    right.detector = DetectorSpec::Perfect;
    assert!(run(&right).held(), "a perfect detector does not suspect a paused site");
    let mut wrong = Spec::new("token-ring-recovering", 4);
    wrong.detector = DetectorSpec::False(0.05);
    let report = simulate(&wrong, 1, 10, &Progress::default()).unwrap();
    assert!(broken(&report).contains(&Property::MutualExclusion), "{:?}", report.violations);
}

#[test]
fn remaining_sites_continue_after_a_crash_and_violate_exclusion_under_a_partition() {
    let dead = figure("remaining-sites");
    assert!(dead.held() && dead.entries == 2, "{:?}", dead.violations);
    let mut as_published = Scenario::open("remaining-sites").unwrap().spec;
    as_published.settings.clear();
    assert_eq!(broken(&run(&as_published)), [Property::NoDeadlock]);
    assert!(broken(&figure("remaining-sites-cut-off")).contains(&Property::MutualExclusion));
}

#[test]
fn another_quorum_replaces_one_with_a_crashed_arbiter() {
    let report = figure("maekawa-fallback");
    assert!(report.held() && report.entries == 2, "{:?}", report.violations);
    let mut without = Scenario::open("maekawa-fallback").unwrap().spec;
    without.settings.retain(|(name, _)| name == "quorums");
    assert_eq!(broken(&run(&without)), [Property::NoDeadlock]);
}

/// Requesting from another quorum is safe with every timeout, and live if the timeout is long enough for the
/// load.
#[test]
fn requesting_from_another_quorum_is_safe_and_live_with_a_long_timeout() {
    let mut retries = 0;
    let defaults = algorithm::with::<Majority>(Options::default());
    for (case, patient) in (0..80).flat_map(|case| [(case, false), (case, true)]) {
        let mut spec = spec_of(&*defaults, case);
        spec.network.fifo = true;
        spec.entries = spec.entries.min(100);
        let mut options = Options::default();
        let timeout =
            if patient { 20_000 + 40_000 * spec.sites as u64 } else { 2_000 + 2_000 * spec.sites as u64 };
        options.fallback = Some((Construction::Majority, timeout));
        let algorithm = algorithm::with::<Majority>(options);
        let (outcome, _) = Sim::new(&spec, &*algorithm, case, None).run(|_| true);
        let bad = |property| patient || !matches!(property, Property::NoStarvation | Property::NoDeadlock);
        let found = outcome.violations.iter().find(|violation| bad(violation.property));
        assert!(found.is_none(), "case {case}, patient: {patient}: {found:?}");
        let tries_other = outcome.rules.len() - 2;
        retries += outcome.rules[tries_other];
    }
    assert!(retries > 100, "{retries}");
}

#[test]
fn quorums_that_do_not_intersect_are_rejected_by_name() {
    let mut spec = Spec::new("maekawa", 3);
    let set = |name: &str, value: &str| (name.to_string(), value.to_string());
    spec.settings = vec![set("quorums", "1,2/2,3/3,1"), set("fallback", "1/2/3"), set("timeout", "5")];
    let refusal = simulate(&spec, 1, 1, &Progress::default()).unwrap_err().to_string();
    assert!(
        refusal.contains("the fallback of S1 (S1) and the quorum of S2 (S2, S3) share no site"),
        "{refusal}"
    );
    spec.settings = vec![set("timeout", "5")];
    let refusal = simulate(&spec, 1, 1, &Progress::default()).unwrap_err().to_string();
    assert!(refusal.contains("timeout and fallback belong together"), "{refusal}");
    spec.settings = vec![set("timeout", "-1"), set("fallback", "majority")];
    let refusal = simulate(&spec, 1, 1, &Progress::default()).unwrap_err().to_string();
    assert!(refusal.contains("timeout takes none or a time"), "{refusal}");
}

/// A duplicated message breaks path reversal: the same request is forwarded, or the same token used, twice.
#[test]
fn naimi_trehel_is_unsafe_with_duplicated_messages() {
    let mut spec = Spec::new("naimi-trehel", 5);
    spec.load = LoadSpec::Low;
    spec.network.duplicate = 0.05;
    assert!(!broken(&simulate(&spec, 1, 5, &Progress::default()).unwrap()).is_empty());
    spec.network.duplicate = 0.0;
    assert!(simulate(&spec, 1, 5, &Progress::default()).unwrap().held());
}

/// An arbiter that restarts with an initial state has forgotten its vote, and votes twice.
#[test]
fn arbiter_that_restarts_without_its_state_votes_twice() {
    let mut spec = Spec::new("maekawa", 3);
    spec.load = LoadSpec::Script;
    spec.settings = vec![("quorums".into(), "2/2/2".into())];
    let at = |t: f64, action| Scripted { at: Time::from_t(t).unwrap(), action };
    spec.cs = Some(lockkeeper_lab::simulator::delay::Delay::parse("5").unwrap());
    let (s1, s2, s3) = (SiteId(0), SiteId(1), SiteId(2));
    spec.script = vec![
        at(0.0, Action::Request(s1, Mode::Exclusive)),
        at(3.0, Action::Crash(s2)),
        at(3.1, Action::Recover(s2)),
        at(3.2, Action::Request(s3, Mode::Exclusive)),
    ];
    assert!(broken(&run(&spec)).contains(&Property::MutualExclusion));
    spec.script.drain(1..3);
    assert!(run(&spec).held());
}
