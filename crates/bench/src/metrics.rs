//! Parses counters in Prometheus' text format.

/// The sum of a counter over all its labels; 0 if it does not exist.
pub(crate) fn sum(text: &str, name: &str) -> f64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with(['{', ' ']).then(|| rest.rsplit(' ').next()?.parse::<f64>().ok()).flatten()
    };
    text.lines().filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn counters_are_summed_over_their_labels() {
        let text = "# HELP a x\na_total{kind=\"A\"} 3\na_total{kind=\"B b\"} 4\na_total_more 9\na_total 1\n";
        assert_eq!(super::sum(text, "a_total"), 8.0);
        assert_eq!(super::sum(text, "b_total"), 0.0);
    }
}
