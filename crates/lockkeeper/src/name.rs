//! Names of locks, and the rules they follow on every engine.

use crate::{Error, Result};
use std::fmt;

/// A lock's name: 1 to [`LockName::BYTES_MAX`] bytes of text without control characters.
///
/// Slashes, dots and spaces are ordinary characters: `orders/42` is one name, and `../x` names no path.
/// Every engine encodes names for its own store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(String);

impl LockName {
    /// The longest name, chosen to fit every engine's keys.
    pub const BYTES_MAX: usize = 512;

    /// Checks a name.
    pub fn new(name: impl Into<String>) -> Result<LockName> {
        let name = name.into();
        if name.is_empty() {
            return Err(Error::BadName("it is empty".into()));
        }
        if name.len() > Self::BYTES_MAX {
            let (length, limit) = (name.len(), Self::BYTES_MAX);
            return Err(Error::BadName(format!("it has {length} bytes; at most {limit} are allowed")));
        }
        if name.contains('\0') {
            return Err(Error::BadName("it contains a NUL character".into()));
        }
        if let Some(control) = name.chars().find(|c| c.is_control()) {
            return Err(Error::BadName(format!("it contains the control character {control:?}")));
        }
        Ok(LockName(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_name_gets_its_own_sentence() {
        let sentence = |name: &str| LockName::new(name).unwrap_err().to_string();
        assert_eq!(sentence(""), "bad lock name: it is empty");
        assert_eq!(sentence("a\0b"), "bad lock name: it contains a NUL character");
        assert_eq!(sentence("a\nb"), "bad lock name: it contains the control character '\\n'");
        assert_eq!(
            sentence(&"x".repeat(1 << 20)),
            "bad lock name: it has 1048576 bytes; at most 512 are allowed"
        );
        for good in ["a", "../../etc/passwd", "orders/42", ".", "ä ö", &"x".repeat(512)] {
            assert_eq!(LockName::new(good).unwrap().as_str(), good);
        }
    }
}
