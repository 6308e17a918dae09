//! A self-contained HTML page: the throughput of each engine, the latencies of its clients, and the
//! conditions of measurement.

use crate::report::Report;
use crate::run::Run;
use crate::workload::Workload;
use lockkeeper_lab::comparison::table::STYLE;
use lockkeeper_lab::comparison::table::plots::canvas::{Canvas, Frame, Scale, escape};
use std::fmt::Write;

/// The area of the bars.
const FRAME: Frame = Frame { left: 220.0, right: 1120.0, top: 120.0, bottom: 680.0 };

/// The HTML page of a report.
pub fn page(report: &Report) -> String {
    let mut html = String::new();
    let machine = &report.machine;
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Locks, measured</title>\n<style>{STYLE}</style>\n<h1>Locks, measured</h1>\n<p class=\"soft\">{}: {} cores, {}, {}.</p>\n\
         <p><code>{}</code></p>\n",
        escape(&report.date),
        machine.cores,
        escape(&machine.cpu),
        escape(&machine.kernel),
        escape(&report.command.join(" ")),
    );
    for workload in Workload::ALL {
        let rows: Vec<&Run> = report.medians.iter().filter(|run| run.workload == workload.name()).collect();
        if rows.is_empty() {
            continue;
        }
        let title = format!("{}: {}", workload.name(), workload.what());
        let _ = writeln!(html, "<h2>{}</h2>", escape(&title));
        for svg in [speeds(&title, &rows), waits(&title, &rows)] {
            let _ = write!(html, "<figure>\n{svg}</figure>\n");
        }
        table(&mut html, &rows);
    }
    for failure in &report.failures {
        let _ = writeln!(html, "<p class=\"bad\">not measured: {}</p>", escape(failure));
    }
    engines(&mut html, report);
    html.push_str("</html>\n");
    html
}

/// Acquires per second as bars, on a logarithmic scale.
fn speeds(title: &str, rows: &[&Run]) -> String {
    let bars: Vec<Bar> = rows.iter().filter_map(|run| Bar::new(run, None, run.per_second?)).collect();
    draw(title, "acquires with their releases per second; medians; logarithmic scale", &bars, 0)
}

/// Latencies from the median to the 99th percentile.
fn waits(title: &str, rows: &[&Run]) -> String {
    let bars = rows.iter().filter_map(|run| Bar::new(run, run.acquire_p50_us, run.acquire_p99_us?));
    let bars: Vec<Bar> = bars.collect();
    draw(title, "latency of an acquire in µs: from the median to the 99th percentile", &bars, 1)
}

/// A bar of a plot.
struct Bar {
    name: String,
    from: Option<f64>,
    to: f64,
}

impl Bar {
    /// A bar; `None` if it cannot be drawn on a logarithmic scale.
    fn new(run: &Run, from: Option<f64>, to: f64) -> Option<Bar> {
        (to > 0.0).then(|| Bar { name: run.engine.clone(), from: from.filter(|from| *from > 0.0), to })
    }
}

fn draw(title: &str, below: &str, bars: &[Bar], digits: usize) -> String {
    let mut canvas = Canvas::new(title, below);
    let least = bars.iter().map(|bar| bar.from.unwrap_or(bar.to)).fold(f64::INFINITY, f64::min);
    let most = bars.iter().map(|bar| bar.to).fold(0.0, f64::max);
    if bars.is_empty() {
        return canvas.finish();
    }
    let scale = Scale::log(ten_below(least), ten_above(most));
    let tens = scale.ticks().into_iter().filter(|tick| tick.log10().fract().abs() < 1e-9);
    FRAME.horizontal_axis(&mut canvas, scale, &tens.collect::<Vec<_>>(), "");
    let step = (FRAME.bottom - FRAME.top) / bars.len() as f64;
    for (place, bar) in bars.iter().enumerate() {
        let y = FRAME.top + step * (place as f64 + 0.5);
        let from = bar.from.map_or(FRAME.left, |from| FRAME.x(scale, from));
        let to = FRAME.x(scale, bar.to);
        canvas.bar(class(&bar.name), [from, to], y, (step * 0.6).min(28.0));
        canvas.text("label", "end", [FRAME.left - 12.0, y + 5.0], &bar.name);
        let label = match bar.from {
            None => format!("{:.digits$}", bar.to),
            Some(from) => format!("{from:.digits$} – {:.digits$}", bar.to),
        };
        canvas.text("tick", "start", [to + 10.0, y + 5.0], &label);
    }
    canvas.finish()
}

/// The largest power of ten that is not above a number.
fn ten_below(value: f64) -> f64 {
    10_f64.powf(value.max(1e-3).log10().floor())
}

/// The smallest power of ten that is not below a number.
fn ten_above(value: f64) -> f64 {
    10_f64.powf(value.max(1e-3).log10().ceil())
}

