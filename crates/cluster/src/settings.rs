//! The cluster's settings as text: `lease=2s`, `algorithm=raymond`, `tree=line`.

use crate::config::Times;
use lockkeeper_core::any::ALGORITHM;
use lockkeeper_member::ClusterSettings;
use std::time::Duration;

/// The reason why a setting's value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// There is no profile of times with this name.
    #[error("there is no profile of times '{name}': use default, tuned or slow")]
    Profile {
        /// The name that no profile has.
        name: String,
    },
    /// The value is not a time.
    #[error("{name} takes a time such as 1500ms or 1.5s, not '{value}'")]
    Time {
        /// The name of the setting.
        name: String,
        /// The value as given.
        value: String,
    },
    /// The value is not a number of millionths.
    #[error("drift takes millionths, such as 500ppm, not '{value}'")]
    Drift {
        /// The value as given.
        value: String,
    },
}

/// The profile of [`Times`] with this name in a configuration file.
pub fn profile(name: &str) -> Option<Times> {
    match name {
        "default" => Some(Times::default()),
        "tuned" => Some(Times::tuned()),
        "slow" => Some(Times::default().times(5)),
        _ => None,
    }
}

/// The settings as names and values, in the form that [`change`] reads.
pub fn describe(settings: &ClusterSettings) -> Vec<(String, String)> {
    let ms = |name: &str, ns: u64| (name.to_string(), format!("{}ms", ns / 1_000_000));
    let mut all = settings.algorithm.clone();
    if !all.iter().any(|(name, _)| name == ALGORITHM) {
        all.insert(0, (ALGORITHM.into(), lockkeeper_core::any::DEFAULT.into()));
    }
    all.extend([
        ms("lease", settings.lease_ns),
        ms("longest_lease", settings.longest_lease_ns),
        ms("shortest_ttl", settings.shortest_ttl_ns),
        ms("longest_ttl", settings.longest_ttl_ns),
        ms("renewal", settings.renewal_ns),
        ms("silence", settings.silence_ns),
        ms("settle", settings.settle_ns),
        ("drift".to_string(), format!("{}ppm", settings.drift_ppm)),
    ]);
    all
}

/// Applies changes to the present settings. A new algorithm drops the options of the previous one. A name that is not a
/// time is an option of the algorithm, which the leader validates.
pub fn change(
    present: &ClusterSettings,
    changes: &[(String, String)],
) -> Result<ClusterSettings, ValueError> {
    let mut settings = present.clone();
    for (name, value) in changes {
        match name.as_str() {
            ALGORITHM => settings.algorithm = vec![(name.clone(), value.clone())],
            "times" => {
                let times = profile(value).ok_or_else(|| ValueError::Profile { name: value.clone() })?;
                settings.lease_ns = nanoseconds(times.lease);
                settings.renewal_ns = nanoseconds(times.renewal);
                settings.silence_ns = nanoseconds(times.silence);
                settings.settle_ns = nanoseconds(times.settle);
            }
            "lease" => settings.lease_ns = time(name, value)?,
            "longest_lease" => settings.longest_lease_ns = time(name, value)?,
            "shortest_ttl" => settings.shortest_ttl_ns = time(name, value)?,
            "longest_ttl" => settings.longest_ttl_ns = time(name, value)?,
            "renewal" => settings.renewal_ns = time(name, value)?,
            "silence" => settings.silence_ns = time(name, value)?,
            "settle" => settings.settle_ns = time(name, value)?,
            "drift" => {
                let digits = value.strip_suffix("ppm").unwrap_or(value);
                settings.drift_ppm =
                    digits.trim().parse().map_err(|_| ValueError::Drift { value: value.clone() })?;
            }
            _ => {
                settings.algorithm.retain(|(known, _)| known != name);
                settings.algorithm.push((name.clone(), value.clone()));
            }
        }
    }
    Ok(settings)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Parses a duration such as `1500ms` or `1.5s`. `name` appears in the error message.
pub fn read_time(name: &str, value: &str) -> Result<Duration, ValueError> {
    time(name, value).map(Duration::from_nanos)
}

fn time(name: &str, value: &str) -> Result<u64, ValueError> {
    let (digits, unit_ms) = match value.strip_suffix("ms") {
        Some(digits) => (digits, 1.0),
        None => (value.strip_suffix('s').unwrap_or(""), 1000.0),
    };
    let number: Option<f64> = digits.trim().parse().ok();
    number
        .filter(|number| (0.001..=1e7).contains(number))
        .map(|number| (number * unit_ms * 1e6) as u64)
        .ok_or_else(|| ValueError::Time { name: name.into(), value: value.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &[(&str, &str)]) -> Vec<(String, String)> {
        text.iter().map(|&(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn change_affects_only_the_named_settings() {
        let present = ClusterSettings::default();
        let changed = change(&present, &pairs(&[("lease", "2.5s"), ("drift", "800")])).unwrap();
        assert_eq!(changed, ClusterSettings { lease_ns: 2_500_000_000, drift_ppm: 800, ..present.clone() });
        let raymond = change(&present, &pairs(&[("algorithm", "raymond"), ("tree", "line")])).unwrap();
        assert_eq!(raymond.algorithm_text(), "raymond (tree=line)");
        let back = change(&raymond, &pairs(&[("algorithm", "majority")])).unwrap();
        assert_eq!(back.algorithm_text(), "majority");
        assert_eq!(change(&present, &describe(&present)).unwrap().differences(&present), "");
    }

    #[test]
    fn a_value_that_cannot_be_read_is_refused_with_an_example() {
        let refused =
            |name, value| change(&ClusterSettings::default(), &pairs(&[(name, value)])).unwrap_err();
        for value in ["2", "-1s"] {
            let error = refused("lease", value);
            assert_eq!(error, ValueError::Time { name: "lease".into(), value: value.into() });
            assert!(error.to_string().contains("1500ms"), "{error}");
        }
        assert!(refused("times", "fast").to_string().contains("slow"));
        assert!(refused("drift", "much").to_string().contains("500ppm"));
    }
}
