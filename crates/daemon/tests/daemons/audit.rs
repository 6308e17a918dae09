//! The daemons' audit logs, compared with the records of their clients.

use lockkeeper_testbed::follow::LineFollower;
use lockkeeper_testbed::history::{Hold, LockMode};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The relevant fields of a line.
#[derive(Clone, Debug, Deserialize)]
struct Entry {
    what: String,
    who: String,
    #[serde(default)]
    lock: String,
    fence: Option<u64>,
    /// Number of further fences that belong to the grant.
    #[serde(default)]
    more: u64,
    #[serde(default)]
    why: String,
}

/// Grants within this time before a kill may be missing: a thread of its own writes the log, so the last lines of a
/// killed daemon may be incomplete or missing.
const UNWRITTEN_NS: u64 = 5_000_000_000;

/// The contents of all logs together.
#[derive(Default)]
pub struct Audit {
    logs: Vec<(PathBuf, LineFollower)>,
    /// The clients to which each fence of each lock was granted: one, unless they share the lock.
    grants: BTreeMap<(String, u64), Vec<String>>,
    /// Number of grants with a fence.
    pub fenced: u64,
    /// Number of these that were delegated, that is, permitted more than one entry.
    pub kept: u64,
    /// Number of grants in each log.
    pub served: Vec<u64>,
    /// Number of permits of each lock that were granted to each client.
    permits: BTreeMap<(String, String), usize>,
    /// The principals whose requests were refused.
    pub refused: BTreeSet<String>,
    /// The times at which daemons were killed.
    kills_ns: Vec<u64>,
    /// Number of incomplete lines, written by a daemon while it was killed.
    torn: usize,
    faults: Vec<String>,
}

impl Audit {
    pub fn new(logs: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            logs: logs.into_iter().map(|path| (path, LineFollower::default())).collect(),
            ..Self::default()
        }
    }

    /// Records that a daemon is being killed.
    pub fn kill(&mut self, at_ns: u64) {
        self.kills_ns.push(at_ns);
    }

    /// Reads new lines.
    pub fn read(&mut self) {
        let mut logs = std::mem::take(&mut self.logs);
        self.served.resize(logs.len(), 0);
        for (place, (path, tail)) in logs.iter_mut().enumerate() {
            for line in tail.new_lines(path) {
                match serde_json::from_slice(&line) {
                    Ok(entry) => self.record(entry, place),
                    Err(_) => self.torn += 1,
                }
            }
        }
        self.logs = logs;
    }

    fn record(&mut self, entry: Entry, place: usize) {
        let Entry { what, who, lock, fence, more, why } = entry;
        if what == "grant" {
            self.served[place] += 1;
        }
        match (what.as_str(), fence) {
            ("grant", Some(fence)) if fence > 0 => {
                self.fenced += 1;
                self.kept += u64::from(more > 0);
                for fence in fence..=fence + more {
                    self.grants.entry((lock.clone(), fence)).or_default().push(who.clone());
                }
            }
            ("grant", _) => *self.permits.entry((lock, who)).or_default() += 1,
            ("refuse", _) => {
                if why.is_empty() {
                    self.faults.push(format!("{who} was refused `{lock}` without a reason"));
                }
                self.refused.insert(who);
            }
            _ => {}
        }
    }

    /// All contradictions between these holds and the logs so far.
    pub fn faults(&self, holds: &[Hold]) -> Vec<String> {
        let mut faults = self.faults.clone();
        if self.torn > self.kills_ns.len() {
            faults.push(format!("{} lines are torn, of {} daemons killed", self.torn, self.kills_ns.len()));
        }
        let excused = |hold: &Hold| {
            self.kills_ns
                .iter()
                .any(|&kill| (hold.entered_ns..hold.entered_ns + UNWRITTEN_NS).contains(&kill))
        };
        let shared: BTreeSet<&str> =
            holds.iter().filter(|hold| hold.how == LockMode::Shared).map(|hold| hold.lock.as_str()).collect();
        for ((lock, fence), whos) in &self.grants {
            if whos.len() > 1 && !shared.contains(lock.as_str()) {
                faults.push(format!("`{lock}`: {} were granted the fence {fence}", whos.join(" and ")));
            }
        }
        let mut permits: BTreeMap<(String, String), usize> = BTreeMap::new();
        for hold in holds {
            let Hold { who, lock, how, fence, .. } = hold;
            let granted = self.grants.get(&(lock.clone(), *fence)).map_or(&[][..], Vec::as_slice);
            match how {
                LockMode::Permit { .. } if excused(hold) => {}
                LockMode::Permit { .. } => *permits.entry((lock.clone(), who.clone())).or_default() += 1,
                LockMode::Shared if granted.contains(who) => {}
                LockMode::Exclusive if granted == [who.clone()] => {}
                _ if granted.is_empty() && excused(hold) => {}
                _ => faults.push(format!("`{lock}`: {who} had the fence {fence}, granted to {granted:?}")),
            }
        }
        for ((lock, who), held) in permits {
            let granted = self.permits.get(&(lock.clone(), who.clone())).copied().unwrap_or(0);
            if granted < held {
                faults.push(format!("`{lock}`: {who} had a permit {held} times, and was granted {granted}"));
            }
        }
        faults
    }
}

