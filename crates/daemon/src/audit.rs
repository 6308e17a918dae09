//! The audit log: what was granted, released and refused, one JSON object on each line.

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

/// So many lines may wait to be written. Further ones are counted and left out: a disk that is too slow must not hold up the member, whose
/// holders would lose their locks.
const MOST_LINES: usize = 1 << 16;
/// Lines that are there together are written together, up to about so many bytes.
const TOGETHER_BYTES: usize = 1 << 20;
/// Refusals of one kind to one caller are told in one line for so long: whoever is refused again and again does not fill the disk.
const TOGETHER: Duration = Duration::from_secs(1);

/// One line.
#[derive(Clone, Debug, Serialize)]
pub struct Entry<'a> {
    /// What: `grant`, `release`, `lost`, `force-release`, `refuse`, `left-out`.
    pub what: &'static str,
    /// By which way: `native`, `http`, `etcd`.
    pub by: &'static str,
    /// The name of the token, or who needs none.
    pub who: &'a str,
    /// Which lock; empty where it is about none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub lock: &'a str,
    /// Which acquisition, as `locks` shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquisition: Option<String>,
    /// With which fence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// How many more times it may enter by itself, with the fences that follow; none where it may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<u32>,
    /// Why, where it is not plain.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub why: &'a str,
    /// For how many this line stands, where it is not one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
}

impl<'a> Entry<'a> {
    /// A line with nothing but this.
    pub fn new(what: &'static str, by: &'static str, who: &'a str) -> Self {
        Self { what, by, who, lock: "", acquisition: None, fence: None, more: None, why: "", times: None }
    }
}

/// Why somebody is refused. There are few, whatever is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// No token, or one that counts for nothing.
    Token,
    /// The token does not allow it.
    Permission(Permission),
    /// It is about somebody else's session.
    Session,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token => f.write_str("there was no valid token"),
            Self::Permission(permission) => write!(f, "`{permission}` was not allowed"),
            Self::Session => f.write_str("the session was another's"),
        }
    }
}

/// Refusals that are told together: by which way, to whom, and why.
type Kind = (&'static str, String, Refused);

/// Since when, and how many after the first one.
struct Refusals {
    since: Instant,
    more: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    at_ms: u128,
    member: u32,
    #[serde(flatten)]
    entry: &'a Entry<'a>,
}

/// When another file is begun, and how many earlier ones are kept: `audit`, `audit.1`, `audit.2` and so on, the newest first.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// A file has at most about so many bytes.
    pub bytes: u64,
    /// Earlier files that are kept.
    pub files: u32,
}

/// Where the lines go. A thread of its own writes them: nobody waits for the disk.
pub struct Audit {
    member: u32,
    writer: Option<(SyncSender<Vec<u8>>, JoinHandle<()>)>,
    /// As many as there are tokens, ways and kinds, at most.
    refusals: Mutex<HashMap<Kind, Refusals>>,
    /// Lines that were left out since the last line that was written.
    left_out: AtomicU64,
}

impl Audit {
    /// Nowhere.
    pub fn none() -> Self {
        Self { member: 0, writer: None, refusals: Mutex::default(), left_out: AtomicU64::new(0) }
    }

    /// To the end of a file, which only its owner may read.
    pub fn to_file(member: u32, path: &Path, rotation: Rotation) -> Result<Self, String> {
        let bad = |error| format!("cannot write the audit log {}: {error}", path.display());
        let file = LogFile::open(path, rotation).map_err(bad)?;
        let (lines, arriving) = sync_channel(MOST_LINES);
        let name = String::from("audit");
        let thread = std::thread::Builder::new().name(name).spawn(move || write_all(file, &arriving));
        let writer = Some((lines, thread.map_err(bad)?));
        Ok(Self { member, writer, refusals: Mutex::default(), left_out: AtomicU64::new(0) })
    }

    /// Whether anybody will read it.
    pub fn is_kept(&self) -> bool {
        self.writer.is_some()
    }

    /// Writes a line.
    pub fn write(&self, entry: &Entry<'_>) {
        let left_out = self.left_out.load(Ordering::Relaxed);
        if left_out > 0 {
            let why = "the log could not be written as fast as lines came";
            let gap = Entry { why, times: Some(left_out), ..Entry::new("left-out", "", "") };
            if self.put(&gap) {
                self.left_out.fetch_sub(left_out, Ordering::Relaxed);
            }
        }
        if !self.put(entry) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hands a line to the thread that writes; `false` if there is no room for it.
    fn put(&self, entry: &Entry<'_>) -> bool {
        let Some((lines, _)) = &self.writer else { return true };
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |at| at.as_millis());
        let Ok(mut line) = serde_json::to_vec(&Line { at_ms, member: self.member, entry }) else {
            return true;
        };
        line.push(b'\n');
        lines.try_send(line).is_ok()
    }

    /// Somebody is refused. The first time is written at once; what follows within a second is counted, and told in one line.
    pub fn refuse(&self, why: Refused, entry: &Entry<'_>) {
        if !self.is_kept() {
            return;
        }
        self.tell_refusals(TOGETHER);
        let kind = (entry.by, String::from(entry.who), why);
        let mut refusals = self.refusals();
        if let Some(before) = refusals.get_mut(&kind) {
            before.more += 1;
            return;
        }
        refusals.insert(kind, Refusals { since: Instant::now(), more: 0 });
        drop(refusals);
        self.write(entry);
    }

