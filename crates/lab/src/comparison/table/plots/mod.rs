//! Plots for slides: messages per entry over N, throughput over load, response times, fairness.

pub mod canvas;
mod messages;
mod strips;
mod study;
mod throughput;

pub use study::Study;

use super::{Comparison, Sweep};
use crate::simulator::runner::{Error, Progress};
use canvas::PlotStyle;
use lockkeeper_core::mutex::Family;
use lockkeeper_core::registry;

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its file name, without extension.
    pub name: String,
    /// A sentence that describes it, for readers who cannot see it.
    pub caption: String,
    /// The SVG document.
    pub svg: String,
}

/// All plots of a comparison. Performs the additional runs that they need, with other loads and delays.
pub fn plots(sweep: &Sweep, comparison: &Comparison, progress: &Progress) -> Result<Vec<Plot>, Error> {
    let study = Study::run(sweep, progress)?;
    let mut plots: Vec<Plot> =
        comparison.loads.iter().filter_map(|load| messages::draw(comparison, load)).collect();
    plots.push(throughput::draw(&study));
    plots.push(strips::responses(&study));
    plots.push(strips::fairness(&study));
    Ok(plots)
}

/// The appearance of an algorithm: its family's colour, and a shape that is unique in its family.
fn style(algorithm: &str) -> PlotStyle {
    let family = registry::find(algorithm).map_or(Family::Coordinator, |entry| entry.about.family);
    let alike = registry::ALL.iter().filter(|entry| entry.about.family == family);
    let shape = alike.take_while(|entry| entry.about.slug != algorithm).count();
    PlotStyle { family, shape: shape % 10 }
}

/// The families of some algorithms, each once, in order.
fn families<'a>(algorithms: impl Iterator<Item = &'a str>) -> Vec<Family> {
    let there: Vec<Family> = algorithms.map(|algorithm| style(algorithm).family).collect();
    let all = [Family::Coordinator, Family::Permission, Family::Token, Family::Quorum];
    all.into_iter().filter(|family| there.contains(family)).collect()
}
