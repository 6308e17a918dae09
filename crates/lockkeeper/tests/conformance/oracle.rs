//! An independent witness of who is inside: a log that every holder appends to, also across processes.

use std::io::Write;
use std::path::{Path, PathBuf};

/// The log of one lock. Each line is one `write(2)` in append mode, so lines never mix.
pub struct Log(std::fs::File);

impl Log {
    pub fn open(path: &Path) -> Log {
        Log(std::fs::File::options().create(true).append(true).open(path).unwrap())
    }

    pub fn write(&mut self, event: &str, who: &str, fence: u64) {
        self.0.write_all(format!("{event} {who} {fence}\n").as_bytes()).unwrap();
    }
}

/// What a log says.
#[derive(Debug, Default)]
pub struct Verdict {
    pub entries: usize,
    /// Left without an exit: killed inside.
    pub killed_inside: usize,
}

/// Panics if two were inside at once or fences did not rise. A killed holder writes no more lines, so
/// whoever writes after another has entered was inside together with it.
pub fn judge(path: &PathBuf) -> Verdict {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut verdict = Verdict::default();
    let (mut inside, mut highest): (Option<(&str, u64)>, u64) = (None, 0);
    for line in text.lines() {
        let mut words = line.split(' ');
        let (event, who, fence) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let fence: u64 = fence.parse().unwrap();
        match event {
            "enter" => {
                verdict.entries += 1;
                verdict.killed_inside += usize::from(inside.is_some());
                // 0: an engine without fences.
                assert!(fence > highest || fence == 0, "fence {fence} after {highest}");
                (inside, highest) = (Some((who, fence)), fence);
            }
            _ => {
                assert_eq!(inside, Some((who, fence)), "two holders at once: {line:?}");
                if event == "exit" {
                    inside = None;
                }
            }
        }
    }
    verdict
}
