//! The settings of an algorithm, such as `coordinator=apart`, and the options that it makes of them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::Serialize;

/// The options of an algorithm. The code that starts a system from the user's settings calls this: the commands of the
/// lab, and the members of a cluster when they install a view.
pub trait Configure {
    /// The algorithm's own options, made from settings such as `coordinator=apart`.
    type Options: Clone + fmt::Debug + Default + Send + Sync;

    /// Reads the options from the settings. An implementation takes each setting that it knows from [`Settings`]; the
    /// caller rejects the remaining ones ([`Settings::nothing_left`]).
    fn options(_settings: &mut Settings, _sites: usize) -> Result<Self::Options, String> {
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
        expected: &str,
    ) -> Result<T, String> {
        self.taken.push(name);
        match self.given.get(name) {
            None => Ok(default),
            Some(value) => {
                parse(value).ok_or_else(|| format!("the setting {name} takes {expected}, not '{value}'"))
            }
        }
    }

    /// Takes the setting `timeout`, in thousandths of T; `None` if the site waits without a timeout.
    pub fn take_timeout(&mut self) -> Result<Option<u64>, String> {
        let parse = |text: &str| match text.parse::<f64>() {
            _ if text == "none" => Some(None),
            Ok(t) if (0.001..=1e9).contains(&t) => Some(Some((t * 1000.0 + 0.5) as u64)),
            _ => None,
        };
        self.take("timeout", None, parse, TIMEOUT_VALUES)
    }

    /// Rejects settings that were given but not taken.
    pub fn nothing_left(&self) -> Result<(), String> {
        match self.given.keys().find(|name| !self.taken.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) if self.taken.is_empty() => {
                Err(format!("there is no setting '{name}' here: this algorithm takes none"))
            }
            Some(name) => {
                Err(format!("there is no setting '{name}' here: there is {}", self.taken.join(", ")))
            }
        }
    }
}
