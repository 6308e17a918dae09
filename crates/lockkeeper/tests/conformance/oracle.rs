//! An independent record of the holders: a log to which every holder appends, also across processes.

use crate::backend::Guarantee;
use lockkeeper::Fence;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The log of one lock. Each line is one `write(2)` in append mode, so lines never mix.
pub struct Log(std::fs::File);

impl Log {
    pub fn open(path: &Path) -> Log {
        Log(std::fs::File::options().create(true).append(true).open(path).unwrap())
    }

    /// Appends a line; the fence is 0 if the engine has none.
    pub fn write(&mut self, event: &str, who: &str, fence: Option<Fence>) {
        let fence = fence.map_or(0, Fence::get);
        self.0.write_all(format!("{event} {who} {fence}\n").as_bytes()).unwrap();
    }
}

/// The result of checking a log.
#[derive(Debug, Default)]
pub struct Verdict {
    pub entries: usize,
    /// The number of holders without an exit: killed inside, or lost the lock.
    pub cut_short: usize,
    /// The number of lines of stale holders, which a resource that checks fences has rejected.
    pub rejected: usize,
}

/// Checks a log. Panics if two clients held the lock at once or fences did not rise. A killed holder writes no more
/// lines, so a holder that writes after another has entered was inside at the same time.
pub fn judge(path: &PathBuf) -> Verdict {
    judge_failovers(path, Guarantee::Exclusion)
}

/// The same for a log with failovers, each between the lines `failover` and `over`.
pub fn judge_failovers(path: &PathBuf, guarantee: Guarantee) -> Verdict {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<Line> = text.lines().map(Line::read).collect();
    let mut verdict = Verdict::default();
    let (mut inside, mut highest): (Option<(&str, u64)>, u64) = (None, 0);
    let (mut failovers, mut requests, mut fences) = (Failovers::default(), BTreeMap::new(), BTreeSet::new());
    for (at, &Line { event, who, fence }) in lines.iter().enumerate() {
        // Whether a failover may have lost the record of this hold.
        let before = requests.get(who).map_or(0, |requested: &Requested| requested.failovers);
        let may_be_stale = guarantee == Guarantee::Fence && failovers.begun > before && fence < highest;
        match event {
            "failover" => failovers.begun += 1,
            "over" => failovers.ended += 1,
            // Its hold comes after all holds so far, however the servers fail.
            "request" => {
                requests.insert(who, Requested { highest, failovers: failovers.ended });
            }
            "enter" => {
                verdict.entries += 1;
                assert!(fences.insert(fence) || fence == 0, "fence {fence} twice");
                let before = requests.get(who).map_or(0, |requested| requested.highest);
                assert!(fence > before || fence == 0, "fence {fence} after {before}");
                if may_be_stale {
                    verdict.rejected += 1;
                    continue;
                }
                verdict.cut_short += usize::from(inside.is_some());
                // 0: an engine without fences.
                assert!(fence > highest || fence == 0, "fence {fence} after {highest}");
                (inside, highest) = (Some((who, fence)), fence);
            }
            "lost" => {}
            _ if inside != Some((who, fence)) => {
                verdict.rejected += usize::from(may_be_stale);
                assert!(may_be_stale || in_doubt(&lines, at), "two holders at once: {event} {who} {fence}");
            }
            "exit" => inside = None,
            _ => {}
        }
    }
    verdict
}

/// The state of the log at a request.
struct Requested {
    /// The highest fence.
    highest: u64,
    /// The number of failovers that had ended.
    failovers: usize,
}

/// The failovers so far.
#[derive(Default)]
struct Failovers {
    begun: usize,
    ended: usize,
}

/// Whether a line may have been written too late: a holder checks its hold after each line, and was killed before
/// this check, or found the hold lost.
fn in_doubt(lines: &[Line], at: usize) -> bool {
    let Line { event, who, fence } = lines[at];
    let next = lines[at + 1..].iter().find(|line| line.who == who);
    event != "exit" && next.is_none() || next.is_some_and(|next| next.event == "lost" && next.fence == fence)
}

#[derive(Clone, Copy)]
struct Line<'a> {
    event: &'a str,
    who: &'a str,
    fence: u64,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Line<'a> {
        let mut words = line.split(' ');
        let (event, who, fence) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        Line { event, who, fence: fence.parse().unwrap() }
    }
}

#[test]
fn two_concurrent_holders_are_detected_and_a_hold_that_ended_is_accepted() {
    let check = |lines: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.replace(", ", "\n")).unwrap();
        std::panic::catch_unwind(|| judge(&file.path().to_owned())).map(|verdict| verdict.entries).ok()
    };
    assert_eq!(check("enter 1 1, inside 1 1, exit 1 1, enter 2 2, exit 2 2"), Some(2));
    assert_eq!(check("enter 1 1, enter 2 2, inside 1 1, exit 1 1"), None, "two at once");
    assert_eq!(check("enter 1 1, enter 2 2, exit 1 1"), None, "the first was still inside when it left");
    assert_eq!(check("enter 1 2, exit 1 2, enter 2 1"), None, "a fence that falls");
    assert_eq!(
        check("enter 1 1, enter 2 2, inside 1 1, lost 1 1, exit 2 2"),
        Some(2),
        "it found its hold gone"
    );
    assert_eq!(
        check("enter 1 1, enter 2 2, inside 1 1, inside 1 1, lost 1 1"),
        None,
        "after the first it looked"
    );
}

/// One failover, during which `1` has a hold that the servers forget.
#[test]
fn a_failover_excuses_the_holds_before_its_end_and_nothing_else() {
    let check = |guarantee: Guarantee, lines: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.replace(", ", "\n")).unwrap();
        let judged = std::panic::catch_unwind(|| judge_failovers(&file.path().to_owned(), guarantee));
        judged.map(|verdict| (verdict.entries, verdict.rejected)).ok()
    };
    let forgotten = "request 1 0, enter 1 5, failover n 0, request 2 0, enter 2 7, inside 1 5, over n 0, exit 1 5, exit 2 7";
    assert_eq!(check(Guarantee::Fence, forgotten), Some((2, 2)), "the resource rejects both lines of 1");
    assert_eq!(check(Guarantee::Exclusion, forgotten), None, "two at once");
    let late = "request 1 0, failover n 0, request 2 0, enter 2 7, over n 0, enter 1 5, exit 2 7";
    assert_eq!(check(Guarantee::Fence, late), Some((2, 1)), "the entry of 1 is rejected");
    for (lines, reason) in [
        (
            "failover n 0, over n 0, request 1 0, request 2 0, enter 1 5, enter 2 7, inside 1 5, exit 1 5",
            "two at once",
        ),
        (
            "request 1 0, request 2 0, enter 1 5, enter 2 7, inside 1 5, exit 1 5, failover n 0, over n 0",
            "too early",
        ),
        ("request 1 0, enter 1 5, failover n 0, over n 0, request 2 0, enter 2 4", "a fence that falls"),
        (
            "request 1 0, enter 1 5, failover n 0, request 2 0, enter 2 4",
            "a fence that falls during the failover",
        ),
        (
            "request 1 0, request 2 0, failover n 0, enter 1 5, over n 0, enter 2 5",
            "one fence for two holders",
        ),
    ] {
        assert_eq!(check(Guarantee::Fence, lines), None, "{reason}: {lines}");
    }
}
