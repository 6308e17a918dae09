//! The rows of a comparison as CSV.

use super::Row;
use std::fmt::Write as _;

const HEADER: &str = "algorithm,family,load,sites,entries,messages_per_entry,messages_per_entry_ci95,formula,\
formula_value,verdict,to_enter,on_exit,idle_messages,bytes_per_entry,sync_delay,sync_delay_formula,\
sync_delay_least,sync_delay_most,client_delay,client_delay_formula,throughput,throughput_bound,jain,max_bypass,timestamp_inversions,causal_inversions,\
busiest_site,mean_site,state_bytes_mean,state_bytes_max,fifo_needed,crash,trouble,max_inside,readers";

/// One line for each row, after a header line; unknown values are empty.
pub fn write(rows: &[Row]) -> String {
    let mut csv = format!("{HEADER}\n");
    for row in rows {
        let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        let state = row.state_bytes;
        let fields = [
            row.algorithm.clone(),
            row.family.to_string(),
            row.load.clone(),
            row.sites.to_string(),
            row.entries.to_string(),
            number(row.messages_per_entry),
            number(row.messages_per_entry_ci95),
            row.formula.into(),
            number(row.formula_value),
            row.verdict.to_string(),
            number(row.to_enter),
            number(row.on_exit),
            row.idle_messages.to_string(),
            number(row.bytes_per_entry),
            number(row.sync_delay),
            number(row.sync_delay_formula),
            number(row.sync_delay_range.map(|(least, _)| least)),
            number(row.sync_delay_range.map(|(_, most)| most)),
            number(row.client_delay),
            number(row.client_delay_formula),
            number(row.throughput),
            number(row.throughput_bound),
            number(row.jain),
            row.max_bypass.to_string(),
            row.timestamp_inversions.to_string(),
            row.causal_inversions.map(|n| n.to_string()).unwrap_or_default(),
            number(row.busiest_site),
            number(row.mean_site),
            number(state.map(|state| state.mean)),
            state.map(|state| state.max.to_string()).unwrap_or_default(),
            if row.fifo_needed { "yes" } else { "no" }.into(),
            row.crash.into(),
            row.trouble.as_ref().map(|trouble| trouble.what.clone()).unwrap_or_default(),
            row.max_inside.to_string(),
            row.readers.to_string(),
        ];
        let _ = writeln!(csv, "{}", fields.map(|field| quoted(&field)).join(","));
    }
    csv
}

/// A field, quoted as in RFC 4180 if necessary.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_are_quoted() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
