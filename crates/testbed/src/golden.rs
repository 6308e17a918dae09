//! Golden files: the bytes of stored and sent values, which change by decision only.
//!
//! A golden file has one line for each value: its name, a space, and the expected text (bytes in hexadecimal, or JSON). A test that
//! finds other bytes fails and names the first line that differs. With `LOCKKEEPER_BLESS=1` in the environment the file is written
//! anew; the change is then part of the commit that changes the format and raises its version.
//!
//! [`every_variant!`](crate::every_variant) lists the examples of an enum: a new variant without an example does not compile. The
//! fields of an example have different values, so that two exchanged fields of the same type change its bytes. Names in a golden
//! file do not follow the names in the code: renaming a variant changes no file.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Write;
use std::path::Path;

/// One named example for each variant of an enum, as a `Vec` of names and values.
///
/// Each line has a name, the variant's pattern and an example of it. The patterns are matched without a wildcard, so a new variant
/// does not compile before it has an example.
///
/// # Panics
/// If an example does not match the pattern of its line.
///
/// ```
/// let examples = lockkeeper_testbed::every_variant!(Option<u8> {
///     "nothing": None => None,
///     "a byte": Some(_) => Some(7),
/// });
/// assert_eq!(examples, [("nothing", None), ("a byte", Some(7))]);
/// ```
#[macro_export]
macro_rules! every_variant {
    ($type:ty { $($name:literal: $pattern:pat => $value:expr,)+ }) => {{
        let name_of = |value: &$type| -> &'static str {
            match value {
                $($pattern => $name,)+
            }
        };
        let examples: Vec<(&'static str, $type)> = vec![$(($name, $value)),+];
        for (name, value) in &examples {
            assert_eq!(name_of(value), *name, "the example is another variant than its pattern");
        }
        examples
    }};
}

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

    /// Appends values, encoded as postcard does it. Each line begins with `kind` and the value's name.
    ///
    /// # Panics
    /// If a value cannot be encoded, or if its bytes cannot be decoded to the same value.
    pub fn values<T: Serialize + DeserializeOwned>(&mut self, kind: &str, values: &[(&str, T)]) {
        for (name, value) in values {
            let bytes = postcard::to_stdvec(value).expect("the value can be encoded");
            let decoded: T = postcard::from_bytes(&bytes)
                .unwrap_or_else(|error| panic!("{kind} {name}: cannot be decoded: {error}"));
            let again = postcard::to_stdvec(&decoded).expect("the value can be encoded");
            assert_eq!(again, bytes, "{kind} {name}: another value is decoded");
            self.bytes(&format!("{kind} {name}"), &bytes);
        }
    }

    /// Appends a value as JSON.
    ///
    /// # Panics
    /// If the value cannot be encoded.
    pub fn json(&mut self, name: &str, value: &impl Serialize) {
        self.text(name, &serde_json::to_string(value).expect("the value can be encoded"));
    }

    /// Appends a line with bytes, in hexadecimal digits.
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

    #[test]
    #[should_panic(expected = "another variant than its pattern")]
    fn an_example_of_another_variant_is_noticed() {
        crate::every_variant!(Option<u8> {
            "nothing": None => Some(7),
            "a byte": Some(_) => Some(7),
        });
    }
}
