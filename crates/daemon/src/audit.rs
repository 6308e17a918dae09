//! The audit log: grants, releases and refusals, one JSON object per line.

use crate::access::Permission;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Maximum number of lines in the queue of the writer. Further lines are counted and dropped: a slow disk
/// must not delay the member, because its holders would lose their locks.
const MOST_LINES: usize = 1 << 16;
/// Approximate maximum size of one write. Queued lines are written together.
const BATCH_BYTES: usize = 1 << 20;
/// Period over which refusals of one kind to one caller are combined into one line, so that a caller cannot
/// fill the disk with refusals.
const REFUSAL_PERIOD: Duration = Duration::from_secs(1);

/// The event that a line of the log records. Programs that read the log depend on these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditEvent {
    /// A lock was granted.
    Grant,
    /// A hold was released.
    Release,
    /// A hold was lost.
    Lost,
    /// An operator released a hold by force.
    ForceRelease,
    /// A request was refused.
    Refuse,
    /// Lines are missing, because the log could not be written as fast as they came.
    LeftOut,
}

/// One line of the log.
#[derive(Clone, Debug, Serialize)]
pub struct AuditEntry<'a> {
    /// The event that the line records.
    pub what: AuditEvent,
    /// The protocol: `native`, `http`, `etcd`.
    pub by: &'static str,
    /// The name of the token, or of the principal where no tokens are needed.
    pub who: &'a str,
    /// The lock's name; empty if the event concerns no lock.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub lock: &'a str,
    /// The id of the acquisition, as `locks` shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquisition: Option<String>,
    /// The fence of the hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Number of further entries that a delegated hold permits, with the fences that follow; `None` without a
    /// delegation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<u32>,
    /// The reason, where the event alone does not explain it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub why: &'a str,
    /// Number of events that this line combines; `None` for a single event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
}

impl<'a> AuditEntry<'a> {
    /// An entry with no other fields.
    pub fn new(what: AuditEvent, by: &'static str, who: &'a str) -> Self {
        Self { what, by, who, lock: "", acquisition: None, fence: None, more: None, why: "", times: None }
    }
}

/// The reason for a refusal. The number of kinds is small and does not depend on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// The token is missing, unknown or expired.
    Token,
    /// The token lacks this permission.
    Permission(Permission),
    /// The session belongs to another principal.
    Session,
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token => f.write_str("there was no valid token"),
            Self::Permission(permission) => write!(f, "`{permission}` was not allowed"),
            Self::Session => f.write_str("the session was another's"),
        }
    }
}

/// The key under which refusals are combined: protocol, principal and reason.
type RefusalKey = (&'static str, String, RefusalReason);

/// Refusals of one kind after the first one, which was written at once.
struct RepeatedRefusals {
    since: Instant,
    more: u64,
}

#[derive(Serialize)]
struct AuditLine<'a> {
    at_ms: u128,
    member: u32,
    #[serde(flatten)]
    entry: &'a AuditEntry<'a>,
}

/// The size at which the log is rotated, and the number of rotated files to keep: `audit`, `audit.1`,
/// `audit.2` and so on, the newest first.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// Approximate maximum size of a file, in bytes.
    pub bytes: u64,
    /// Number of rotated files to keep.
    pub files: u32,
}

/// The audit log. A thread of its own writes the lines, so that no request waits for the disk.
pub struct Audit {
    member: u32,
    writer: Option<(SyncSender<Vec<u8>>, JoinHandle<()>)>,
    /// Has at most one entry per token, protocol and reason.
    refusals: Mutex<HashMap<RefusalKey, RepeatedRefusals>>,
    /// Number of lines dropped since the last line that was written.
    left_out: AtomicU64,
}

impl Audit {
    /// An audit log that discards everything.
    pub fn none() -> Self {
        Self { member: 0, writer: None, refusals: Mutex::default(), left_out: AtomicU64::new(0) }
    }

