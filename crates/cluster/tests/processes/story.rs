//! What the clients did, and whether that is a story of mutual exclusion.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

/// One line that a client's process writes the moment it happens. Times are nanoseconds of one clock, the machine's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Which member.
    pub member: u32,
    /// Which hold: a number that no other hold of this process has.
    pub hold: u64,
    /// On which lock.
    pub lock: String,
    /// With which fence.
    pub fence: u64,
    /// When.
    pub at_ns: u64,
    /// What.
    pub what: What,
}

/// What a client says of its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// In the critical section, and sure to be alone until then.
    Inside { until_ns: u64 },
    /// About to give the lock back.
    Leaves,
    /// Told that the hold is being lost, or found out: it uses it no more.
    Lost,
}

/// Where a process writes its lines.
pub struct Writer(File);

impl Writer {
    pub fn create(path: &Path) -> Self {
        Self(File::create(path).expect("the story's directory can be written"))
    }

    pub fn write(&mut self, line: &Line) {
        let mut text = serde_json::to_string(line).expect("a line is plain data");
        text.push('\n');
        // One write: whoever is killed leaves whole lines.
        self.0.write_all(text.as_bytes()).expect("the story's disk is not full");
    }
}

/// One hold, from its lines.
#[derive(Debug)]
struct Hold {
    member: u32,
    fence: u64,
    entered_ns: u64,
    /// Until when nobody else may have been inside.
    alone_until_ns: u64,
}

/// What a directory full of lines comes to.
#[derive(Debug, Default)]
pub struct Story {
    /// How often each member's clients entered.
    pub entries: BTreeMap<u32, u64>,
    /// How often each member's clients lost a hold.
    pub losses: BTreeMap<u32, u64>,
    holds: BTreeMap<String, Vec<Hold>>,
    until_ns: u64,
}

/// The clock of every line.
pub fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

impl Story {
    /// Reads what was written until now. Files are read one after the other while processes write on; what happened after the first was opened
    /// is left out, or an entry would be known and the exit before it not.
    pub fn read(directory: &Path) -> Self {
        let mut story = Self { until_ns: now_ns(), ..Self::default() };
        let files = std::fs::read_dir(directory).expect("the story's directory is there");
        for file in files.flatten() {
            story.read_process(&file.path());
        }
        story
    }

    fn read_process(&mut self, path: &Path) {
        let mut open: BTreeMap<u64, (String, Hold)> = BTreeMap::new();
        let file = BufReader::new(File::open(path).expect("listed a moment ago"));
        // The last line of a living process may not be whole yet.
        let lines = file.lines().map_while(Result::ok).map_while(|line| serde_json::from_str(&line).ok());
        for line in lines {
            let Line { member, hold, lock, fence, at_ns, what } = line;
            if at_ns > self.until_ns {
                continue;
            }
            match what {
                What::Inside { until_ns } => {
                    let known = open.entry(hold).or_insert_with(|| {
                        *self.entries.entry(member).or_default() += 1;
                        (lock, Hold { member, fence, entered_ns: at_ns, alone_until_ns: 0 })
                    });
                    known.1.alone_until_ns = known.1.alone_until_ns.max(until_ns);
                }
                What::Leaves => {
                    if let Some((_, hold)) = open.get_mut(&hold) {
                        hold.alone_until_ns = hold.alone_until_ns.min(at_ns);
                    }
                }
                What::Lost => {
                    *self.losses.entry(member).or_default() += 1;
                    if let Some((_, hold)) = open.get_mut(&hold) {
                        hold.alone_until_ns = hold.alone_until_ns.min(at_ns);
                    }
                }
            }
        }
        for (lock, hold) in open.into_values() {
            self.holds.entry(lock).or_default().push(hold);
        }
    }

    /// Every way in which the story is not one of mutual exclusion.
    pub fn faults(&mut self) -> Vec<String> {
        let mut faults = Vec::new();
        for (lock, holds) in &mut self.holds {
            holds.sort_by_key(|hold| hold.entered_ns);
            for pair in holds.windows(2) {
                let [first, second] = pair else { continue };
                if second.entered_ns < first.alone_until_ns {
                    faults.push(format!(
                        "`{lock}`: M{} entered (fence {}) {} us before M{}'s hold (fence {}) ended",
                        second.member,
                        second.fence,
                        (first.alone_until_ns - second.entered_ns) / 1000,
                        first.member,
                        first.fence
                    ));
                }
                if second.fence <= first.fence {
                    let (before, after) = (first.fence, second.fence);
                    faults.push(format!("`{lock}`: the fence {before} was followed by {after}"));
                }
            }
        }
        faults
    }
}

/// The judge must be able to say no.
pub fn the_judge_sees_forgeries() {
    let line = |hold, fence, at_ns, what| Line { member: 1, hold, lock: "l".into(), fence, at_ns, what };
    let inside = |until_ns| What::Inside { until_ns };
    let judged = |lines: &[Line]| {
        let directory = tempfile::tempdir().expect("a directory");
        let mut writer = Writer::create(&directory.path().join("a"));
        lines.iter().for_each(|line| writer.write(line));
        Story::read(directory.path()).faults().len()
    };
    let (first, left) = (line(1, 5, 10, inside(100)), line(1, 5, 20, What::Leaves));
    assert_eq!(judged(&[first.clone(), left.clone(), line(2, 6, 30, inside(90))]), 0);
    assert_eq!(judged(&[first.clone(), line(2, 6, 30, inside(90))]), 1, "two at once");
    assert_eq!(judged(&[first, left, line(2, 5, 30, inside(90))]), 1, "a fence twice");
}
