//! The audit log: what was granted, released and refused, one JSON object on each line.

use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

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

/// Where the lines go.
pub struct Audit {
    member: u32,
    file: Option<Mutex<File>>,
}

impl Audit {
    /// Nowhere.
    pub fn none() -> Self {
        Self { member: 0, file: None }
    }

    /// To the end of a file. Each line is one write, so that lines of several daemons in one file do not mix.
    pub fn to_file(member: u32, path: &Path) -> Result<Self, String> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.map_err(|error| format!("cannot write the audit log {}: {error}", path.display()))?;
        Ok(Self { member, file: Some(Mutex::new(file)) })
    }

    /// Whether anybody will read it.
    pub fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// Writes a line. A log that cannot be written is told of, and stops nobody.
    pub fn write(&self, entry: &Entry<'_>) {
        let Some(file) = &self.file else { return };
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |at| at.as_millis());
        let Ok(mut line) = serde_json::to_vec(&Line { at_ms, member: self.member, entry }) else { return };
        line.push(b'\n');
        let written = file.lock().unwrap_or_else(|e| e.into_inner()).write_all(&line);
        if let Err(error) = written {
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
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["lock"], &lines[0]["fence"]), (&"a\n\"b".into(), &7.into()));
        assert_eq!((&lines[0]["member"], &lines[1]["what"]), (&2.into(), &"refuse".into()));
    }
}
