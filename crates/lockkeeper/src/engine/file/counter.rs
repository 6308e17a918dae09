//! The fence counter. The parent module explains its durability.

use super::store::Files;
use crate::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The number of fences that one durable write covers. The fence skips at most this many numbers after a power
/// failure.
pub(super) const BLOCK: u64 = 1000;

/// The highest fence: fences must fit a signed 64-bit column.
const LAST: u64 = i64::MAX as u64;

/// The highest ceiling that this process has seen. A ceiling is durable before it is seen, and no fence below it needs
/// another look at the file.
#[derive(Debug, Default)]
pub(super) struct KnownCeiling(AtomicU64);

/// Creates the counter of a new directory. Called under the guard.
pub(super) fn create(files: &Files) -> Result<()> {
    if files.read("ceiling")?.is_none() {
        // A directory with a `fence` had a `ceiling`: starting again at zero would repeat fences.
        if files.read("fence")?.is_some() {
            return Err(damaged(files, "it is gone although fences were handed out"));
        }
        files.replace_durably("ceiling", b"0\n")?;
    }
    Ok(())
}

/// The next fence, above every earlier one. Called under the guard, BEFORE the grant is published.
pub(super) fn next(files: &Files, boot: &str, known: &KnownCeiling) -> Result<u64> {
    let mut fence = 0;
    files.rewrite("fence", |text| {
        let mut ceiling = known.0.load(Relaxed);
        let last = match parse(text, boot) {
            Some(last) => last,
            // The file is missing, from another boot, or torn: every fence up to the ceiling may have been issued.
            None => read_ceiling(files)?,
        };
        if last >= ceiling {
            ceiling = read_ceiling(files)?;
        }
        if last >= LAST - BLOCK {
            return Err(damaged(files, "the counter is at its end"));
        }
        fence = last + 1;
        if fence > ceiling {
            ceiling = last + BLOCK;
            // Example: the last fence was 1000 and the ceiling is 1000. The ceiling becomes 2000, durably, before fence
            // 1001 is issued.
            files.replace_durably("ceiling", format!("{ceiling}\n").as_bytes())?;
        }
        known.0.fetch_max(ceiling, Relaxed);
        Ok(line(fence, boot).into_bytes())
    })?;
    Ok(fence)
}

fn read_ceiling(files: &Files) -> Result<u64> {
    let text = files.read("ceiling")?.ok_or_else(|| damaged(files, "it is gone"))?;
    let number = std::str::from_utf8(&text).ok().and_then(|t| t.strip_suffix('\n')?.parse().ok());
    number.ok_or_else(|| damaged(files, "it does not hold a number"))
}

/// The line of a fence. Its width is fixed, so that overwriting in place never leaves the tail of a longer line.
fn line(fence: u64, boot: &str) -> String {
    let body = format!("{fence:020} {boot}");
    format!("{body} {:032x}\n", super::queue::fnv128(body.as_bytes()))
}

fn parse(text: &[u8], boot: &str) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let fence = text.split(' ').next()?.parse().ok()?;
    (text == line(fence, boot)).then_some(fence)
}

fn damaged(files: &Files, what: &str) -> Error {
    Error::Damaged {
        path: files.path("ceiling"),
        reason: format!(
            "{what}, and guessing could repeat a fence. If you know a number above every fence ever \
             handed out here, write it into that file; otherwise use a new directory"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next fence, by a process that has seen no ceiling.
    fn next(files: &Files, boot: &str) -> Result<u64> {
        super::next(files, boot, &KnownCeiling::default())
    }

    fn fresh() -> (tempfile::TempDir, Files) {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path()).unwrap();
        create(&files).unwrap();
        (dir, files)
    }

    #[test]
    fn fences_count_up_within_a_boot() {
        let (_dir, files) = fresh();
        let fences: Vec<u64> = (0..2 * BLOCK + 5).map(|_| next(&files, "b").unwrap()).collect();
        assert_eq!(fences, (1..=2 * BLOCK + 5).collect::<Vec<_>>());
        assert_eq!(read_ceiling(&files).unwrap(), 3 * BLOCK);
    }

    #[test]
    fn after_a_power_failure_fences_continue_above_all_issued_ones() {
        // The disk after a power failure may have `fence` from any earlier moment, torn anywhere, or none.
        let (dir, files) = fresh();
        let mut versions = vec![Vec::new()];
        for _ in 0..BLOCK + 10 {
            next(&files, "before").unwrap();
            versions.push(std::fs::read(dir.path().join("fence")).unwrap());
        }
        let mut highest = BLOCK + 10;
        for survived in [&versions[0], &versions[1], &versions[500], versions.last().unwrap()] {
            for torn_at in [0, 1, 20, survived.len() / 2, survived.len()] {
                let torn = &survived[..torn_at.min(survived.len())];
                std::fs::write(dir.path().join("fence"), torn).unwrap();
                let fence = next(&files, "after").unwrap();
                assert!(fence > highest, "{fence} after {highest}");
                highest = fence;
            }
        }
    }

    #[test]
    fn a_torn_write_within_a_boot_skips_ahead_at_every_length() {
        let (dir, files) = fresh();
        let mut highest = 0;
        for torn_at in 0..line(1, "b").len() {
            highest = next(&files, "b").unwrap().max(highest);
            let whole = line(highest + 1, "b");
            let before = line(highest, "b");
            // A torn write: the beginning of the new line over the end of the old one.
            let mixed = format!("{}{}", &whole[..torn_at], &before[torn_at..]);
            std::fs::write(dir.path().join("fence"), mixed).unwrap();
            let fence = next(&files, "b").unwrap();
            assert!(fence > highest, "torn at {torn_at}: {fence} after {highest}");
            highest = fence;
        }
    }

    #[test]
    fn a_cut_while_the_ceiling_is_replaced_leaves_the_old_or_the_new_one() {
        let (dir, files) = fresh();
        let before = next(&files, "b").unwrap();
        // The temporary file of an interrupted replacement is not the ceiling.
        std::fs::write(dir.path().join("next"), b"99").unwrap();
        assert_eq!(next(&files, "b").unwrap(), before + 1);
    }

    #[test]
    fn processes_that_have_seen_different_ceilings_count_together() {
        let (_dir, files) = fresh();
        let (one, other) = (KnownCeiling::default(), KnownCeiling::default());
        let turn = |n: u64| super::next(&files, "b", if n % 700 < 350 { &one } else { &other }).unwrap();
        let fences: Vec<u64> = (0..3 * BLOCK).map(turn).collect();
        assert_eq!(fences, (1..=3 * BLOCK).collect::<Vec<_>>());
        assert_eq!(read_ceiling(&files).unwrap(), 3 * BLOCK);
    }

    #[test]
    fn a_damaged_ceiling_is_an_error() {
        let (dir, files) = fresh();
        next(&files, "b").unwrap();
        for bad in [&b""[..], b"12", b"x\n", b"\xff\xff\n", b"-5\n"] {
            std::fs::write(dir.path().join("ceiling"), bad).unwrap();
            let error = next(&files, "b").unwrap_err().to_string();
            assert!(error.contains("could repeat a fence"), "{error}");
        }
        std::fs::remove_file(dir.path().join("ceiling")).unwrap();
        assert!(next(&files, "b").is_err());
        assert!(create(&files).unwrap_err().to_string().contains("fences were handed out"));
    }
}