/// The colours of the lab's plots: one for Lockkeeper, one for the others, one for the baseline.
fn class(engine: &str) -> &'static str {
    match engine {
        "floor" => "quorum",
        _ if engine.starts_with("lockkeeper") || engine.starts_with("member") || engine == "file" => "token",
        _ => "coordinator",
    }
}

fn table(html: &mut String, rows: &[&Run]) {
    html.push_str(
        "<div class=\"scroll\"><table><thead><tr><th>engine<th>per second<th>acquire p50, µs<th>p99<th>max<th>release p50\
         <th>most/fewest turns<th>client CPU, µs<th>server CPU, µs<th>messages<th>syncs<th>bytes to disk<th>entries watched\
         </tr></thead><tbody>\n",
    );
    for run in rows {
        let _ = write!(html, "<tr><td>{}", escape(&run.engine));
        let numbers = [
            (run.per_second, 0),
            (run.acquire_p50_us, 1),
            (run.acquire_p99_us, 1),
            (run.acquire_max_us, 0),
            (run.release_p50_us, 1),
            (run.fairness, 2),
            (run.client_cpu_us, 1),
            (run.server_cpu_us, 1),
            (run.messages, 3),
            (run.syncs, 3),
            (run.disk_bytes, 0),
        ];
        for (value, digits) in numbers {
            let _ = match value {
                Some(value) => write!(html, "<td>{value:.digits$}"),
                None => write!(html, "<td>–"),
            };
        }
        let _ = writeln!(html, "<td>{}</tr>", run.checked);
    }
    html.push_str("</tbody></table></div>\n");
}

fn engines(html: &mut String, report: &Report) {
    html.push_str(
        "<h2>What was measured</h2>\n<div class=\"scroll\"><table><thead><tr><th>engine<th class=\"left\">version\
         <th class=\"left\">durability<th class=\"left\">client</tr></thead><tbody>\n",
    );
    for engine in &report.engines {
        let _ = writeln!(
            html,
            "<tr><td>{}<td class=\"left\">{}<td class=\"left wide\">{}<td class=\"left wide\">{}</tr>",
            escape(engine.name),
            escape(&engine.version),
            escape(engine.durability),
            escape(engine.how)
        );
    }
    html.push_str(
        "</tbody></table></div>\n<p class=\"soft\">Costs are for one acquire with its release. Processor time of members inside of the clients' \
         processes is the clients'. Every single run is in <code>figures.json</code>, the medians also in <code>figures.csv</code>.</p>\n",
    );
}

/// The medians as CSV, one row each.
pub fn csv(runs: &[Run]) -> String {
    let mut csv = String::from(
        "engine,workload,per_second,acquire_p50_us,acquire_p99_us,acquire_max_us,release_p50_us,fairness,client_cpu_us,\
         server_cpu_us,messages,syncs,disk_bytes,checked\n",
    );
    for run in runs {
        let numbers = [
            run.per_second,
            run.acquire_p50_us,
            run.acquire_p99_us,
            run.acquire_max_us,
            run.release_p50_us,
            run.fairness,
            run.client_cpu_us,
            run.server_cpu_us,
            run.messages,
            run.syncs,
            run.disk_bytes,
        ];
        let numbers = numbers.map(|value| value.map_or(String::new(), |value| value.to_string()));
        let _ = writeln!(csv, "{},{},{},{}", run.engine, run.workload, numbers.join(","), run.checked);
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::locks::{Measured, Plan};
    use crate::run::ServerUse;

    #[test]
    fn page_contains_figures_and_conditions() {
        let engine = Engine::parse("redis1").unwrap();
        let figures = crate::job::Figures {
            turns: vec![40],
            acquire: vec![(60_000, 40)],
            checked: 41,
            ..Default::default()
        };
        let run = Run::new(engine, Workload::W1, 1, 0.5, &[figures], &ServerUse::default());
        let plan = Plan {
            engines: vec![engine],
            workloads: vec![Workload::W1],
            seconds: 0.5,
            repeat: 1,
            pause_ms: 1,
        };
        let command = vec![String::from("/somewhere/lockkeeper"), String::from("<b>")];
        let measured = Measured {
            runs: vec![run],
            versions: vec![("redis1", String::from("Redis 0"))],
            failures: vec![String::from("redis1, w2: the server stopped")],
        };
        let report = Report::new(&plan, measured, command);
        let page = page(&report);
        for part in [
            "redis1",
            "Redis 0",
            "SET NX PX",
            "<svg",
            "w1: one client",
            "lockkeeper &lt;b&gt;",
            "<td>80",
            "the server stopped",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("/somewhere"));
        assert!(csv(&report.medians).contains("\nredis1,w1,80,60"), "{}", csv(&report.medians));
    }
}
