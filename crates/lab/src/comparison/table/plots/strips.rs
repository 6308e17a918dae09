//! Plots with one row for each algorithm: the distribution of response times, and fairness.

use super::canvas::{Canvas, Frame, HEIGHT, Scale, WIDTH};
use super::{Plot, Study, families, style};
use crate::comparison::table::number;

const TOP: f64 = 150.0;
const LEFT: f64 = 260.0;

fn frame() -> Frame {
    Frame { left: LEFT, right: WIDTH - 150.0, top: TOP, bottom: HEIGHT - 90.0 }
}

/// The y coordinate of row `index` of `rows`.
fn row(index: usize, rows: usize) -> f64 {
    let frame = frame();
    frame.top + (frame.bottom - frame.top) * (index as f64 + 0.5) / rows as f64
}

/// Draws the distributions of response times: the bar holds half of all responses, the line nine tenths, the
/// mark is the median.
pub fn responses(study: &Study) -> Plot {
    let (mut subjects, left_out) = study.measured(|subject| subject.response);
    subjects.sort_by(|a, b| a.1.at[2].total_cmp(&b.1.at[2]));
    let least = subjects.iter().map(|(_, q)| q.at[0]).fold(f64::INFINITY, f64::min).max(0.01);
    let most = subjects.iter().map(|(_, q)| q.at[5]).fold(1.0, f64::max);
    let frame = frame();
    let x = Scale::log(least.min(most) * 0.8, most * 1.15);

    let title = format!("Response times, {} sites", study.sites);
    let below = format!(
        "From request to exit, at {} requests per T; delays from T/2 to 3T/2. Mark: median. Bar: middle half. Line: 5 % to 95 %. Tick: 99 %.",
        number(Some(study.offered), 2)
    );
    let mut canvas = Canvas::new(&title, &below);
    canvas.families(&families(subjects.iter().map(|(subject, _)| subject.algorithm.as_str())), [40.0, 106.0]);
    frame.horizontal_axis(&mut canvas, x, &x.ticks(), "response time in T, logarithmic");
    canvas.text("tick", "start", [frame.right + 16.0, frame.top - 8.0], "median; 99 %");
    for (index, (subject, quantiles)) in subjects.iter().enumerate() {
        let y = row(index, subjects.len());
        let style = style(&subject.algorithm);
        let class = style.family.to_string();
        let at = quantiles.at.map(|time| frame.x(x, time.max(least * 0.8)));
        canvas.text("label", "end", [LEFT - 16.0, y + 5.0], &subject.algorithm);
        canvas.segment(&format!("{class} line"), [at[0], y], [at[4], y]);
        canvas.segment(&format!("{class} line"), [at[5], y - 7.0], [at[5], y + 7.0]);
        canvas.bar(&class, [at[1], at[3]], y, 14.0);
        canvas.mark(super::canvas::PlotStyle { shape: 5, ..style }, [at[2], y]);
        let text = format!("{}; {}", number(Some(quantiles.at[2]), 1), number(Some(quantiles.at[5]), 1));
        canvas.text("tick", "start", [frame.right + 16.0, y + 5.0], &text);
    }
    left_out_line(&mut canvas, &left_out);
    let caption = format!(
        "Distribution of response times with {} sites under a moderate random load, the quickest median first.",
        study.sites
    );
    Plot { name: "response".into(), caption, svg: canvas.finish() }
}

/// Draws the maximum number of bypasses of one waiting site.
pub fn fairness(study: &Study) -> Plot {
    let (mut subjects, left_out) = study.measured(|subject| subject.fairness);
    subjects.sort_by_key(|(_, (bypass, _))| *bypass);
    let most = subjects.iter().map(|(_, (bypass, _))| *bypass).max().unwrap_or(1);
    let once = study.sites.saturating_sub(1) as f64;
    let frame = frame();
    let x = Scale::linear(0.0, (most as f64).max(once) * 1.08);

    let title = format!("Fairness, {} sites that always want in", study.sites);
    let below =
        "The most entries of others during one site's wait; delays from T/2 to 3T/2. Fewer is fairer.";
    let mut canvas = Canvas::new(&title, below);
    canvas.families(&families(subjects.iter().map(|(subject, _)| subject.algorithm.as_str())), [40.0, 106.0]);
    frame.horizontal_axis(&mut canvas, x, &x.ticks(), "entries of others while one site waited, at most");
    canvas.text("tick", "start", [frame.right + 16.0, frame.top - 8.0], "Jain's index");
    let line = frame.x(x, once);
    canvas.segment("guide", [line, frame.top], [line, frame.bottom]);
    canvas.text("tick", "middle", [line, frame.top - 8.0], "N−1: each other site once");
    for (index, (subject, (bypass, jain))) in subjects.iter().enumerate() {
        let y = row(index, subjects.len());
        let style = style(&subject.algorithm);
        let end = frame.x(x, *bypass as f64);
        canvas.text("label", "end", [LEFT - 16.0, y + 5.0], &subject.algorithm);
        canvas.segment(&format!("{} line", style.family), [frame.left, y], [end, y]);
        canvas.mark(style, [end, y]);
        canvas.text("tick", "start", [end + 14.0, y + 5.0], &bypass.to_string());
        canvas.text("tick", "start", [frame.right + 16.0, y + 5.0], &format!("{jain:.4}"));
    }
    left_out_line(&mut canvas, &left_out);
    let caption = format!(
        "The most entries of other sites during one wait with {} sites under high load and random delays, and Jain's index \
         over the entries of each site.",
        study.sites
    );
    Plot { name: "fairness".into(), caption, svg: canvas.finish() }
}

fn left_out_line(canvas: &mut Canvas, left_out: &[&str]) {
    if !left_out.is_empty() {
        let text = format!("not drawn, since it deadlocks or fails under this load: {}", left_out.join(", "));
        canvas.text("sub", "start", [40.0, HEIGHT - 12.0], &text);
    }
}
