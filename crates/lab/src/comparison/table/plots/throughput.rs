//! Throughput over load.

use super::canvas::{Canvas, Frame, HEIGHT, Scale, WIDTH};
use super::{Plot, Study, families, style};
use crate::comparison::table::number;

/// Draws the throughput under random requests. Each line bends at the load that its algorithm cannot serve.
pub fn draw(study: &Study) -> Plot {
    let (subjects, left_out) =
        study.measured(|subject| Some(subject.throughput.clone()).filter(|curve| !curve.is_empty()));
    let most = subjects.iter().flat_map(|(_, curve)| curve).map(|(load, _)| *load).fold(0.1, f64::max);
    let highest =
        subjects.iter().flat_map(|(_, curve)| curve).map(|(_, entries)| *entries).fold(0.1, f64::max);
    let frame = Frame { left: 90.0, right: WIDTH - 300.0, top: 150.0, bottom: HEIGHT - 90.0 };
    let (x, y) = (Scale::linear(0.0, most), Scale::linear(0.0, highest.max(study.limit) * 1.1));

    let title = format!("Throughput as the load rises, {} sites", study.sites);
    let mut canvas = Canvas::new(
        &title,
        "Requests arrive at random (Poisson) at every site; delays from T/2 to 3T/2. Lines that coincide show as stripes.",
    );
    canvas.families(&families(subjects.iter().map(|(subject, _)| subject.algorithm.as_str())), [40.0, 106.0]);
    frame.horizontal_axis(&mut canvas, x, &x.ticks(), "requests per T, all sites together");
    frame.vertical_axis(&mut canvas, y, &y.ticks(), "entries per T");
    canvas.path("guide", &[frame.point((x, 0.0), (y, 0.0)), frame.point((x, study.limit), (y, study.limit))]);
    let limit = frame.y(y, study.limit);
    canvas.segment("guide", [frame.left, limit], [frame.right, limit]);
    let text = format!("1/(T+E) = {}: one message between two entries", number(Some(study.limit), 3));
    canvas.text("tick", "start", [frame.left + 10.0, limit - 8.0], &text);

    let mut labels = Vec::new();
    for (index, (subject, curve)) in subjects.iter().enumerate() {
        let style = style(&subject.algorithm);
        let points: Vec<[f64; 2]> =
            curve.iter().map(|&(load, entries)| frame.point((x, load), (y, entries))).collect();
        // The first line is the widest, so that lines which coincide all remain visible.
        let width = 8.5 - 6.0 * index as f64 / (subjects.len().max(2) - 1) as f64;
        canvas.wide_path(&format!("{} line", style.family), width, &points);
        if let Some((point, (_, entries))) = points.last().zip(curve.last()) {
            labels.push((Some(style), point[1], format!("{}\u{2002}{entries:.2}", subject.algorithm)));
        }
    }
    canvas.labels(&frame, &labels);
    if !left_out.is_empty() {
        let text =
            format!("not drawn, since it deadlocks or fails at some of these loads: {}", left_out.join(", "));
        canvas.text("sub", "start", [40.0, HEIGHT - 12.0], &text);
    }
    let caption = format!(
        "Entries per T over requests per T with {} sites: each algorithm follows the load until its synchronization delay \
         SD no longer lets it, and levels off near 1/(SD+E). Where a site may enter again without a message, as the \
         privileged one of Raymond's tree may, entries can come closer than one message apart.",
        study.sites
    );
    Plot { name: "throughput".into(), caption, svg: canvas.finish() }
}
