//! What the clients did, and whether that is a story of mutual exclusion.

use crate::tail::Tail;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// One line that a client's process writes the moment it happens. Times are nanoseconds of one clock, the machine's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Which client.
    pub who: String,
    /// Which hold: a number that no other hold of this process has.
    pub hold: u64,
    /// On which lock.
    pub lock: String,
    /// How it is held.
    pub how: How,
    /// With which fence; 0 if it has none.
    pub fence: u64,
    /// When.
    pub at_ns: u64,
    /// What.
    pub what: What,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// By nobody else.
    Alone,
    /// Together with others who share it.
    Shared,
    /// With one of so many permits.
    Permit(u32),
}

/// What a client says of its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// In the critical section, and sure that nobody is who must not be, until then.
    Inside {
        /// Until when it is sure.
        until_ns: u64,
    },
    /// About to give the lock back.
    Leaves,
    /// Told that the hold is being lost, or found out: it uses it no more.
    Lost,
}

/// Where a process writes its lines.
pub struct Writer(File);

impl Writer {
    /// A new file of lines.
    pub fn create(path: &Path) -> Self {
        Self(File::create(path).expect("the story's directory can be written"))
    }

    /// Writes a line.
    pub fn write(&mut self, line: &Line) {
        let mut text = serde_json::to_string(line).expect("a line is plain data");
        text.push('\n');
        // One write: whoever is killed leaves whole lines.
        self.0.write_all(text.as_bytes()).expect("the story's disk is not full");
    }
}

/// The clock of every line.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// One hold, from its lines.
#[derive(Clone, Debug)]
pub struct Hold {
    /// Whose.
    pub who: String,
    /// On which lock.
    pub lock: String,
    /// How.
    pub how: How,
    /// With which fence.
    pub fence: u64,
    /// Since when.
    pub entered_ns: u64,
    /// When it was last said to be sure.
    pub claimed_ns: u64,
    /// Until when nobody may have been inside who must not be.
    pub until_ns: u64,
    /// When it was lost, if it was.
    pub lost_ns: Option<u64>,
}

/// What a directory full of lines comes to.
#[derive(Debug)]
pub struct Story {
    directory: PathBuf,
    files: BTreeMap<PathBuf, Follower>,
    /// Every hold.
    pub holds: Vec<Hold>,
    /// How often each client entered.
    pub entries: BTreeMap<String, u64>,
    /// How often each client lost a hold.
    pub losses: BTreeMap<String, u64>,
}

/// The file of one process, read as far as it goes.
#[derive(Debug, Default)]
struct Follower {
    tail: Tail,
    /// Read, but too new.
    later: Vec<Line>,
    /// By the process' own numbers.
    holds: BTreeMap<u64, usize>,
}

impl Follower {
    fn new_lines(&mut self, path: &Path) -> Vec<Line> {
        let mut lines = std::mem::take(&mut self.later);
        let parse = |line: Vec<u8>| serde_json::from_slice(&line).expect("a process writes whole lines");
        lines.extend(self.tail.new_lines(path).into_iter().map(parse));
        lines
    }
}

impl Story {
    /// The story that is told in this directory. Nothing is read yet.
    pub fn of(directory: &Path) -> Self {
        Self {
            directory: directory.into(),
            files: BTreeMap::new(),
            holds: Vec::new(),
            entries: BTreeMap::new(),
            losses: BTreeMap::new(),
        }
    }

    /// Reads on. Files are read one after the other while processes write on; what happened after the first was opened is left for the
    /// next time, or an entry would be known and the exit before it not.
    pub fn read(&mut self) {
        let until_ns = now_ns();
        let files = std::fs::read_dir(&self.directory).expect("the story's directory is there");
        for path in files.flatten().map(|file| file.path()) {
            let mut follower = self.files.remove(&path).unwrap_or_default();
            for line in follower.new_lines(&path) {
                if line.at_ns > until_ns {
                    follower.later.push(line);
                } else {
                    self.tell(&mut follower.holds, line);
                }
            }
            self.files.insert(path, follower);
        }
    }

