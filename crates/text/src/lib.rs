//! The parts of a request that algorithms, members, clients and engines share: which names and tags are accepted, the
//! [modes](LockMode) of a lock, and how text from outside is printed.
//!
//! Every protocol, every engine and every member uses these rules, so a name that one of them accepts is accepted by all of them.
//! Names and tags have no control characters. Text that comes from elsewhere, such as the tags of another engine, may have some:
//! [`Printable`] escapes it at the point where it is printed.
#![no_std]

mod mode;

pub use mode::LockMode;

use core::fmt::{self, Write};

/// The longest name of a lock, in bytes.
pub const LONGEST_NAME: usize = 512;
/// The longest owner, and the longest purpose, in bytes.
pub const LONGEST_TAG: usize = 1024;

/// Why a text is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadText {
    /// A name has at least one byte.
    Empty,
    /// It is too long.
    TooLong {
        /// Its length, in bytes.
        bytes: usize,
        /// The longest that is accepted.
        most: usize,
    },
    /// It contains this control character.
    Control(char),
}

impl fmt::Display for BadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("it is empty"),
            Self::TooLong { bytes, most } => write!(f, "it has {bytes} bytes; at most {most} are allowed"),
            Self::Control('\0') => f.write_str("it contains a NUL character"),
            Self::Control(control) => write!(f, "it contains the control character {control:?}"),
        }
    }
}

impl core::error::Error for BadText {}

/// Whether a lock may have this name: 1 to [`LONGEST_NAME`] bytes without control characters.
pub fn check_name(name: &str) -> Result<(), BadText> {
    if name.is_empty() {
        return Err(BadText::Empty);
    }
    check(name, LONGEST_NAME)
}

/// Whether an owner or a purpose may be this: at most [`LONGEST_TAG`] bytes without control characters.
pub fn check_tag(text: &str) -> Result<(), BadText> {
    check(text, LONGEST_TAG)
}

fn check(text: &str, most: usize) -> Result<(), BadText> {
    if text.len() > most {
        return Err(BadText::TooLong { bytes: text.len(), most });
    }
    // This runs for every message between members. Control characters are 00-1F, 7F, and 80-9F, which UTF-8 writes as C2 80 to C2 9F:
    // nearly every name has none of these bytes, and is not decoded.
    let suspicious = |byte: u8| byte < 0x20 || byte == 0x7f || byte == 0xc2;
    if !text.bytes().any(suspicious) {
        return Ok(());
    }
    text.chars().find(|c| c.is_control()).map_or(Ok(()), |control| Err(BadText::Control(control)))
}

/// A text, printed so that it cannot change how a terminal or a log shows what is around it: control characters, line separators
/// and characters that change the direction of text are escaped.
///
/// ```
/// use lockkeeper_text::Printable;
/// assert_eq!(Printable("night\u{1b}[2Jly\n").to_string(), r"night\u{1b}[2Jly\n");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(pub &'a str);

/// Whether a character is escaped where text is printed.
fn is_escaped(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Line and paragraph separators.
            '\u{2028}' | '\u{2029}'
            // Marks, embeddings, overrides and isolates of direction.
            | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Invisible: two names would look the same.
            | '\u{200b}' | '\u{feff}')
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                c if !is_escaped(c) => f.write_char(c)?,
                '\n' | '\r' | '\t' => write!(f, "{}", c.escape_default())?,
                c => write!(f, "{}", c.escape_unicode())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::{String, ToString};

    #[test]
    fn every_bad_name_has_its_own_reason() {
        let reason = |name: &str| check_name(name).unwrap_err().to_string();
        assert_eq!(reason(""), "it is empty");
        assert_eq!(reason("a\0b"), "it contains a NUL character");
        assert_eq!(reason("a\nb"), "it contains the control character '\\n'");
        assert_eq!(reason("a\u{9b}"), "it contains the control character '\\u{9b}'");
        assert_eq!(reason(&"x".repeat(513)), "it has 513 bytes; at most 512 are allowed");
        for good in ["a", "../../etc/passwd", "orders/42", ".", "\u{e4} \u{a9}", &"x".repeat(512)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn no_control_character_passes() {
        for c in (0..=0x2ff).filter_map(char::from_u32) {
            let text = String::from_iter(['a', c, 'b']);
            assert_eq!(check_tag(&text).is_err(), c.is_control(), "{c:?}");
        }
        assert_eq!(check_tag(""), Ok(()));
        assert!(check_tag(&"x".repeat(LONGEST_TAG + 1)).is_err());
    }

    #[test]
    fn printed_text_has_no_control_characters_and_keeps_its_direction() {
        let shown = Printable("a\u{1b}]0;x\u{7}\nb\u{202e}c\u{9b}d\u{2066}").to_string();
        assert_eq!(shown, r"a\u{1b}]0;x\u{7}\nb\u{202e}c\u{9b}d\u{2066}");
        for plain in ["", "nightly", "\u{e4}\u{f6} \u{65e5}\u{672c} \u{5d0}", r"back\slash"] {
            assert_eq!(Printable(plain).to_string(), plain);
        }
    }
}
