//! Names of locks, and the rules for them, which are the same on every engine.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

/// A lock's name: 1 to [`LockName::BYTES_MAX`] bytes of text without control characters.
///
/// Slashes, dots and spaces are ordinary characters: `orders/42` is one name, and `../x` does not refer to a path.
/// Every engine encodes names for its own store.
///
/// ```
/// use lockkeeper::LockName;
/// let name: LockName = "orders/42".parse()?;
/// assert_eq!(name.as_ref(), "orders/42");
/// assert!(LockName::try_from("line\nbreak").is_err());
/// # Ok::<(), lockkeeper::Error>(())
/// ```
///
/// In JSON and other formats of serde it is a string; an invalid one is rejected when it is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
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

impl FromStr for LockName {
    type Err = Error;

    fn from_str(name: &str) -> Result<LockName> {
        LockName::new(name)
    }
}

impl TryFrom<&str> for LockName {
    type Error = Error;

    fn try_from(name: &str) -> Result<LockName> {
        LockName::new(name)
    }
}

impl TryFrom<String> for LockName {
    type Error = Error;

    fn try_from(name: String) -> Result<LockName> {
        LockName::new(name)
    }
}

impl From<LockName> for String {
    fn from(name: LockName) -> String {
        name.0
    }
}

/// For methods that take `impl Into<String>`, such as [`Lockkeeper::mutex`](crate::Lockkeeper::mutex).
impl From<&LockName> for String {
    fn from(name: &LockName) -> String {
        name.0.clone()
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// A map with names as keys can be searched with a `&str`: `Eq`, `Ord` and `Hash` are those of the text.
impl Borrow<str> for LockName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, HashMap};

    #[test]
    fn all_conversions_apply_the_same_rules() {
        let good = LockName::new("orders/42").unwrap();
        assert_eq!("orders/42".parse::<LockName>().unwrap(), good);
        assert_eq!(LockName::try_from("orders/42").unwrap(), good);
        assert_eq!(LockName::try_from(String::from("orders/42")).unwrap(), good);
        assert_eq!(
            (String::from(&good), String::from(good.clone())),
            ("orders/42".into(), "orders/42".into())
        );
        assert_eq!(serde_json::to_string(&good).unwrap(), r#""orders/42""#);
        assert_eq!(serde_json::from_str::<LockName>(r#""orders/42""#).unwrap(), good);
        for bad in ["", "a\0b", &"x".repeat(513)] {
            let expected = LockName::new(bad).unwrap_err().to_string();
            assert_eq!(bad.parse::<LockName>().unwrap_err().to_string(), expected);
            assert_eq!(LockName::try_from(bad).unwrap_err().to_string(), expected);
            assert_eq!(LockName::try_from(bad.to_owned()).unwrap_err().to_string(), expected);
            let json = serde_json::to_string(bad).unwrap();
            let rejected = serde_json::from_str::<LockName>(&json).unwrap_err().to_string();
            assert!(rejected.contains(&expected), "{rejected}");
        }
    }

    #[test]
    fn a_map_of_names_is_searched_by_text() {
        let name = LockName::new("a").unwrap();
        assert_eq!(HashMap::from([(name.clone(), 1)]).get("a"), Some(&1));
        assert_eq!(BTreeMap::from([(name, 1)]).get("a"), Some(&1));
    }

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