/// Checks that the comparison rejects forged logs. Writes into an empty directory.
pub fn assert_forged_logs_are_found(directory: &Path) {
    let mut runs = 0;
    let mut judged = |lines: &[&str], holds: &[Hold], kill: Option<u64>| {
        runs += 1;
        let path = directory.join(runs.to_string());
        std::fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>())
            .expect("an empty directory");
        let mut audit = Audit::new([path]);
        audit.read();
        kill.into_iter().for_each(|at_ns| audit.kill(at_ns));
        audit.faults(holds).len()
    };
    let hold = |who: &str, how, fence| Hold {
        who: who.into(),
        lock: "l".into(),
        how,
        fence,
        entered_ns: 10,
        claimed_ns: 10,
        until_ns: 20,
        lost_ns: None,
    };
    let granted = r#"{"what":"grant","by":"http","who":"a","lock":"l","fence":5}"#;
    let alone = |who: &str, fence| hold(who, LockMode::Exclusive, fence);
    assert_eq!(judged(&[granted], &[alone("a", 5)], None), 0);
    assert_eq!(judged(&[granted], &[alone("a", 6)], None), 1, "never granted");
    assert_eq!(judged(&[granted], &[alone("b", 5)], None), 1, "granted to another client");
    assert_eq!(judged(&[granted, granted], &[], None), 1, "one fence twice");
    let kept = r#"{"what":"grant","by":"native","who":"b","lock":"l","fence":3,"more":1}"#;
    assert_eq!(judged(&[kept, granted], &[alone("b", 3), alone("b", 4), alone("a", 5)], None), 0);
    assert_eq!(judged(&[kept], &[alone("b", 5)], None), 1, "one more, and not two");
    assert_eq!(
        judged(&[&kept.replace("1}", "2}"), granted], &[], None),
        1,
        "set aside, and given to another"
    );
    let reads = hold("a", LockMode::Shared, 5);
    assert_eq!(judged(&[granted, granted], &[reads.clone(), reads.clone()], None), 0, "readers have one");
    assert_eq!(judged(&[granted, granted], &[reads, alone("a", 5)], None), 1, "a writer has another");
    assert_eq!(judged(&[], &[alone("a", 5)], Some(UNWRITTEN_NS)), 0, "written too late");
    assert_eq!(judged(&[], &[alone("a", 5)], Some(9)), 1, "no kill shortly after the grant");
    assert_eq!(judged(&[r#"{"what":"refuse","by":"http","who":"a"}"#], &[], None), 1, "no reason");
    assert_eq!(judged(&["{"], &[], None), 1, "incomplete, though no daemon was killed");
    let (permit, granted) =
        (hold("a", LockMode::Permit { of: 2 }, 0), r#"{"what":"grant","who":"a","lock":"l"}"#);
    assert_eq!(judged(&[granted, granted], &[permit.clone(), permit.clone()], None), 0);
    assert_eq!(judged(&[granted], &[permit.clone(), permit], None), 1, "a permit too many");
}
