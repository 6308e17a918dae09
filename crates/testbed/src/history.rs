//! The records of clients, and the check for mutual exclusion.

use crate::follow::LineFollower;
pub use lockkeeper_text::LockMode;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// One record, which a client's process writes when the event happens. Times are nanoseconds of the machine's clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldRecord {
    /// The name of the client.
    pub who: String,
    /// The number of the hold, unique within its process.
    pub hold: u64,
    /// The name of the lock.
    pub lock: String,
    /// The mode of the hold.
    pub how: LockMode,
    /// The fence of the hold; 0 if it has none.
    pub fence: u64,
    /// The time of the record.
    pub at_ns: u64,
    /// The event that the client records.
    pub what: HoldEvent,
}

/// The event that a client records for its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HoldEvent {
    /// The client is in the critical section, and its hold is valid until the given time.
    Inside {
        /// The end of the validity.
        until_ns: u64,
    },
    /// The client is about to release.
    Leaves,
    /// The client learned that the hold is being lost, and does not use it any more.
    Lost,
    /// The cluster reported the loss of a hold that it had recorded and that the client had renewed in time.
    LostDurable,
}

/// The file to which a process appends its records.
pub struct HistoryWriter(File);

impl HistoryWriter {
    /// Creates the file.
    pub fn create(path: &Path) -> Self {
        Self(File::create(path).expect("the directory of the records can be written"))
    }

    /// Appends a record.
    pub fn write(&mut self, line: &HoldRecord) {
        let mut text = serde_json::to_string(line).expect("a record can be encoded");
        text.push('\n');
        // One write, so that a process that is killed leaves complete lines.
        self.0.write_all(text.as_bytes()).expect("the disk of the records is not full");
    }
}

/// The current time of the clock that all records use.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// One hold, assembled from its records.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The name of the client.
    pub who: String,
    /// The name of the lock.
    pub lock: String,
    /// The mode of the hold.
    pub how: LockMode,
    /// The fence of the hold.
    pub fence: u64,
    /// The time of the entry.
    pub entered_ns: u64,
    /// The time of the last record that extended the validity.
    pub claimed_ns: u64,
    /// The end of the validity: until then, no conflicting hold may begin.
    pub until_ns: u64,
    /// The time at which the hold was lost, if it was.
    pub lost_ns: Option<u64>,
}

/// The history of all records in a directory.
#[derive(Debug)]
pub struct History {
    directory: PathBuf,
    files: BTreeMap<PathBuf, Follower>,
    /// All holds so far.
    pub holds: Vec<Hold>,
    /// The number of entries of each client.
    pub entries: BTreeMap<String, u64>,
    /// The number of lost holds of each client.
    pub losses: BTreeMap<String, u64>,
    /// The losses of holds that should have survived, one sentence each.
    pub lost_durable: Vec<String>,
}

/// The file of one process, and how far it is read.
#[derive(Debug, Default)]
struct Follower {
    tail: LineFollower,
    /// Records that are read, but newer than the last cut-off time.
    later: Vec<HoldRecord>,
    /// The index in [`History::holds`] by the process's own number of the hold.
    holds: BTreeMap<u64, usize>,
}

impl Follower {
    fn new_lines(&mut self, path: &Path) -> Vec<HoldRecord> {
        let mut lines = std::mem::take(&mut self.later);
        let parse = |line: Vec<u8>| serde_json::from_slice(&line).expect("a process writes complete lines");
        lines.extend(self.tail.new_lines(path).into_iter().map(parse));
        lines
    }
}

impl History {
    /// The history of the records in this directory. Nothing is read yet.
    pub fn of(directory: &Path) -> Self {
        Self {
            directory: directory.into(),
            files: BTreeMap::new(),
            holds: Vec::new(),
            entries: BTreeMap::new(),
            losses: BTreeMap::new(),
            lost_durable: Vec::new(),
        }
    }

    /// Reads new records up to the present time. Files are read one after the other while processes append to them. A
    /// record that is newer than the start of this call is kept for the next one; otherwise an entry could be read
    /// whose preceding exit, in a file read earlier, is missing.
    pub fn read(&mut self) {
        let until_ns = now_ns();
        let files = std::fs::read_dir(&self.directory).expect("the directory of the records exists");
        for path in files.flatten().map(|file| file.path()) {
            let mut follower = self.files.remove(&path).unwrap_or_default();
            for line in follower.new_lines(&path) {
                if line.at_ns > until_ns {
                    follower.later.push(line);
                } else {
                    self.apply(&mut follower.holds, line);
                }
            }
            self.files.insert(path, follower);
        }
    }

    fn apply(&mut self, holds: &mut BTreeMap<u64, usize>, line: HoldRecord) {
        let HoldRecord { who, hold, lock, how, fence, at_ns, what } = line;
        let known = holds.get(&hold).map(|&at| &mut self.holds[at]);
        match (what, known) {
            (HoldEvent::Inside { until_ns }, Some(hold)) => {
                (hold.claimed_ns, hold.until_ns) = (at_ns, hold.until_ns.max(until_ns));
            }
            (HoldEvent::Inside { until_ns }, None) => {
                *self.entries.entry(who.clone()).or_default() += 1;
                holds.insert(hold, self.holds.len());
                self.holds.push(Hold {
                    who,
                    lock,
                    how,
                    fence,
                    entered_ns: at_ns,
                    claimed_ns: at_ns,
                    until_ns,
                    lost_ns: None,
                });
            }
            (HoldEvent::Leaves, Some(hold)) => hold.until_ns = hold.until_ns.min(at_ns),
            (HoldEvent::Lost | HoldEvent::LostDurable, known) => {
                if what == HoldEvent::LostDurable {
                    self.lost_durable
                        .push(format!("{who} lost `{lock}`, whose hold was recorded, at {at_ns}"));
                }
                *self.losses.entry(who).or_default() += 1;
                if let Some(hold) = known {
                    (hold.until_ns, hold.lost_ns) = (hold.until_ns.min(at_ns), Some(at_ns));
                }
            }
            (HoldEvent::Leaves, None) => {}
        }
    }

