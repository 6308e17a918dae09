//! The audit log: what was granted, released and refused, one JSON object on each line.

use crate::access::Permission;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// So many lines may wait to be written; after that, whoever has another one waits too.
const MOST_LINES: usize = 1 << 16;
/// Refusals of one kind to one caller are told in one line for so long: whoever is refused again and again does not fill the disk.
const TOGETHER: Duration = Duration::from_secs(1);

/// One line.
#[derive(Clone, Debug, Serialize)]
pub struct Entry<'a> {
    /// What: `grant`, `release`, `lost`, `force-release`, `refuse`.
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

/// Where the lines go. A thread of its own writes them: nobody waits for the disk.
pub struct Audit {
    member: u32,
    writer: Option<(SyncSender<Vec<u8>>, JoinHandle<()>)>,
    /// As many as there are tokens, ways and kinds, at most.
    refusals: Mutex<HashMap<Kind, Refusals>>,
}

impl Audit {
    /// Nowhere.
    pub fn none() -> Self {
        Self { member: 0, writer: None, refusals: Mutex::default() }
    }

    /// To the end of a file.
    pub fn to_file(member: u32, path: &Path) -> Result<Self, String> {
        let bad = |error| format!("cannot write the audit log {}: {error}", path.display());
        let file = open_private(path).map_err(bad)?;
        let (lines, arriving) = sync_channel(MOST_LINES);
        let name = String::from("audit");
        let thread = std::thread::Builder::new().name(name).spawn(move || write_all(file, &arriving));
        Ok(Self { member, writer: Some((lines, thread.map_err(bad)?)), refusals: Mutex::default() })
    }

    /// Whether anybody will read it.
    pub fn is_kept(&self) -> bool {
        self.writer.is_some()
    }

    /// Writes a line.
    pub fn write(&self, entry: &Entry<'_>) {
        let Some((lines, _)) = &self.writer else { return };
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |at| at.as_millis());
        let Ok(mut line) = serde_json::to_vec(&Line { at_ms, member: self.member, entry }) else { return };
        line.push(b'\n');
        let _ = lines.send(line);
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
fn write_all(mut file: File, arriving: &Receiver<Vec<u8>>) {
    while let Ok(mut lines) = arriving.recv() {
        while let Ok(more) = arriving.try_recv() {
            lines.extend_from_slice(&more);
        }
        if let Err(error) = file.write_all(&lines) {
            tracing::error!(%error, "the audit log cannot be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_refused_again_and_again_does_not_fill_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let audit = Audit::to_file(1, &path).unwrap();
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
        Audit::to_file(1, &path).unwrap();
        assert_eq!(mode(&path), 0o600);
        for (before, after) in [(0o644, 0o640), (0o666, 0o660), (0o640, 0o640), (0o600, 0o600)] {
            let path = folder.path().join(format!("{before:o}"));
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(before)).unwrap();
            Audit::to_file(1, &path).unwrap();
            assert_eq!(mode(&path), after, "{before:o}");
        }
    }

    #[test]
    fn every_line_is_one_object() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let audit = Audit::to_file(2, &path).unwrap();
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
