//! Plots of load and availability, with the constructions side by side.

use super::QuorumSystem;
use crate::comparison::table::plots::Plot;
use crate::comparison::table::plots::canvas::{Canvas, Frame, HEIGHT, PlotStyle, Scale, WIDTH};
use lockkeeper_core::mutex::Family;
use lockkeeper_core::quorum::Construction;

/// The constructions that are drawn.
const CONSTRUCTIONS: [(Construction, &str); 4] = [
    (Construction::Plane, "plane"),
    (Construction::Grid, "grid"),
    (Construction::Majority, "majority"),
    (Construction::Tree, "tree"),
];
/// The seed of estimates.
pub const SEED: u64 = 1;
/// The numbers of sites in the plot of the load.
const SIZES: [usize; 16] = [3, 4, 7, 9, 13, 15, 16, 21, 25, 31, 36, 49, 57, 64, 73, 91];

fn frame() -> Frame {
    Frame { left: 90.0, right: WIDTH - 260.0, top: 130.0, bottom: HEIGHT - 90.0 }
}

fn style(index: usize) -> PlotStyle {
    PlotStyle { family: Family::Quorum, shape: index }
}

/// The failure probability over the probability of a failed site, and the load over the number of sites.
pub fn plots(sites: usize) -> Vec<Plot> {
    vec![availability(sites), load()]
}

/// All quorums of a construction if they are few, otherwise those of the sites; `None` if it does not exist.
fn system(construction: &Construction, sites: usize) -> Option<QuorumSystem> {
    construction.check(sites).ok()?;
    let whole = QuorumSystem::whole(construction, sites);
    Some(whole.unwrap_or_else(|| QuorumSystem::of_sites(construction, sites)))
}

fn availability(sites: usize) -> Plot {
    let frame = frame();
    let (x, y) = (Scale::linear(0.0, 0.6), Scale::log(1e-3, 1.0));
    let title = format!("Failure probability of quorum systems, {sites} sites");
    let mut canvas = Canvas::new(
        &title,
        "The probability that no quorum is left if each site has failed with probability p.",
    );
    frame.horizontal_axis(&mut canvas, x, &x.ticks(), "p, the probability that a site has failed");
    frame.vertical_axis(&mut canvas, y, &y.ticks(), "failure probability");
    let ps = (1..=60).map(|percent| f64::from(percent) / 100.0);
    let mut labels = Vec::new();
    let guide: Vec<[f64; 2]> = ps.clone().map(|p| frame.point((x, p), (y, p))).collect();
    canvas.path("guide", &guide);
    labels.push((None, guide.last().map_or(frame.top, |point| point[1]), "one site alone".to_string()));
    for (index, (construction, name)) in CONSTRUCTIONS.iter().enumerate() {
        let measured = system(construction, sites).and_then(|system| system.availability(SEED));
        let Some(measured) = measured else { continue };
        let visible =
            ps.clone().map(|p| (p, measured.failure(p).value)).filter(|(_, failure)| *failure >= 1e-3);
        let points: Vec<[f64; 2]> = visible.map(|(p, failure)| frame.point((x, p), (y, failure))).collect();
        canvas.path("quorum line", &points);
        points.iter().step_by(6).for_each(|point| canvas.mark(style(index), *point));
        if let Some(point) = points.last() {
            let estimated = if measured.samples.is_some() { " (estimated)" } else { "" };
            labels.push((Some(style(index)), point[1], format!("{name}{estimated}")));
        }
    }
    canvas.labels(&frame, &labels);
    let caption = format!(
        "Failure probability over p with {sites} sites. Below p = 1/2 the majority fails least; above it, one site alone \
         is better than any other system."
    );
    Plot { name: "availability".into(), caption, svg: canvas.finish() }
}

fn load() -> Plot {
    let frame = frame();
    let (most, least) = (SIZES[SIZES.len() - 1] as f64, SIZES[0] as f64);
    let (x, y) = (Scale::log(least, most), Scale::log(0.08, 1.0));
    let mut canvas = Canvas::new(
        "Load of quorum systems",
        "The share of all entries in which the busiest site takes part, under the best choice of quorums. Dashed: 1/√N.",
    );
    frame.horizontal_axis(&mut canvas, x, &[3.0, 7.0, 13.0, 31.0, 57.0, 91.0], "N, the number of sites");
    frame.vertical_axis(&mut canvas, y, &y.ticks(), "load");
    let bound = |sites: f64| frame.point((x, sites), (y, 1.0 / libm::sqrt(sites)));
    canvas.path("guide", &[bound(least), bound(most)]);
    let mut labels = vec![(None, bound(most)[1], "1/√N".to_string())];
    for (index, (construction, name)) in CONSTRUCTIONS.iter().enumerate() {
        // Trees are complete, and grids are squares: other sizes are not what their formulas are for.
        let fits = |sites: &usize| match construction {
            Construction::Tree => (sites + 1).is_power_of_two(),
            Construction::Grid => libm::sqrt(*sites as f64).fract() == 0.0,
            _ => true,
        };
        // Majorities are symmetric: those of the sites have the load of all. A tree's whole system is larger than its
        // paths, and is left out where it has too many quorums.
        let system = |sites: usize| match construction {
            Construction::Tree => QuorumSystem::whole(construction, sites),
            _ => construction.check(sites).ok().map(|()| QuorumSystem::of_sites(construction, sites)),
        };
        let loads = SIZES.into_iter().filter(fits).filter_map(|sites| Some((sites, system(sites)?.load()?)));
        let points: Vec<[f64; 2]> =
            loads.map(|(sites, load)| frame.point((x, sites as f64), (y, load.value()))).collect();
        canvas.path("quorum line", &points);
        points.iter().for_each(|point| canvas.mark(style(index), *point));
        if let Some(point) = points.last() {
            labels.push((Some(style(index)), point[1], (*name).to_string()));
        }
    }
    canvas.labels(&frame, &labels);
    let caption = "Load over N: no system is below 1/√N, which the projective planes nearly reach; the majority stays above \
                   one half."
        .into();
    Plot { name: "load".into(), caption, svg: canvas.finish() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_have_a_line_for_each_construction_that_exists() {
        let drawn = plots(7);
        assert_eq!(drawn.iter().map(|plot| plot.name.as_str()).collect::<Vec<_>>(), ["availability", "load"]);
        for plot in &drawn {
            assert!(plot.svg.starts_with("<svg") && plot.svg.ends_with("</svg>\n"));
            for name in ["plane", "grid", "majority", "tree"] {
                assert!(plot.svg.contains(&format!(">{name}</text>")), "{} {name}", plot.name);
            }
        }
        assert!(!plots(8)[0].svg.contains(">plane</text>"), "there is no plane of 8 sites");
        assert!(plots(25)[0].svg.contains("grid (estimated)"));
    }
}
