//! The settings of an algorithm, such as `coordinator=apart`, and the options that it makes of them.

use crate::any::AlgorithmError;
use crate::quorum::QuorumError;
use crate::tree::TreeError;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
use serde::Serialize;

/// The options of an algorithm. The code that starts a system from the user's settings calls this: the commands of the
/// lab, and the members of a cluster when they install a view.
pub trait Configure {
    /// The algorithm's own options, made from settings such as `coordinator=apart`.
    type Options: Clone + fmt::Debug + Default + Send + Sync;

    /// Reads the options from the settings. An implementation takes each setting that it knows from [`Settings`]; the
    /// caller rejects the remaining ones ([`Settings::nothing_left`]).
    fn options(_settings: &mut Settings, _sites: usize) -> Result<Self::Options, OptionsError> {
        Ok(Self::Options::default())
    }
}

/// A setting of an algorithm.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// The name.
    pub name: &'static str,
    /// The accepted values.
    pub values: &'static str,
    /// The default value.
    pub default: &'static str,
    /// The effect of the setting.
    pub help: &'static str,
}

/// The reason why settings do not yield the options of an algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionsError {
    /// The setting does not accept the value.
    InvalidValue {
        /// The name of the setting.
        name: &'static str,
        /// The accepted values.
        expected: &'static str,
        /// The given value.
        value: String,
    },
    /// The algorithm does not have the setting.
    UnknownSetting {
        /// The given name.
        name: String,
        /// The settings that the algorithm has.
        known: Vec<&'static str>,
    },
    /// One of two settings is given without the other.
    Unpaired {
        /// The name of one setting.
        first: &'static str,
        /// The name of the other setting.
        second: &'static str,
    },
    /// The quorums are not valid for this number of sites.
    Quorums(QuorumError),
    /// The tree is not valid for this number of sites.
    Tree(TreeError),
    /// A cluster does not run the algorithm that the settings name.
    Algorithm(AlgorithmError),
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidValue { name, expected, value } => {
                write!(f, "the setting {name} takes {expected}, not '{value}'")
            }
            Self::UnknownSetting { name, known } if known.is_empty() => {
                write!(f, "there is no setting '{name}' here: this algorithm takes none")
            }
            Self::UnknownSetting { name, known } => {
                write!(f, "there is no setting '{name}' here: there is {}", known.join(", "))
            }
            Self::Unpaired { first, second } => {
                write!(f, "{first} and {second} belong together: give both settings or neither")
            }
            Self::Quorums(error) => error.fmt(f),
            Self::Tree(error) => error.fmt(f),
            Self::Algorithm(error) => error.fmt(f),
        }
    }
}

impl Error for OptionsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::InvalidValue { .. } | Self::UnknownSetting { .. } | Self::Unpaired { .. } => None,
            Self::Quorums(error) => Some(error),
            Self::Tree(error) => Some(error),
            Self::Algorithm(error) => Some(error),
        }
    }
}

impl From<QuorumError> for OptionsError {
    fn from(error: QuorumError) -> Self {
        Self::Quorums(error)
    }
}

impl From<TreeError> for OptionsError {
    fn from(error: TreeError) -> Self {
        Self::Tree(error)
    }
}

impl From<AlgorithmError> for OptionsError {
    fn from(error: AlgorithmError) -> Self {
        Self::Algorithm(error)
    }
}

/// The accepted values of the setting `timeout`.
pub const TIMEOUT_VALUES: &str = "none or a time in T from 0.001 to 1e9";

/// Settings by name, as the user gave them.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    given: BTreeMap<String, String>,
    taken: Vec<&'static str>,
}

impl Settings {
    /// Creates settings from pairs of name and value. The last value of a name wins.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { given: pairs.into_iter().collect(), taken: Vec::new() }
    }

    /// Takes a setting and reads it with `parse`; returns the default if the setting is not given.
    pub fn take<T>(
        &mut self,
        name: &'static str,
        default: T,
        parse: impl FnOnce(&str) -> Option<T>,
        expected: &'static str,
    ) -> Result<T, OptionsError> {
        self.taken.push(name);
        match self.given.get(name) {
            None => Ok(default),
            Some(value) => parse(value).ok_or_else(|| OptionsError::InvalidValue {
                name,
                expected,
                value: value.clone(),
            }),
        }
    }

    /// Takes the setting `timeout`, in thousandths of T; `None` if the site waits without a timeout.
    pub fn take_timeout(&mut self) -> Result<Option<u64>, OptionsError> {
        let parse = |text: &str| match text.parse::<f64>() {
            _ if text == "none" => Some(None),
            Ok(t) if (0.001..=1e9).contains(&t) => Some(Some((t * 1000.0 + 0.5) as u64)),
            _ => None,
        };
        self.take("timeout", None, parse, TIMEOUT_VALUES)
    }

    /// Rejects settings that were given but not taken.
    pub fn nothing_left(&self) -> Result<(), OptionsError> {
        match self.given.keys().find(|name| !self.taken.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(OptionsError::UnknownSetting { name: name.clone(), known: self.taken.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::{
        centralized::Centralized, maekawa::Maekawa, naimi_trehel::NaimiTrehel, raymond::Raymond,
    };
    use alloc::string::ToString;

    /// The error for these settings in a system of three sites.
    fn refused<P: Configure>(pairs: &[(&str, &str)]) -> OptionsError {
        let pairs = pairs.iter().map(|&(name, value)| (name.into(), value.into()));
        let mut settings = Settings::new(pairs);
        let options = P::options(&mut settings, 3);
        options.and_then(|_| settings.nothing_left()).unwrap_err()
    }

    #[test]
    fn rejected_value_is_reported_with_the_accepted_ones() {
        let error = refused::<Centralized>(&[("denied", "maybe")]);
        assert!(matches!(error, OptionsError::InvalidValue { name: "denied", .. }), "{error:?}");
        assert_eq!(error.to_string(), "the setting denied takes yes or no, not 'maybe'");
    }

    #[test]
    fn unknown_setting_is_reported_with_the_known_ones() {
        let error = refused::<Centralized>(&[("colour", "blue")]);
        let known = ["coordinator", "denied"].into();
        assert_eq!(error, OptionsError::UnknownSetting { name: "colour".into(), known });
        assert_eq!(error.to_string(), "there is no setting 'colour' here: there is coordinator, denied");
        let none = refused::<NaimiTrehel>(&[("colour", "blue")]);
        assert_eq!(none.to_string(), "there is no setting 'colour' here: this algorithm takes none");
    }

    #[test]
    fn timeout_and_fallback_are_accepted_only_together() {
        let error = refused::<Maekawa>(&[("timeout", "3")]);
        assert_eq!(error, OptionsError::Unpaired { first: "timeout", second: "fallback" });
        assert_eq!(error.to_string(), "timeout and fallback belong together: give both settings or neither");
    }

    #[test]
    fn errors_of_trees_and_quorums_are_sources() {
        let error = refused::<Raymond>(&[("tree", "1-2")]);
        assert_eq!(error, OptionsError::Tree(TreeError::Disconnected { reached: 2, sites: 3 }));
        let source = error.source().expect("the error of the tree");
        assert_eq!(source.to_string(), "these edges reach only 2 of 3 sites from S1");
        assert_eq!(error.to_string(), source.to_string());
        let error = refused::<Maekawa>(&[("quorums", "1,2/2,3")]);
        assert!(error.source().is_some_and(|source| source.is::<QuorumError>()), "{error:?}");
    }
}