    fn tell(&mut self, holds: &mut BTreeMap<u64, usize>, line: Line) {
        let Line { who, hold, lock, how, fence, at_ns, what } = line;
        let known = holds.get(&hold).map(|&at| &mut self.holds[at]);
        match (what, known) {
            (What::Inside { until_ns }, Some(hold)) => {
                (hold.claimed_ns, hold.until_ns) = (at_ns, hold.until_ns.max(until_ns));
            }
            (What::Inside { until_ns }, None) => {
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
            (What::Leaves, Some(hold)) => hold.until_ns = hold.until_ns.min(at_ns),
            (What::Lost, known) => {
                *self.losses.entry(who).or_default() += 1;
                if let Some(hold) = known {
                    (hold.until_ns, hold.lost_ns) = (hold.until_ns.min(at_ns), Some(at_ns));
                }
            }
            (What::Leaves, None) => {}
        }
    }

    /// Every way in which the story so far is not one of mutual exclusion.
    pub fn faults(&self) -> Vec<String> {
        let mut locks: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
        for hold in &self.holds {
            locks.entry(&hold.lock).or_default().push(hold);
        }
        let mut faults = Vec::new();
        for holds in locks.values_mut() {
            holds.sort_by_key(|hold| hold.entered_ns);
            judge(holds, &mut faults);
        }
        faults
    }
}

/// The holds of one lock, in the order of entering.
fn judge(holds: &[&Hold], faults: &mut Vec<String>) {
    let mut inside: Vec<&Hold> = Vec::new();
    let (mut highest_alone, mut highest) = (0, 0);
    for &second in holds {
        inside.retain(|first| second.entered_ns < first.until_ns);
        for first in inside.iter().filter(|first| !second.goes_with(first, inside.len())) {
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
            How::Alone => highest,
            How::Shared => highest_alone,
            // Permits have no fences.
            How::Permit(_) => continue,
        };
        if second.fence <= below {
            faults.push(format!("`{}`: the fence {below} was followed by {}", second.lock, second.fence));
        }
        highest = highest.max(second.fence);
        if second.how == How::Alone {
            highest_alone = highest_alone.max(second.fence);
        }
    }
}

impl Hold {
    /// Whether both may be inside, with so many inside already.
    fn goes_with(&self, other: &Hold, inside: usize) -> bool {
        match self.how {
            How::Alone => false,
            How::Shared => other.how == How::Shared,
            How::Permit(permits) => self.how == other.how && inside < permits as usize,
        }
    }
}

/// The judge must be able to say no: everything is judged right that is forged here. Writes into an empty directory.
pub fn the_judge_sees_forgeries(directory: &Path) {
    let line = |hold, how, fence, at_ns, what| {
        let (who, lock) = (String::from("a client"), String::from("l"));
        Line { who, hold, lock, how, fence, at_ns, what }
    };
    let inside = |hold, how, fence, from, until_ns| line(hold, how, fence, from, What::Inside { until_ns });
    let mut runs = 0;
    let mut judged = |lines: &[Line]| {
        runs += 1;
        let directory = directory.join(runs.to_string());
        std::fs::create_dir(&directory).expect("in an empty directory");
        let (first, rest) = lines.split_first().expect("some lines");
        let mut writer = Writer::create(&directory.join("a"));
        writer.write(first);
        let mut story = Story::of(&directory);
        story.read();
        rest.iter().for_each(|line| writer.write(line));
        story.read();
        story.faults().len()
    };
    let (alone, shared, permit) = (How::Alone, How::Shared, How::Permit(2));
    let (first, left) = (inside(1, alone, 5, 10, 100), line(1, alone, 5, 20, What::Leaves));
    assert_eq!(judged(&[first.clone(), left.clone(), inside(2, alone, 6, 30, 90)]), 0);
    assert_eq!(judged(&[first.clone(), inside(2, alone, 6, 30, 90)]), 1, "two at once");
    assert_eq!(judged(&[first.clone(), left.clone(), inside(2, alone, 5, 30, 90)]), 1, "a fence twice");
    let readers = [inside(1, shared, 5, 10, 100), inside(2, shared, 5, 20, 40)];
    assert_eq!(judged(&readers), 0, "readers share");
    let writer = |fence, at| inside(3, alone, fence, at, 300);
    assert_eq!(judged(&[readers[0].clone(), readers[1].clone(), writer(6, 50)]), 1, "a writer among readers");
    assert_eq!(judged(&[readers[0].clone(), readers[1].clone(), writer(5, 150)]), 1, "a writer's old fence");
    assert_eq!(judged(&[first, left, inside(2, shared, 4, 30, 90)]), 1, "a reader's old fence");
    let permits = [1, 2, 3].map(|hold| inside(hold, permit, 0, 10 * hold, 100));
    assert_eq!(judged(&permits[..2]), 0, "two permits of two");
    assert!(judged(&permits) > 0, "three permits of two");
    assert!(judged(&[permits[0].clone(), inside(2, How::Permit(3), 0, 20, 90)]) > 0, "two counts of permits");
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_judge_sees_forgeries() {
        super::the_judge_sees_forgeries(tempfile::tempdir().unwrap().path());
    }
}
