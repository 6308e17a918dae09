//! Names of locks, and the rules for them, which are the same on every engine.

use crate::{Error, Result};
use std::fmt;

/// A lock's name: 1 to [`LockName::BYTES_MAX`] bytes of text without control characters.
///
/// Slashes, dots and spaces are ordinary characters: `orders/42` is one name, and `../x` does not refer to a path.
/// Every engine encodes names for its own store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(String);

impl LockName {
    /// The length of the longest name in bytes, chosen to fit the keys of every engine.
    pub const BYTES_MAX: usize = lockkeeper_text::LONGEST_NAME;

    /// Checks a name against the rules.
    pub fn new(name: impl Into<String>) -> Result<LockName> {
        let name = name.into();
        lockkeeper_text::check_name(&name).map_err(|why| Error::BadName(why.to_string()))?;
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
    fn each_invalid_name_is_rejected_with_its_own_message() {
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
