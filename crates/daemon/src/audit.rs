//! The audit log: what was granted, released and refused, one JSON object on each line.

use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

/// So many lines may wait to be written; after that, whoever has another one waits too.
const MOST_LINES: usize = 1 << 16;

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
    /// Why, where it is not plain.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub why: &'a str,
}

impl<'a> Entry<'a> {
    /// A line with nothing but this.
    pub fn new(what: &'static str, by: &'static str, who: &'a str) -> Self {
        Self { what, by, who, lock: "", acquisition: None, fence: None, why: "" }
    }
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
}

impl Audit {
    /// Nowhere.
    pub fn none() -> Self {
        Self { member: 0, writer: None }
    }

    /// To the end of a file.
    pub fn to_file(member: u32, path: &Path) -> Result<Self, String> {
        let bad = |error| format!("cannot write the audit log {}: {error}", path.display());
        let file = File::options().create(true).append(true).open(path).map_err(bad)?;
        let (lines, arriving) = sync_channel(MOST_LINES);
        let name = String::from("audit");
        let thread = std::thread::Builder::new().name(name).spawn(move || write_all(file, &arriving));
        Ok(Self { member, writer: Some((lines, thread.map_err(bad)?)) })
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
}

impl Drop for Audit {
    /// Every line is written before the log is closed.
    fn drop(&mut self) {
        if let Some((lines, thread)) = self.writer.take() {
            drop(lines);
            let _ = thread.join();
        }
    }
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
