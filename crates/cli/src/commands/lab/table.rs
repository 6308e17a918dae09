//! A report as a table: measured values beside those of the paper.

use crate::print_line;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table, presets};
use lockkeeper_core::Sharing;
use lockkeeper_lab::Report;
use lockkeeper_lab::simulator::metrics::Summary;
use std::time::Duration;

/// Prints the report.
pub fn print(report: &Report, wall: Duration) {
    let runs =
        if report.seeds == 1 { String::new() } else { format!(" to {}", report.seed + report.seeds - 1) };
    print_line!(
        "{}, {} sites, {} load, {}{} channels, seed {}{runs}: {} entries measured\n",
        report.algorithm,
        report.sites,
        report.load,
        if report.readers > 0.0 { format!("{} readers, ", report.readers) } else { String::new() },
        if report.fifo { "FIFO" } else { "non-FIFO" },
        report.seed,
        report.entries,
    );
    print_line!("{}\n", measured(report).trim_fmt());
    print_line!("{}\n", times(report).trim_fmt());
    print_line!("{}", fairness(report));
    print_line!("{}", properties(report));
    let seconds = wall.as_secs_f64().max(1e-9);
    print_line!(
        "{} events in {} T of virtual time, {:.3} s: {:.1} million events per second",
        report.events,
        report.virtual_time,
        seconds,
        report.events as f64 / seconds / 1e6
    );
}

/// A table with these columns: the first for names, the others for figures.
pub fn table<T: AsRef<str>>(header: &[T]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|text| Cell::new(text.as_ref()).add_attribute(Attribute::Bold)));
    for column in 1..header.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn measured(report: &Report) -> Table {
    let mut table = table(&["", "measured", "± 95 %", "paper"]);
    let expected = &report.expected;
    let messages = report.messages_per_entry;
    table.add_row([
        "messages per entry".into(),
        number(messages),
        number(report.messages_per_entry_ci95),
        number(expected.messages_per_entry),
    ]);
    for (name, count) in &report.by_message {
        let share = (report.entries > 0).then(|| *count as f64 / report.entries as f64);
        table.add_row([format!("  {name}"), number(share), String::new(), String::new()]);
    }
    let mut row = |name: &str, value: Option<f64>| {
        table.add_row([name.to_string(), number(value), String::new(), String::new()]);
    };
    row("  to enter", report.to_enter);
    row("  on exit", report.on_exit);
    row("bytes per entry", report.bytes_per_entry);
    row("messages per T while idle", Some(report.idle_messages));
    row("load of the busiest process", report.site_load.max);
    row("load of a process, mean", report.site_load.mean);
    if report.sharing != Sharing::Mutex {
        row("sites inside at once, at most", Some(report.max_inside as f64));
    }
    let capacity = report.sharing.capacity();
    let bound = number(report.throughput_bound);
    table.add_row([
        format!("entries per T; {capacity}/(SD+E)"),
        number(report.throughput),
        String::new(),
        bound,
    ]);
    table
}

fn times(report: &Report) -> Table {
    let mut table = table(&["in T", "mean", "± 95 %", "p50", "p99", "max", "count", "paper"]);
    let mut row = |name: &str, s: &Summary, paper: String| {
        let numbers = [s.mean, s.ci95, s.p50, s.p99, s.max].map(number);
        let cells = std::iter::once(name.to_string()).chain(numbers);
        table.add_row(cells.chain([s.count.to_string(), paper]));
    };
    let expected = &report.expected;
    let sync_delay = match (expected.sync_delay, expected.sync_delay_range) {
        (None, Some((least, most))) => format!("{}–{}", number(Some(least)), number(Some(most))),
        (stated, _) => number(stated),
    };
    row("synchronization delay", &report.sync_delay, sync_delay);
    row("client delay", &report.client_delay, number(expected.client_delay));
    row("waiting time", &report.waiting, number(None));
    row("response time", &report.response, number(None));
    table
}

fn fairness(report: &Report) -> String {
    let fairness = &report.fairness;
    format!(
        "fairness    Jain's index {}, largest bypass {}, out of timestamp order {}, out of causal order {}",
        number(fairness.jain),
        fairness.max_bypass,
        fairness.timestamp_inversions,
        fairness.causal_inversions.map_or("not watched".into(), |n| n.to_string()),
    )
}

fn properties(report: &Report) -> String {
    let properties = &report.properties;
    format!(
        "properties  mutual exclusion {}, deadlock {}, starvation {}, rising fences {}, own invariants {}",
        properties.mutual_exclusion,
        properties.deadlock,
        properties.starvation,
        properties.fence_monotone,
        properties.invariants,
    )
}

/// A number with at most four decimals, without trailing zeros.
fn number(value: Option<f64>) -> String {
    match value {
        None => "–".into(),
        Some(value) => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_no_trailing_zeros() {
        let texts: Vec<String> = [16.0, 0.1, 2.66666, 100.0, 0.0].iter().map(|&n| number(Some(n))).collect();
        assert_eq!(texts, ["16", "0.1", "2.6667", "100", "0"]);
        assert_eq!(number(None), "–");
    }
}
