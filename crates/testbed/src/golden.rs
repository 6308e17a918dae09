//! Golden files: the bytes of stored and sent values, which change by decision only.
//!
//! A golden file has one line for each value: its name, a space, and the expected text (bytes in hexadecimal, or JSON). A test that
//! finds other bytes fails and names the first line that differs. With `LOCKKEEPER_BLESS=1` in the environment the file is written
//! anew; the change is then part of the commit that changes the format and raises its version.

use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// The lines of a golden file, in the making.
#[derive(Debug, Default)]
pub struct Golden {
    lines: String,
}

impl Golden {
    /// Appends a value, encoded as postcard does it.
    ///
    /// # Panics
    /// If the value cannot be encoded.
    pub fn value(&mut self, name: &str, value: &impl Serialize) {
        self.bytes(name, &postcard::to_stdvec(value).expect("the value can be encoded"));
    }

    /// Appends bytes.
    pub fn bytes(&mut self, name: &str, bytes: &[u8]) {
        let hex = bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        self.text(name, &hex);
    }

    /// Appends a text of one line.
    pub fn text(&mut self, name: &str, text: &str) {
        let _ = writeln!(self.lines, "{name} {text}");
    }

    /// Compares all lines with a file below the crate's directory, which is `env!("CARGO_MANIFEST_DIR")`.
    ///
    /// # Panics
    /// If the file has other lines, with the first one that differs.
    #[track_caller]
    pub fn check(&self, directory: &str, file: &str) {
        let path = Path::new(directory).join(file);
        if std::env::var_os("LOCKKEEPER_BLESS").is_some() {
            std::fs::create_dir_all(path.parent().expect("a golden file has a folder"))
                .expect("it can be made");
            std::fs::write(&path, &self.lines).expect("the golden file can be written");
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        for (found, expected) in self.lines.lines().zip(expected.lines()) {
            assert_eq!(
                found, expected,
                "{file}: the format changed. If that is intended, raise its version and set LOCKKEEPER_BLESS=1"
            );
        }
        let (found, expected) = (self.lines.lines().count(), expected.lines().count());
        assert_eq!(
            found, expected,
            "{file}: there are other values than before (LOCKKEEPER_BLESS=1 writes the file anew)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "the format changed")]
    fn a_reordered_variant_is_noticed() {
        #[derive(Serialize)]
        #[expect(dead_code, reason = "only the order of the variants matters")]
        enum Reordered {
            New,
            Old,
        }
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("golden"), "old 00\n").expect("written");
        let mut golden = Golden::default();
        golden.value("old", &Reordered::Old);
        golden.check(directory.path().to_str().expect("UTF-8"), "golden");
    }
}
