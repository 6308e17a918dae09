//! The diagnosis of a state directory: its file system, and the users who can write to it.

use super::store::Files;
use crate::Result;
use crate::diagnose::{Finding, Severity};
use Severity::{Note, Warning};
use rustix::fs;

/// The numbers of file systems in memory, from linux/magic.h: tmpfs and ramfs.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// Below this many free bytes, a lock may soon not be granted: each grant writes a file.
const FREE_MIN: u64 = 1 << 20;

/// The findings about a directory. That other users cannot write to it, and that it is local, was checked when it was
/// opened.
pub(super) fn directory(files: &Files) -> Result<Vec<Finding>> {
    let (stat, space) = files.file_system()?;
    #[allow(clippy::unnecessary_cast, reason = "the type of the field differs between targets")]
    let magic = stat.f_type as i64 & 0xffff_ffff;
    let mut findings = Vec::new();
    if IN_MEMORY.iter().any(|known| i64::from(*known) == magic) {
        findings.push(Finding::new(
            Warning,
            "file-system",
            "the directory is in memory: a reboot sets the fences back, and resources that have stored higher ones reject \
             all holders",
            "use a directory on a disk, such as file:///var/lib/locks, if resources check fences",
        ));
    }
    findings.extend(room(&space));
    let owner = files.owner()?;
    findings.push(Finding::new(
        Note,
        "users",
        format!("only user {owner} and root can use these locks: other users of this machine have locks of their own"),
        "for several users: file:///run/lock/lockkeeper?shared",
    ));
    Ok(findings)
}

/// The finding if the file system is almost full.
pub(super) fn room(stat: &fs::StatVfs) -> Option<Finding> {
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    // Some file systems have no fixed number of files.
    let no_files = stat.f_files > 0 && stat.f_favail < 16;
    (free < FREE_MIN || no_files).then(|| {
        Finding::new(
            Warning,
            "room",
            format!(
                "the file system has {free} bytes and {} files left: without room, no lock is granted",
                stat.f_favail
            ),
            "free some room",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_room_for_bytes_or_files_is_reported() {
        let mut stat = fs::statvfs("/").unwrap();
        (stat.f_frsize, stat.f_bavail, stat.f_files, stat.f_favail) = (4096, 1 << 20, 1000, 900);
        assert_eq!(room(&stat), None);
        stat.f_favail = 3;
        assert!(room(&stat).is_some_and(|finding| finding.found.contains("3 files left")));
        // Some file systems have no fixed number of files.
        (stat.f_files, stat.f_favail) = (0, 0);
        assert_eq!(room(&stat), None);
        stat.f_bavail = 255;
        let finding = room(&stat).unwrap();
        assert_eq!((finding.severity, finding.check), (Warning, "room"));
    }
}