    /// Appends to a file that only its owner may read.
    pub fn to_file(member: u32, path: &Path, rotation: Rotation) -> io::Result<Self> {
        let file = LogFile::open(path, rotation)?;
        let (lines, queue) = sync_channel(MOST_LINES);
        let name = String::from("audit");
        let thread = std::thread::Builder::new().name(name).spawn(move || write_all(file, &queue));
        let writer = Some((lines, thread?));
        Ok(Self { member, writer, refusals: Mutex::default(), left_out: AtomicU64::new(0) })
    }

    /// Whether entries are written anywhere.
    pub fn is_enabled(&self) -> bool {
        self.writer.is_some()
    }

    /// Writes a line, preceded by the number of lines that had to be dropped before it.
    pub fn write(&self, entry: &AuditEntry<'_>) {
        let left_out = self.left_out.load(Ordering::Relaxed);
        if left_out > 0 {
            let why = "the log could not be written as fast as lines came";
            let gap =
                AuditEntry { why, times: Some(left_out), ..AuditEntry::new(AuditEvent::LeftOut, "", "") };
            if self.enqueue(&gap) {
                self.left_out.fetch_sub(left_out, Ordering::Relaxed);
            }
        }
        if !self.enqueue(entry) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Queues a line for the writer thread; `false` if the queue is full.
    fn enqueue(&self, entry: &AuditEntry<'_>) -> bool {
        let Some((lines, _)) = &self.writer else { return true };
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |at| at.as_millis());
        let Ok(mut line) = serde_json::to_vec(&AuditLine { at_ms, member: self.member, entry }) else {
            return true;
        };
        line.push(b'\n');
        lines.try_send(line).is_ok()
    }

    /// Records a refusal. The first one of a kind is written at once; those within the next second are
    /// counted and written as one line.
    pub fn refuse(&self, why: RefusalReason, entry: &AuditEntry<'_>) {
        if !self.is_enabled() {
            return;
        }
        self.write_counted_refusals(REFUSAL_PERIOD);
        let kind = (entry.by, String::from(entry.who), why);
        let mut refusals = self.refusals();
        if let Some(before) = refusals.get_mut(&kind) {
            before.more += 1;
            return;
        }
        refusals.insert(kind, RepeatedRefusals { since: Instant::now(), more: 0 });
        drop(refusals);
        self.write(entry);
    }

    /// Writes the counted refusals whose period began at least `after` ago.
    pub fn write_counted_refusals(&self, after: Duration) {
        self.refusals().retain(|(by, who, kind), refusals| {
            let continues = refusals.since.elapsed() < after;
            if !continues && refusals.more > 0 {
                let line = AuditEntry::new(AuditEvent::Refuse, by, who);
                let why = format!("{kind}, as in an earlier line");
                self.write(&AuditEntry { why: &why, times: Some(refusals.more), ..line });
            }
            continues
        });
    }

    fn refusals(&self) -> MutexGuard<'_, HashMap<RefusalKey, RepeatedRefusals>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Audit {
    /// Waits until every queued line is written.
    fn drop(&mut self) {
        self.write_counted_refusals(Duration::ZERO);
        if let Some((lines, thread)) = self.writer.take() {
            drop(lines);
            let _ = thread.join();
        }
    }
}

/// Opens a file for appending that other users cannot read, since it contains the names of locks and their
/// owners. An existing file loses the permissions of other users; those of its group are the operator's
/// decision.
fn open_private(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let file = File::options().create(true).append(true).mode(0o600).open(path)?;
    let metadata = file.metadata()?;
    let mode = metadata.permissions().mode() & 0o777;
    // A pipe or device such as /dev/stdout keeps its mode.
    if metadata.is_file() && mode & 0o007 != 0 {
        file.set_permissions(PermissionsExt::from_mode(mode & 0o770))?;
    }
    Ok(file)
}

