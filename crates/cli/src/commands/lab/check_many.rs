//! `lockkeeper check --all` and `--mutants`.

use super::check::{Budget, Stopwatch, Took, grouped, json};
use crate::exit::CliError;
use crate::{exit, print_line};
use comfy_table::{ContentArrangement, Table, presets};
use lockkeeper_core::registry;
use lockkeeper_lab::checker::gallery::{self, Detection, Exhibit};
use lockkeeper_lab::checker::{CheckReport, CheckSpec};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Checks every algorithm of the registry, one after the other.
pub fn check_all(spec: &CheckSpec, budget: &Budget, as_json: bool) -> Result<ExitCode, CliError> {
    let mut rows = Vec::new();
    let (mut violated, mut unfinished) = (false, false);
    for entry in registry::ALL {
        let spec = CheckSpec { algorithm: entry.about.slug.into(), ..spec.clone() };
        let watch = Stopwatch::start();
        let report = budget.spend(&spec).map_err(CliError::usage)?;
        if as_json {
            print_line!("{}", json(&report, watch.took()));
        }
        // An algorithm that deadlocks as published does not count as a failure.
        let expected = !entry.about.deadlock_free;
        violated |= report.is_violated() && !expected;
        unfinished |= !report.complete;
        rows.push((report, watch.took().wall));
    }
    if !as_json {
        print_all(&rows);
    }
    Ok(match (violated, unfinished) {
        (true, _) => ExitCode::from(exit::VIOLATED),
        (false, true) => ExitCode::from(exit::UNFINISHED),
        (false, false) => ExitCode::SUCCESS,
    })
}

fn print_all(rows: &[(CheckReport, Duration)]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["", "states", "steps", "deep", "bypass", "messages", "seconds", ""]);
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "–".into());
    for (report, took) in rows {
        let finding = match &report.counterexample {
            Some(found) => {
                format!("{} after {} steps", found.violation.property.violation_name(), found.steps)
            }
            None if report.complete && report.bounded => "verified within the bounds".into(),
            None if report.complete => "verified".into(),
            None => "budget reached".into(),
        };
        table.add_row([
            report.algorithm.clone(),
            grouped(report.distinct),
            grouped(report.generated),
            report.depth.to_string(),
            or_dash(report.max_bypass.map(|bypass| bypass.to_string())),
            or_dash(report.max_messages_per_entry.map(|most| format!("{most:.2}"))),
            format!("{:.1}", took.as_secs_f64()),
            finding,
        ]);
    }
    print_line!("{}", table.trim_fmt());
}

/// Checks all mutants, on all cores.
pub fn check_mutants(budget: &Budget, as_json: bool) -> Result<ExitCode, CliError> {
    let started = Instant::now();
    let exhibits: Vec<Exhibit> = gallery::all();
    let found = budget.each("mutants", &exhibits, |exhibit| exhibit.catch(|_| !budget.is_over()));
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["", "what breaks", "steps", "sites × requests", "states"]);
    let (mut missed, mut unfinished) = (0, 0);
    for (exhibit, found) in exhibits.iter().zip(found) {
        let caught: Option<Detection> = found.map_err(CliError::usage)?;
        let Some((caught, (property, steps))) =
            caught.and_then(|caught| caught.how().map(|how| (caught, how)))
        else {
            if budget.is_over() {
                unfinished += 1;
                table.add_row([exhibit.name, "the time was over first", "", "", ""]);
                continue;
            }
            missed += 1;
            table.add_row([exhibit.name, "NOT CAUGHT", "", "", ""]);
            continue;
        };
        if as_json {
            print_line!("{}", json(&caught.report, Took::default()));
        }
        let requests = caught.report.requests.map_or("∞".into(), |requests| requests.to_string());
        table.add_row([
            exhibit.name.to_string(),
            property.to_string(),
            steps.to_string(),
            format!("{} × {requests}", caught.report.sites),
            grouped(caught.report.distinct),
        ]);
    }
    if !as_json {
        print_line!("{}\n", table.trim_fmt());
        print_line!(
            "{} of {} caught, {:.1} s",
            exhibits.len() - missed - unfinished,
            exhibits.len(),
            started.elapsed().as_secs_f64()
        );
    }
    Ok(match (missed, unfinished) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(exit::UNFINISHED),
        (_, _) => ExitCode::from(exit::VIOLATED),
    })
}
