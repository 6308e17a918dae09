//! A comparison as one self-contained HTML page: tables and plots, in light and dark.

use super::plots::{Plot, canvas::escape};
use super::{Comparison, Row, Verdict, fifo_word, number};
use lockkeeper_core::registry;
use std::fmt::Write as _;

/// The style sheet of the pages.
pub const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--paper:#fff;--line:#d8dee4;--band:#f6f8fa;\
--good:#00684b;--near:#005a8d;--bad:#a33b00}\
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9da7b3;--paper:#0d1117;--line:#30363d;--band:#161b22;\
--good:#3fd6a5;--near:#7cc4f0;--bad:#ff9a62}}\
*{box-sizing:border-box}body{margin:0 auto;max-width:1320px;padding:2rem 1.25rem 4rem;font:16px/1.5 'Segoe UI',Verdana,\
'DejaVu Sans',sans-serif;color:var(--ink);background:var(--paper)}\
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .3rem}h2{font-size:1.3rem;margin:2.5rem 0 .6rem}p,li{max-width:52rem}\
.soft{color:var(--soft)}.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:\
tabular-nums;white-space:nowrap}th,td{padding:.32rem .7rem;text-align:right;border-bottom:1px solid var(--line)}\
th{font-weight:600;vertical-align:bottom;background:var(--band)}th:first-child,td:first-child,.left{text-align:left}\
td.wide{white-space:normal;min-width:22rem}tbody tr:hover{background:var(--band)}.good{color:var(--good)}.near{color:var(--near)}\
.bad{color:var(--bad);font-weight:600}figure{margin:1.5rem 0}figure svg{width:100%;height:auto;border:1px solid var(--line);\
border-radius:8px}figcaption{color:var(--soft);font-size:.9rem}code{font-family:'DejaVu Sans Mono',Consolas,monospace;font-size:.86em}";

/// The HTML page of a comparison.
pub fn page(comparison: &Comparison, plots: &[Plot]) -> String {
    let mut html = String::new();
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>Mutual exclusion, measured</title>\n<style>{STYLE}</style>\n\
         <h1>Mutual exclusion, measured</h1>\n<p class=\"soft\">{} algorithms, {} sites, {} load; {} runs each; critical \
         section E = {}; message delay T = 1. Times in T. Made by <code>lockkeeper compare</code>, whose output is a \
         function of its flags alone.</p>\n",
        comparison.algorithms().len(),
        comparison.sites.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        comparison.loads.join(" and "),
        comparison.seeds,
        escape(&comparison.cs),
    );
    for plot in plots {
        let _ = write!(
            html,
            "<figure>\n{}<figcaption>{}</figcaption>\n</figure>\n",
            plot.svg,
            escape(&plot.caption)
        );
    }
    for load in &comparison.loads {
        overview(&mut html, comparison, load);
    }
    for load in &comparison.loads {
        for &sites in &comparison.sites {
            details(&mut html, comparison, load, sites);
        }
    }
    needs(&mut html, comparison);
    notes(&mut html, comparison);
    html.push_str("</html>\n");
    html
}