    /// Writes down what was counted for so long.
    pub fn tell_refusals(&self, after: Duration) {
        self.refusals().retain(|(by, who, kind), refusals| {
            let goes_on = refusals.since.elapsed() < after;
            if !goes_on && refusals.more > 0 {
                let line = Entry::new("refuse", by, who);
                let why = format!("{kind}, as in an earlier line");
                self.write(&Entry { why: &why, times: Some(refusals.more), ..line });
            }
            goes_on
        });
    }

    fn refusals(&self) -> MutexGuard<'_, HashMap<Kind, Refusals>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Audit {
    /// Every line is written before the log is closed.
    fn drop(&mut self) {
        self.tell_refusals(Duration::ZERO);
        if let Some((lines, thread)) = self.writer.take() {
            drop(lines);
            let _ = thread.join();
        }
    }
}

/// Opens a file for appending that other users cannot read: the names of locks and their owners are of no concern to them. A file that
/// an earlier version has left open to them is closed to them; what its group may do is the operator's decision.
fn open_private(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let file = File::options().create(true).append(true).mode(0o600).open(path)?;
    let metadata = file.metadata()?;
    let mode = metadata.permissions().mode() & 0o777;
    // A pipe or a device, such as /dev/stdout, keeps its mode.
    if metadata.is_file() && mode & 0o007 != 0 {
        file.set_permissions(PermissionsExt::from_mode(mode & 0o770))?;
    }
    Ok(file)
}

/// Writes lines until there are no more: all that are there together, so that lines of several daemons in one file do not mix. A log that cannot be
/// written is told of, and stops nobody.
fn write_all(mut file: LogFile, arriving: &Receiver<Vec<u8>>) {
    while let Ok(mut lines) = arriving.recv() {
        while lines.len() < TOGETHER_BYTES
            && let Ok(more) = arriving.try_recv()
        {
            lines.extend_from_slice(&more);
        }
        if let Err(error) = file.append(&lines) {
            tracing::error!(%error, "the audit log cannot be written");
        }
    }
}

/// The newest file of the log.
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

    /// Begins another file if this one is full. Several daemons may write to one file: another one may have done so, and only one of
    /// them does at a time.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        // A path such as /dev/stdout is a link to a file of another program: its log is not rotated.
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
        // The lock goes with the file that was open before.
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
            // There may be fewer of them by now.
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

    #[test]
    fn whoever_is_refused_again_and_again_does_not_fill_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let audit = Audit::to_file(1, &path, Limits::default().rotation()).unwrap();
        let acquire = Refused::Permission(Permission::Acquire);
        let began = Instant::now();
        for number in 0..10_000 {
            let lock = format!("lock {number}");
            audit.refuse(acquire, &Entry { lock: &lock, why: "no", ..Entry::new("refuse", "http", "ci") });
        }
        audit.refuse(Refused::Token, &Entry { why: "no token", ..Entry::new("refuse", "http", "") });
        // A slow machine needs more seconds, and each may have its lines.
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
    fn log_rotates_and_takes_no_more_room_than_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let rotation = Rotation { bytes: 20_000, files: 2 };
        // Two daemons write to one file.
        let daemons = [1, 2].map(|member| Audit::to_file(member, &path, rotation).unwrap());
        for number in 0..10_000 {
            let lock = format!("lock {number:05}");
            for audit in &daemons {
                audit.write(&Entry { lock: &lock, ..Entry::new("grant", "http", "ci") });
            }
            // The lines are not all there together.
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
            assert!(about.len() <= TOGETHER_BYTES as u64 + 20_000, "{name} has {} bytes", about.len());
            assert_eq!(about.mode() & 0o777, 0o600, "{name}");
            for line in std::fs::read_to_string(path).unwrap().lines() {
                serde_json::from_str::<serde_json::Value>(line).expect("whole lines");
            }
        }
    }

    #[test]
    fn a_line_waits_for_no_disk_and_what_is_left_out_is_counted() {
        let (lines, arriving) = sync_channel(2);
        let thread = std::thread::spawn(|| ());
        let writer = Some((lines, thread));
        let audit = Audit { member: 1, writer, refusals: Mutex::default(), left_out: AtomicU64::new(0) };
        for _ in 0..5 {
            audit.write(&Entry::new("grant", "http", "ci"));
        }
        let next = || serde_json::from_slice::<serde_json::Value>(&arriving.try_recv().unwrap()).unwrap();
        assert_eq!((next()["what"].clone(), next()["what"].clone()), ("grant".into(), "grant".into()));
        audit.write(&Entry::new("release", "http", "ci"));
        let gap = next();
        assert_eq!((&gap["what"], &gap["times"]), (&"left-out".into(), &3.into()));
        assert_eq!(next()["what"], "release");
    }

    #[test]
    fn every_line_is_one_object() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let audit = Audit::to_file(2, &path, Limits::default().rotation()).unwrap();
        audit.write(&Entry { lock: "a\n\"b", fence: Some(7), ..Entry::new("grant", "http", "ci") });
        audit.write(&Entry { why: "no token", ..Entry::new("refuse", "native", "") });
        drop(audit);
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["lock"], &lines[0]["fence"]), (&"a\n\"b".into(), &7.into()));
        assert_eq!((&lines[0]["member"], &lines[1]["what"]), (&2.into(), &"refuse".into()));
    }
}
