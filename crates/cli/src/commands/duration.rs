//! Durations on the command line: `2`, `0.5`, `500ms`, `10s`, `2m`, `1h`.

use std::time::Duration;

/// Parses a duration; a bare number is in seconds.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit `{unit}`; use ms, s, m or h")),
    };
    let number: f64 =
        number.parse().map_err(|_| "not a duration; write for example 10s or 500ms".to_owned())?;
    if number < 0.0 {
        return Err("a duration cannot be negative".into());
    }
    Duration::try_from_secs_f64(number * scale).map_err(|_| "too long".into())
}

#[cfg(test)]
mod tests {
    use super::parse;
    use std::time::Duration;

    #[test]
    fn durations_have_units_and_are_not_negative() {
        for (text, ms) in
            [("2", 2000), ("0.5", 500), ("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("0", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "-1", "-5s", "s", "1d", "1e999", "inf", "nan", "1 s", "ten"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
