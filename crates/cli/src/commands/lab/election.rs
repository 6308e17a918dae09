//! Reports of elections: `lockkeeper sim --election` and the table of `lockkeeper compare --elections`.

use super::table::table;
use crate::{exit, print_line};
use comfy_table::Table;
use lockkeeper_lab::Error;
use lockkeeper_lab::comparison::table::number;
use lockkeeper_lab::election::Report;
use lockkeeper_lab::election::cost::{CostRow, costs};
use lockkeeper_lab::election::report::Outcome;
use std::process::ExitCode;

/// The maximum number of violations that are printed.
const MOST: usize = 5;

/// Prints a report and returns the exit code.
pub fn print(report: &Report, json: bool) -> ExitCode {
    if json {
        print_line!("{}", serde_json::to_string(report).expect("a report is plain data"));
    } else {
        print_report(report);
    }
    let mut last_seed = None;
    for found in report.violations.iter().take(MOST) {
        if last_seed.replace(found.seed) != Some(found.seed) {
            eprintln!("seed {}; see it again with: {}", found.seed, found.reproduce);
        }
        eprintln!("  {}", found.violation);
    }
    if report.violations.len() > MOST {
        eprintln!("… and {} more violations", report.violations.len() - MOST);
    }
    if report.held() { ExitCode::SUCCESS } else { ExitCode::from(exit::VIOLATED) }
}

fn print_report(report: &Report) {
    let runs =
        if report.seeds == 1 { String::new() } else { format!(" to {}", report.seed + report.seeds - 1) };
    print_line!("{}, {} sites, seed {}{runs}\n", report.election, report.sites, report.seed);
    let per_run = |n: u64| number(Some(n as f64 / report.seeds as f64), 4);
    let mut table = table(&["", if report.seeds == 1 { "measured" } else { "mean of a run" }]);
    table.add_row(["messages".into(), per_run(report.messages)]);
    for (name, count) in &report.by_message {
        table.add_row([format!("  {name}"), per_run(*count)]);
    }
    table.add_row(["bytes".into(), per_run(report.bytes)]);
    table.add_row(["time to agreement (the last), in T".into(), number(report.time_to_agreement, 4)]);
    print_line!("{}\n", table.trim_fmt());
    if report.seeds == 1 {
        for announced in &report.announced {
            print_line!("at {} T  {} comes to lead", announced.at, announced.site);
        }
        for took in &report.elections {
            print_line!(
                "from {} to {} T  the sites seek agreement, {} T",
                took.from,
                took.to,
                took.to - took.from
            );
        }
        print_line!("{}", outcome(&report.outcome).trim_fmt());
        print_line!("");
    } else {
        let leaders: Vec<String> = report.leaders.iter().map(|(site, n)| format!("{site} in {n}")).collect();
        print_line!(
            "agreed on   {}",
            if leaders.is_empty() { "nobody".into() } else { leaders.join(", ") + " runs" }
        );
    }
    let properties = &report.properties;
    let (claim, verdict) = match properties.highest_leads {
        "not claimed" => ("one leader in each term", properties.one_leader),
        verdict => ("only the highest leads", verdict),
    };
    print_line!(
        "properties  {claim} {verdict}, agreement {}, comes to rest {}",
        properties.agreement,
        properties.termination
    );
    print_line!("{} events in {} T of virtual time", report.events, report.virtual_time);
}

fn outcome(sites: &[Outcome]) -> Table {
    let mut table = table(&["site", "", "leader", "since"]);
    for outcome in sites {
        let since = outcome.since.filter(|_| outcome.up).map(|at| at.to_string());
        table.add_row([
            outcome.site.to_string(),
            if outcome.up { "up" } else { "down" }.into(),
            outcome.leader.map_or("–".into(), |leader| leader.to_string()),
            since.unwrap_or_else(|| "–".into()),
        ]);
    }
    table
}

/// Prints the cases of the papers at each of these sizes.
pub fn compare(sizes: &[usize], json: bool) -> Result<(), Error> {
    let rows = costs(None, sizes)?;
    if json {
        print_line!("{}", serde_json::to_string(&rows).expect("rows are plain data"));
        return Ok(());
    }
    let mut table = table(&["election", "N", "messages", "", "formula", "by name", "bytes", "in T"]);
    for row in &rows {
        let (name, verdict) = (row.election, if row.is_exact() { "=" } else { "≠" });
        table.add_row([
            format!("{name}, {}", row.case),
            row.sites.to_string(),
            row.messages().to_string(),
            verdict.into(),
            row.formula.into(),
            by_name(row),
            row.bytes.to_string(),
            number(row.time, 4),
        ]);
    }
    print_line!("{}\n", table.trim_fmt());
    print_line!(
        "N counts the dead site as well, where there is one: the highest, which led. Sends to it count.\n\
         The delay is 1 T, the timeout 3 T. = every kind of message came exactly as often as its formula says."
    );
    Ok(())
}

fn by_name(row: &CostRow) -> String {
    let counts: Vec<String> = row.measured.iter().map(|(name, count)| format!("{count} {name}")).collect();
    counts.join(" + ")
}