/// Writes lines until the queue is closed. Queued lines are appended in one write, so that lines of several
/// daemons in one file do not interleave. A failed write is logged and otherwise ignored.
fn write_all(mut file: LogFile, queue: &Receiver<Vec<u8>>) {
    while let Ok(mut lines) = queue.recv() {
        while lines.len() < BATCH_BYTES
            && let Ok(more) = queue.try_recv()
        {
            lines.extend_from_slice(&more);
        }
        if let Err(error) = file.append(&lines) {
            tracing::error!(%error, "the audit log cannot be written");
        }
    }
}

/// The current file of the log.
struct LogFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
}

impl LogFile {
    fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        Ok(Self { path: path.into(), rotation, file: open_private(path)? })
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.make_room(lines.len() as u64)?;
        self.file.write_all(lines)
    }

    /// Rotates the log if the current file is full. Several daemons may append to one file; a file lock
    /// ensures that only one of them rotates, and the others reopen the path.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        // A path such as /dev/stdout is a link to a file of another program, which must not be rotated.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|path| !path.is_file()) {
            return Ok(());
        }
        let length = self.file.metadata()?.len();
        if self.is_newest()? {
            if length == 0 || length + bytes <= self.rotation.bytes {
                return Ok(());
            }
            self.file.lock()?;
            if self.is_newest()? {
                self.rotate()?;
            }
        }
        // Replacing the old file closes it and thereby releases the file lock.
        self.file = open_private(&self.path)?;
        Ok(())
    }

    fn is_newest(&self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        let newest = std::fs::metadata(&self.path).ok();
        Ok(newest.is_some_and(|newest| (newest.dev(), newest.ino()) == (own.dev(), own.ino())))
    }

    fn rotate(&self) -> io::Result<()> {
        if self.rotation.files == 0 {
            return std::fs::remove_file(&self.path);
        }
        for number in (1..self.rotation.files).rev() {
            // There may be fewer rotated files than configured.
            let _ = std::fs::rename(self.earlier(number), self.earlier(number + 1));
        }
        std::fs::rename(&self.path, self.earlier(1))
    }

    fn earlier(&self, number: u32) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use lockkeeper_testbed::every_variant;
    use lockkeeper_testbed::golden::Golden;

    #[test]
    fn repeated_refusals_are_combined_and_do_not_fill_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let audit = Audit::to_file(1, &path, Limits::default().rotation()).unwrap();
        let acquire = RefusalReason::Permission(Permission::Acquire);
        let began = Instant::now();
        for number in 0..10_000 {
            let lock = format!("lock {number}");
            audit.refuse(
                acquire,
                &AuditEntry { lock: &lock, why: "no", ..AuditEntry::new(AuditEvent::Refuse, "http", "ci") },
            );
        }
        audit.refuse(
            RefusalReason::Token,
            &AuditEntry { why: "no token", ..AuditEntry::new(AuditEvent::Refuse, "http", "") },
        );
        // A slow machine takes more seconds, and each second may have its own lines.
        let most = 2 * (began.elapsed().as_secs() as usize + 1) + 1;
        drop(audit);
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert!(lines.len() <= most, "{} lines", lines.len());
        let times = |line: &serde_json::Value| line["times"].as_u64().unwrap_or(1);
        assert_eq!(lines.iter().map(times).sum::<u64>(), 10_001, "none is left out");
        assert_eq!((&lines[0]["lock"], &lines[0]["why"]), (&"lock 0".into(), &"no".into()));
        let counted = lines.iter().find(|line| !line["times"].is_null()).expect("most are counted");
        assert_eq!(counted["why"], "`acquire` was not allowed, as in an earlier line");
    }

    #[test]
    fn lines_of_the_audit_log_do_not_change() {
        let mut golden = Golden::default();
        let entry = |what| AuditEntry {
            what,
            by: "http",
            who: "ci",
            lock: "nightly",
            acquisition: Some("C17#0/3".into()),
            fence: Some(5),
            more: Some(6),
            why: "no",
            times: Some(7),
        };
        let events = every_variant!(AuditEvent {
            "grant": AuditEvent::Grant => AuditEvent::Grant,
            "release": AuditEvent::Release => AuditEvent::Release,
            "lost": AuditEvent::Lost => AuditEvent::Lost,
            "force-release": AuditEvent::ForceRelease => AuditEvent::ForceRelease,
            "refuse": AuditEvent::Refuse => AuditEvent::Refuse,
            "left-out": AuditEvent::LeftOut => AuditEvent::LeftOut,
        });
        for (name, what) in events {
            golden.json(name, &AuditLine { at_ms: 1, member: 2, entry: &entry(what) });
        }
        golden.json(
            "shortest",
            &AuditLine { at_ms: 1, member: 2, entry: &AuditEntry::new(AuditEvent::Grant, "http", "ci") },
        );
        golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/audit.txt");
    }

    #[test]
    fn other_users_cannot_read_the_audit_log() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = folder.path().join("new");
        Audit::to_file(1, &path, Limits::default().rotation()).unwrap();
        assert_eq!(mode(&path), 0o600);
        for (before, after) in [(0o644, 0o640), (0o666, 0o660), (0o640, 0o640), (0o600, 0o600)] {
            let path = folder.path().join(format!("{before:o}"));
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(before)).unwrap();
            Audit::to_file(1, &path, Limits::default().rotation()).unwrap();
            assert_eq!(mode(&path), after, "{before:o}");
        }
    }

    #[test]
    fn log_rotates_and_stays_within_its_size_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let rotation = Rotation { bytes: 20_000, files: 2 };
        // Two daemons append to one file.
        let daemons = [1, 2].map(|member| Audit::to_file(member, &path, rotation).unwrap());
        for number in 0..10_000 {
            let lock = format!("lock {number:05}");
            for audit in &daemons {
                audit.write(&AuditEntry { lock: &lock, ..AuditEntry::new(AuditEvent::Grant, "http", "ci") });
            }
            // Spread the lines over several writes.
            if number % 20 == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        drop(daemons);
        let mut names: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["audit", "audit.1", "audit.2"]);
        for name in names {
            let (file, path) = (File::open(folder.path().join(&name)).unwrap(), folder.path().join(&name));
            let about = file.metadata().unwrap();
            assert!(about.len() <= BATCH_BYTES as u64 + 20_000, "{name} has {} bytes", about.len());
            assert_eq!(about.mode() & 0o777, 0o600, "{name}");
            for line in std::fs::read_to_string(path).unwrap().lines() {
                serde_json::from_str::<serde_json::Value>(line).expect("whole lines");
            }
        }
    }

    #[test]
    fn writing_does_not_block_and_dropped_lines_are_counted() {
        let (lines, queue) = sync_channel(2);
        let thread = std::thread::spawn(|| ());
        let writer = Some((lines, thread));
        let audit = Audit { member: 1, writer, refusals: Mutex::default(), left_out: AtomicU64::new(0) };
        for _ in 0..5 {
            audit.write(&AuditEntry::new(AuditEvent::Grant, "http", "ci"));
        }
        let next = || serde_json::from_slice::<serde_json::Value>(&queue.try_recv().unwrap()).unwrap();
        assert_eq!((next()["what"].clone(), next()["what"].clone()), ("grant".into(), "grant".into()));
        audit.write(&AuditEntry::new(AuditEvent::Release, "http", "ci"));
        let gap = next();
        assert_eq!((&gap["what"], &gap["times"]), (&"left-out".into(), &3.into()));
        assert_eq!(next()["what"], "release");
    }

    #[test]
    fn every_line_is_one_json_object() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let audit = Audit::to_file(2, &path, Limits::default().rotation()).unwrap();
        audit.write(&AuditEntry {
            lock: "a\n\"b",
            fence: Some(7),
            ..AuditEntry::new(AuditEvent::Grant, "http", "ci")
        });
        audit.write(&AuditEntry { why: "no token", ..AuditEntry::new(AuditEvent::Refuse, "native", "") });
        drop(audit);
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["lock"], &lines[0]["fence"]), (&"a\n\"b".into(), &7.into()));
        assert_eq!((&lines[0]["member"], &lines[1]["what"]), (&2.into(), &"refuse".into()));
    }
}
