//! An independent record of the holders: a log to which every holder appends, also across processes.

use lockkeeper::Fence;
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
}

/// Checks a log. Panics if two clients held the lock at once or fences did not rise. A killed holder writes no more
/// lines, so a holder that writes after another has entered was inside at the same time.
pub fn judge(path: &PathBuf) -> Verdict {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<Line> = text.lines().map(Line::read).collect();
    let mut verdict = Verdict::default();
    let (mut inside, mut highest): (Option<(&str, u64)>, u64) = (None, 0);
    for (at, &Line { event, who, fence }) in lines.iter().enumerate() {
        match event {
            "enter" => {
                verdict.entries += 1;
                verdict.cut_short += usize::from(inside.is_some());
                // 0: an engine without fences.
                assert!(fence > highest || fence == 0, "fence {fence} after {highest}");
                (inside, highest) = (Some((who, fence)), fence);
            }
            "lost" => {}
            _ if inside != Some((who, fence)) => {
                assert!(in_doubt(&lines, at), "two holders at once: {event} {who} {fence}");
            }
            "exit" => inside = None,
            _ => {}
        }
    }
    verdict
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
