//! Members with one guard disabled by a bug switch, each with a small system in which the search finds a violation.

use super::bounds::{Bounds, Holder};
use super::error::ViewsError;
use lockkeeper_member::BugSwitch;

/// A bug switch, and a system in which the search finds its violation.
#[derive(Clone, Copy, Debug)]
pub struct BugSwitchCase {
    /// The name of the bug switch.
    pub name: &'static str,
    /// The cluster's algorithm.
    pub algorithm: &'static str,
    /// The bounds of the system.
    pub bounds: Bounds,
}

impl BugSwitchCase {
    /// The bug switch, found by its name.
    pub fn bug(&self) -> Option<BugSwitch> {
        BugSwitch::parse(self.name).ok()
    }
}

const NAIMI_TREHEL: &str = "naimi-trehel";
const RICART_AGRAWALA: &str = "ricart-agrawala";

/// All bug switches that this search finds. The simulator finds the others: they concern clients whose leases
/// differ from those of their members, or leases that are lost without need (`freeze-stops-renewals`).
pub fn all() -> Vec<BugSwitchCase> {
    let mut all = of_views();
    all.extend(of_recorded_holds());
    all
}

/// Bug switches of recorded holds and their adoption.
fn of_recorded_holds() -> Vec<BugSwitchCase> {
    let holder = Holder { recorded: true, contacts: 0, releases: false, returns: true };
    let adoption = Bounds { units: 4, lock_requests: 0, holder: Some(holder), ..Bounds::default() };
    let contact = Bounds { holder: Some(Holder { contacts: 2, ..holder }), ..adoption };
    let orphan = Bounds { units: 6, lock_requests: 1, ..adoption };
    let gone =
        Bounds { units: 5, service: true, holder: Some(Holder { returns: false, ..holder }), ..orphan };
    let releases = Holder { contacts: 1, releases: true, ..holder };
    let release = Bounds { holder: Some(releases), ..adoption };
    let granted = Holder { recorded: false, contacts: 1, ..holder };
    let recording = Bounds { holder: Some(granted), ..adoption };
    let short = Bounds { holder: Some(Holder { recorded: false, ..releases }), ..release };
    let two_views = Bounds { units: 5, elections: 1, views: 2, ..adoption };
    let leave = Bounds { crashes: 0, leaves: 1, ..adoption };
    let find = |name, bounds| BugSwitchCase { name, algorithm: NAIMI_TREHEL, bounds };
    vec![
        find("promised-before-commit", recording),
        find("promised-without-lease", contact),
        find("orphan-owes-nothing", orphan),
        find("ttl-from-grant", orphan),
        find("orphan-kept-for-ever", gone),
        find("freed-before-end", release),
        find("ending-not-reported", release),
        find("proposed-counts-as-short", short),
        find("excluded-records-accepted", recording),
        find("table-for-missing-only", two_views),
        find("departed-not-adopted", leave),
    ]
}

fn of_views() -> Vec<BugSwitchCase> {
    let none = Bounds { crashes: 0, ..Bounds::default() };
    let sleep = Bounds { sleeps: 1, ..none };
    let crash = Bounds { crashes: 1, service: true, ..none };
    let two_requests = Bounds { lock_requests: 2, ..crash };
    let election = Bounds { elections: 1, service: true, ..none };
    let full_clock = Bounds { units: 2, lock_requests: 2, largest_clock: Some(1), ..election };
    let four = Bounds { members: 4, crashes: 1, ..none };
    let late = Bounds { members: 2, units: 5, lock_requests: 0, late_leases: true, ..none };
    let drifting = Bounds { units: 6, fast: Some(0), ..late };
    let find = |name, algorithm, bounds| BugSwitchCase { name, algorithm, bounds };
    vec![
        find("no-wait", NAIMI_TREHEL, sleep),
        find("proposer-waits", NAIMI_TREHEL, sleep),
        find("waits-for-known-holders-only", NAIMI_TREHEL, sleep),
        find("no-freeze", NAIMI_TREHEL, sleep),
        find("answers-old-epochs", NAIMI_TREHEL, sleep),
        find("grants-without-lease", NAIMI_TREHEL, sleep),
        find("higher-epochs-dropped", RICART_AGRAWALA, crash),
        find("lower-epochs-accepted", NAIMI_TREHEL, two_requests),
        find("report-changes", NAIMI_TREHEL, two_requests),
        find("idle-instance-dropped", NAIMI_TREHEL, two_requests),
        find("two-coordinators", NAIMI_TREHEL, election),
        find("minority-grants", NAIMI_TREHEL, election),
        find("unstarted-view-left", NAIMI_TREHEL, full_clock),
        find("starts-without-every-report", NAIMI_TREHEL, four),
        find("lease-from-arrival", NAIMI_TREHEL, late),
        find("no-drift", NAIMI_TREHEL, drifting),
    ]
}

/// Searches with the exhibit of this name, and returns the run that violates a property, one sentence per line.
pub fn search(name: &str) -> Result<String, ViewsError> {
    let exhibit = all().into_iter().find(|exhibit| exhibit.name == name);
    let exhibit = exhibit.ok_or_else(|| ViewsError::UnknownExhibit { name: name.into() })?;
    let found = super::check(exhibit.algorithm, exhibit.bounds, exhibit.bug(), |_| true)?;
    let wrong = found.wrong.ok_or_else(|| ViewsError::NotFound { name: name.into() })?;
    Ok(lockkeeper_lab::checker::counterexamples::story_text(&wrong.run, &wrong.what))
}