    /// All violations of mutual exclusion, and losses of durable holds, in the history so far, one sentence each.
    pub fn faults(&self) -> Vec<String> {
        let mut locks: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
        for hold in &self.holds {
            locks.entry(&hold.lock).or_default().push(hold);
        }
        let mut faults = self.lost_durable.clone();
        for holds in locks.values_mut() {
            holds.sort_by_key(|hold| hold.entered_ns);
            check(holds, &mut faults);
        }
        faults
    }
}

/// Checks the holds of one lock, ordered by entry.
fn check(holds: &[&Hold], faults: &mut Vec<String>) {
    let mut inside: Vec<&Hold> = Vec::new();
    let (mut highest_alone, mut highest) = (0, 0);
    for &second in holds {
        inside.retain(|first| second.entered_ns < first.until_ns);
        for first in inside.iter().filter(|first| !second.may_overlap(first, inside.len())) {
            faults.push(format!(
                "`{}`: {} entered (fence {}, {:?}) {} us before the hold of {} (fence {}, {:?}) ended",
                second.lock,
                second.who,
                second.fence,
                second.how,
                (first.until_ns - second.entered_ns) / 1000,
                first.who,
                first.fence,
                first.how,
            ));
        }
        inside.push(second);
        let below = match second.how {
            LockMode::Exclusive => highest,
            LockMode::Shared => highest_alone,
            // Permits have no fences.
            LockMode::Permit { .. } => continue,
        };
        if second.fence <= below {
            faults.push(format!("`{}`: fence {below} was followed by {}", second.lock, second.fence));
        }
        highest = highest.max(second.fence);
        if second.how == LockMode::Exclusive {
            highest_alone = highest_alone.max(second.fence);
        }
    }
}

impl Hold {
    /// Whether both holds may be valid at once, with this many valid already.
    fn may_overlap(&self, other: &Hold, inside: usize) -> bool {
        match self.how {
            LockMode::Exclusive => false,
            LockMode::Shared => other.how == LockMode::Shared,
            LockMode::Permit { of: permits } => self.how == other.how && inside < permits as usize,
        }
    }
}

/// Checks the checker: it must find each violation that is forged here, and none in correct histories. Writes into an
/// empty directory.
pub fn assert_forgeries_are_found(directory: &Path) {
    let line = |hold, how, fence, at_ns, what| {
        let (who, lock) = (String::from("a client"), String::from("l"));
        HoldRecord { who, hold, lock, how, fence, at_ns, what }
    };
    let inside =
        |hold, how, fence, from, until_ns| line(hold, how, fence, from, HoldEvent::Inside { until_ns });
    let mut runs = 0;
    let mut judged = |lines: &[HoldRecord]| {
        runs += 1;
        let directory = directory.join(runs.to_string());
        std::fs::create_dir(&directory).expect("the directory is empty");
        let (first, rest) = lines.split_first().expect("at least one record");
        let mut writer = HistoryWriter::create(&directory.join("a"));
        writer.write(first);
        let mut story = History::of(&directory);
        story.read();
        rest.iter().for_each(|line| writer.write(line));
        story.read();
        story.faults().len()
    };
    let (alone, shared, permit) = (LockMode::Exclusive, LockMode::Shared, LockMode::Permit { of: 2 });
    let (first, left) = (inside(1, alone, 5, 10, 100), line(1, alone, 5, 20, HoldEvent::Leaves));
    assert_eq!(judged(&[first.clone(), left.clone(), inside(2, alone, 6, 30, 90)]), 0);
    assert_eq!(judged(&[first.clone(), inside(2, alone, 6, 30, 90)]), 1, "two at once");
    assert_eq!(
        judged(&[first.clone(), left.clone(), inside(2, alone, 5, 30, 90)]),
        1,
        "the same fence twice"
    );
    let readers = [inside(1, shared, 5, 10, 100), inside(2, shared, 5, 20, 40)];
    assert_eq!(judged(&readers), 0, "readers share");
    let writer = |fence, at| inside(3, alone, fence, at, 300);
    assert_eq!(judged(&[readers[0].clone(), readers[1].clone(), writer(6, 50)]), 1, "a writer among readers");
    assert_eq!(
        judged(&[readers[0].clone(), readers[1].clone(), writer(5, 150)]),
        1,
        "a writer with an old fence"
    );
    assert_eq!(judged(&[first.clone(), left, inside(2, shared, 4, 30, 90)]), 1, "a reader with an old fence");
    let lost = |what| line(1, alone, 5, 20, what);
    assert_eq!(judged(&[first.clone(), lost(HoldEvent::Lost)]), 0, "a loss that is reported");
    assert_eq!(judged(&[first.clone(), lost(HoldEvent::LostDurable)]), 1, "a recorded hold that is lost");
    let permits = [1, 2, 3].map(|hold| inside(hold, permit, 0, 10 * hold, 100));
    assert_eq!(judged(&permits[..2]), 0, "two permits of two");
    assert!(judged(&permits) > 0, "three permits of two");
    assert!(
        judged(&[permits[0].clone(), inside(2, LockMode::Permit { of: 3 }, 0, 20, 90)]) > 0,
        "permits of different numbers"
    );
}

#[cfg(test)]
mod tests {
    #[test]
    fn checker_finds_every_forged_violation() {
        super::assert_forgeries_are_found(tempfile::tempdir().unwrap().path());
    }
}