fn overview(html: &mut String, comparison: &Comparison, load: &str) {
    let _ = write!(
        html,
        "<h2>Messages per entry at {} load</h2>\n<div class=\"scroll\"><table><thead><tr><th>algorithm<th class=\"left\">formula",
        escape(load)
    );
    for sites in &comparison.sites {
        let _ = write!(html, "<th>N = {sites}");
    }
    html.push_str("</tr></thead><tbody>\n");
    for algorithm in comparison.algorithms() {
        let formula = comparison.rows.iter().find(|row| row.algorithm == algorithm && row.load == load);
        let formula = formula.map_or("", |row| row.formula);
        let marks = comparison.marks(algorithm);
        let _ = write!(html, "<tr><td>{algorithm}{marks}<td class=\"left\">{}", escape(formula));
        for &sites in &comparison.sites {
            let _ = match comparison.row(algorithm, load, sites) {
                Some(row) if row.trouble.is_some() => write!(html, "<td class=\"bad\">{}", row.verdict),
                Some(row) => write!(
                    html,
                    "<td title=\"{}\">{} <span class=\"{}\">{}</span>",
                    row.verdict,
                    number(row.messages_per_entry, 2),
                    class(row.verdict),
                    row.verdict.mark()
                ),
                None => write!(html, "<td>"),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str(
        "</tbody></table></div>\n<p class=\"soft\">= exactly the formula, ≈ within 2 %, ≠ off</p>\n",
    );
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Exact => "good",
        Verdict::Near => "near",
        Verdict::NoFormula => "soft",
        _ => "bad",
    }
}

fn details(html: &mut String, comparison: &Comparison, load: &str, sites: usize) {
    let _ = write!(
        html,
        "<h2>{sites} sites, {} load</h2>\n<div class=\"scroll\"><table><thead><tr><th>algorithm<th>messages<br>per entry<th>formula\
         <th>verdict<th>to enter<th>on exit<th>SD<th>by paper<th>client<br>delay<th>by paper<th>entries<br>per T<th>{}\
         <th>inside<br>at once<th>Jain<th>largest<br>bypass<th>busiest<br>site<th>state,<br>bytes</tr></thead><tbody>\n",
        escape(load),
        comparison.bound_title()
    );
    for row in comparison.table(load, sites) {
        details_row(html, row, &comparison.marks(&row.algorithm));
    }
    html.push_str("</tbody></table></div>\n");
}

fn details_row(html: &mut String, row: &Row, marks: &str) {
    if let Some(trouble) = &row.trouble {
        let _ = writeln!(
            html,
            "<tr><td>{}{marks}<td class=\"left wide\" colspan=\"16\"><span class=\"bad\">{}</span>: {}. See it again: <code>{}</code></tr>",
            row.algorithm,
            row.verdict,
            escape(&trouble.what),
            escape(&trouble.reproduce)
        );
        return;
    }
    let cells = [
        number(row.messages_per_entry, 3),
        number(row.formula_value, 3),
        format!("<span class=\"{}\">{}</span>", class(row.verdict), row.verdict),
        number(row.to_enter, 2),
        number(row.on_exit, 2),
        number(row.sync_delay, 3),
        row.stated_sync_delay(),
        number(row.client_delay, 3),
        number(row.client_delay_formula, 3),
        number(row.throughput, 4),
        number(row.throughput_bound, 4),
        row.max_inside.to_string(),
        number(row.jain, 4),
        row.max_bypass.to_string(),
        number(row.busiest_site, 2),
        row.state_bytes.map_or("–".into(), |state| state.max.to_string()),
    ];
    let _ = writeln!(html, "<tr><td>{}{marks}<td>{}</tr>", row.algorithm, cells.join("<td>"));
}

fn needs(html: &mut String, comparison: &Comparison) {
    html.push_str(
        "<h2>What each needs, and what a crash does</h2>\n<div class=\"scroll\"><table><thead><tr><th>algorithm\
         <th class=\"left\">family<th class=\"left\">FIFO needed<th class=\"left\">a crash</tr></thead><tbody>\n",
    );
    for algorithm in comparison.algorithms() {
        if let Some(entry) = registry::find(algorithm) {
            let about = entry.about;
            let _ = writeln!(
                html,
                "<tr><td>{algorithm}<td class=\"left\">{}<td class=\"left\">{}<td class=\"left wide\">{}</tr>",
                about.family,
                fifo_word(about.channels),
                escape(about.crash)
            );
        }
    }
    html.push_str("</tbody></table></div>\n");
}

fn notes(html: &mut String, comparison: &Comparison) {
    if comparison.footnotes.is_empty() {
        return;
    }
    html.push_str("<h2>Where textbooks differ</h2>\n<ol>\n");
    for note in &comparison.footnotes {
        let _ = writeln!(html, "<li>{}</li>", escape(&note.text));
    }
    html.push_str("</ol>\n");
}
