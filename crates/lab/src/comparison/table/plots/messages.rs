//! Messages per entry over the number of sites.

use super::canvas::{Canvas, Frame, HEIGHT, Scale, WIDTH};
use super::{Plot, families, style};
use crate::comparison::table::{Comparison, Row, number};

/// The intersection of 3√N and 2(N−1): 3·2 = 2·3.
const CROSSING: (f64, f64) = (4.0, 6.0);

/// Draws one line for each algorithm, with its formula as dots; both axes are logarithmic.
pub fn draw(comparison: &Comparison, load: &str) -> Option<Plot> {
    let rows: Vec<&Row> = comparison.rows.iter().filter(|row| row.load == load).collect();
    let positive = |value: Option<f64>| value.filter(|value| *value > 0.0);
    let values: Vec<f64> = rows.iter().filter_map(|row| positive(row.messages_per_entry)).collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    if values.is_empty() {
        return None;
    }
    let sites = |n: &usize| *n as f64;
    let (first, last) = (
        comparison.sites.iter().map(sites).fold(f64::INFINITY, f64::min),
        comparison.sites.iter().map(sites).fold(0.0, f64::max),
    );
    let frame = Frame { left: 90.0, right: WIDTH - 300.0, top: 150.0, bottom: HEIGHT - 90.0 };
    let (x, y) = (Scale::log(first * 0.93, last * 1.04), Scale::log((least * 0.8).min(0.9), most * 1.25));

    let title = format!("Messages per entry at {load} load");
    let below = "Lines: measured. Dots: the paper's formula. Both axes logarithmic.";
    let mut canvas = Canvas::new(&title, below);
    canvas.families(&families(comparison.algorithms().into_iter()), [40.0, 106.0]);
    let mut ticks: Vec<f64> = comparison.sites.iter().map(sites).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    frame.horizontal_axis(&mut canvas, x, &ticks, "number of sites N");
    frame.vertical_axis(&mut canvas, y, &y.ticks(), "messages per entry");
    let mut labels = Vec::new();
    if (first..=last).contains(&CROSSING.0) && most >= CROSSING.1 {
        draw_crossing(&mut canvas, &frame, (x, first, last), (y, most * 1.25));
        let root = 3.0 * libm::sqrt(last);
        labels.push((None, frame.y(y, root), format!("3√N\u{2002}{}", number(Some(root), 1))));
    }
    let mut missing = Vec::new();
    for algorithm in comparison.algorithms() {
        let mut of_it: Vec<&&Row> = rows.iter().filter(|row| row.algorithm == algorithm).collect();
        of_it.sort_by_key(|row| row.sites);
        let points = |value: fn(&Row) -> Option<f64>| -> Vec<[f64; 2]> {
            let with = of_it.iter().filter_map(|row| Some((row.sites as f64, positive(value(row))?)));
            with.map(|(n, value)| frame.point((x, n), (y, value))).collect()
        };
        let measured = points(|row| row.messages_per_entry);
        let style = style(algorithm);
        canvas.path(&format!("{} line", style.family), &measured);
        canvas.path("formula", &points(|row| row.formula_value));
        measured.iter().for_each(|&point| canvas.mark(style, point));
        let end = of_it.iter().rev().find_map(|row| positive(row.messages_per_entry));
        match measured.last().zip(end) {
            Some((point, end)) => {
                labels.push((Some(style), point[1], format!("{algorithm}\u{2002}{}", number(Some(end), 1))))
            }
            None => missing.push(algorithm),
        }
    }
    canvas.labels(&frame, &labels);
    if !missing.is_empty() {
        let text = format!("not drawn, since it deadlocks or fails at this load: {}", missing.join(", "));
        canvas.text("sub", "start", [40.0, HEIGHT - 12.0], &text);
    }
    let caption = format!(
        "Messages per entry at {load} load for {} to {} sites, measured and by formula; quorums of about √N sites beat \
         2(N−1) messages from N = 5 on.",
        first, last
    );
    Some(Plot { name: format!("messages-{}", load.replace(':', "-")), caption, svg: canvas.finish() })
}

fn draw_crossing(canvas: &mut Canvas, frame: &Frame, x: (Scale, f64, f64), y: (Scale, f64)) {
    let curve = |of: fn(f64) -> f64| -> Vec<[f64; 2]> {
        let steps = (0..=60).map(|step| x.1 * libm::pow(x.2 / x.1, f64::from(step) / 60.0));
        steps.filter(|&n| of(n) <= y.1).map(|n| frame.point((x.0, n), (y.0, of(n)))).collect()
    };
    canvas.path("guide", &curve(|n| 3.0 * libm::sqrt(n)));
    canvas.path("guide", &curve(|n| 2.0 * (n - 1.0)));
    let [cx, cy] = frame.point((x.0, CROSSING.0), (y.0, CROSSING.1));
    canvas.segment("leader", [cx, cy], [cx, frame.top + 34.0]);
    canvas.text("label", "start", [cx + 10.0, frame.top + 30.0], "3√N = 2(N−1) at N = 4");
    canvas.text(
        "tick",
        "start",
        [cx + 10.0, frame.top + 50.0],
        "beyond, quorums of about √N sites are cheaper (dashed: both)",
    );
    canvas.ring([cx, cy]);
}
