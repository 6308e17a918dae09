//! Durations on the command line: `2`, `0.5`, `500ms`, `10s`, `2m`, `1h`.

use std::time::Duration;

/// The reason why a text is not a duration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The unit does not exist.
    #[error("unknown unit `{unit}`; use ms, s, m or h")]
    UnknownUnit {
        /// The unit as given.
        unit: String,
    },
    /// There is no number before the unit.
    #[error("not a duration; write for example 10s or 500ms")]
    NotANumber,
    /// The number is negative.
    #[error("a duration cannot be negative")]
    Negative,
    /// The number is too large.
    #[error("too long")]
    TooLong,
}

/// Parses a duration; a bare number is in seconds.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(DurationError::UnknownUnit { unit: unit.into() }),
    };
    let number: f64 = number.parse().map_err(|_| DurationError::NotANumber)?;
    if number < 0.0 {
        return Err(DurationError::Negative);
    }
    Duration::try_from_secs_f64(number * scale).map_err(|_| DurationError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::{DurationError, parse};
    use std::time::Duration;

    #[test]
    fn durations_have_units_and_are_not_negative() {
        for (text, ms) in
            [("2", 2000), ("0.5", 500), ("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("0", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "1 s", "-"] {
            assert_eq!(parse(text), Err(DurationError::NotANumber), "{text}");
        }
        for (text, unit) in [("1d", "d"), ("1e999", "e999"), ("inf", "inf"), ("nan", "nan"), ("ten", "ten")] {
            assert_eq!(parse(text), Err(DurationError::UnknownUnit { unit: unit.into() }), "{text}");
        }
        for text in ["-1", "-5s"] {
            assert_eq!(parse(text), Err(DurationError::Negative), "{text}");
        }
        let digits = "9".repeat(30);
        assert_eq!(parse(&digits), Err(DurationError::TooLong));
    }
}
