//! Drawing tools for plots: an SVG of fixed size, scales, axes, and labels that do not overlap.
//!
//! The colour shows the family (the colours of Okabe and Ito, which can be distinguished with any kind of
//! colour vision), the shape of the marks shows the algorithm, and every line is labelled, so that no plot
//! depends on colour alone. The style sheet follows the reader's light or dark theme.

use lockkeeper_core::mutex::Family;
use std::fmt::Write as _;

/// The width of a plot.
pub const WIDTH: f64 = 1280.0;
/// The height of a plot.
pub const HEIGHT: f64 = 760.0;
/// The minimum distance between two labels.
const LABEL: f64 = 21.0;

const STYLE: &str = "\
text{font-family:'DejaVu Sans',Verdana,'Segoe UI',sans-serif;font-size:15px;fill:#1b1f24}\
.title{font-size:24px;font-weight:bold}.sub{font-size:15px;fill:#57606a}.tick{font-size:14px;fill:#57606a}\
.paper{fill:#ffffff}.grid{stroke:#d8dee4;stroke-width:1}.axis{stroke:#57606a;stroke-width:1.5}\
.guide{stroke:#8c959f;stroke-width:1.5;stroke-dasharray:8 6;fill:none}.leader{stroke:#8c959f;stroke-width:1;fill:none}\
.formula{stroke:#1b1f24;stroke-width:2.2;stroke-dasharray:0.1 6;stroke-linecap:round;fill:none}\
.line{stroke-width:3;fill:none;stroke-linejoin:round}.mark{stroke-width:2.5}\
.coordinator{stroke:#e69f00}.permission{stroke:#d55e00}.token{stroke:#0072b2}.quorum{stroke:#009e73}\
.coordinator.mark{fill:#e69f00}.permission.mark{fill:#d55e00}.token.mark{fill:#0072b2}.quorum.mark{fill:#009e73}\
.mark.hollow{fill:#ffffff}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.sub,.tick{fill:#9da7b3}.paper{fill:#0d1117}.grid{stroke:#30363d}\
.axis{stroke:#9da7b3}.formula{stroke:#e6edf3}.token{stroke:#56b4e9}.token.mark{fill:#56b4e9}.mark.hollow{fill:#0d1117}}";

/// A plot under construction.
pub struct Canvas {
    svg: String,
}

impl Canvas {
    /// An empty plot with its title and a subtitle.
    pub fn new(title: &str, below: &str) -> Self {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" role=\"img\" aria-label=\"{0}\">\n<title>{0}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
            escape(title)
        );
        let _ = writeln!(svg, "<text class=\"title\" x=\"40\" y=\"48\">{}</text>", escape(title));
        let _ = writeln!(svg, "<text class=\"sub\" x=\"40\" y=\"76\">{}</text>", escape(below));
        Self { svg }
    }

    /// The finished SVG.
    pub fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }

    /// A straight line.
    pub fn segment(&mut self, class: &str, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) {
        let _ = writeln!(
            self.svg,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    /// A line through points.
    pub fn path(&mut self, class: &str, points: &[[f64; 2]]) {
        if points.len() > 1 {
            let points: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(self.svg, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
        }
    }

    /// A line of the given width through points.
    pub fn wide_path(&mut self, class: &str, width: f64, points: &[[f64; 2]]) {
        let points: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.svg,
            "<polyline class=\"{class}\" style=\"stroke-width:{width:.1}\" points=\"{}\"/>",
            points.join(" ")
        );
    }

    /// A text whose `anchor` (start, middle, end) is at the point.
    pub fn text(&mut self, class: &str, anchor: &str, [x, y]: [f64; 2], text: &str) {
        let _ = writeln!(
            self.svg,
            "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            escape(text)
        );
    }

    /// The mark of an algorithm.
    pub fn mark(&mut self, style: PlotStyle, [x, y]: [f64; 2]) {
        let r = 6.0;
        let hollow = if style.shape >= 5 { " hollow" } else { "" };
        let class = format!("{} mark{hollow}", style.family);
        let _ = match style.shape % 5 {
            0 => writeln!(self.svg, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\"/>"),
            shape => {
                let corners: &[[f64; 2]] = match shape {
                    1 => &[[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
                    2 => &[[0.0, -1.2], [1.1, 0.9], [-1.1, 0.9]],
                    3 => &[[0.0, -1.3], [1.3, 0.0], [0.0, 1.3], [-1.3, 0.0]],
                    _ => &[[0.0, 1.2], [1.1, -0.9], [-1.1, -0.9]],
                };
                let corners: Vec<String> =
                    corners.iter().map(|[dx, dy]| format!("{:.1},{:.1}", x + dx * r, y + dy * r)).collect();
                writeln!(self.svg, "<polygon class=\"{class}\" points=\"{}\"/>", corners.join(" "))
            }
        };
    }

    /// A ring that highlights a point.
    pub fn ring(&mut self, [x, y]: [f64; 2]) {
        let _ =
            writeln!(self.svg, "<circle class=\"axis\" fill=\"none\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"9\"/>");
    }

    /// A horizontal bar between two x coordinates.
    pub fn bar(&mut self, class: &str, [x1, x2]: [f64; 2], y: f64, thickness: f64) {
        let _ = writeln!(
            self.svg,
            "<rect class=\"{class} mark\" stroke-width=\"0\" x=\"{x1:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{thickness:.1}\" \
             rx=\"3\"/>",
            y - thickness / 2.0,
            (x2 - x1).max(1.0)
        );
    }

    /// Labels at the right ends of lines, moved apart where they would overlap, each connected to its line.
    pub fn labels(&mut self, frame: &Frame, labels: &[(Option<PlotStyle>, f64, String)]) {
        let mut sorted: Vec<&(Option<PlotStyle>, f64, String)> = labels.iter().collect();
        sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
        let places = apart(&sorted.iter().map(|label| label.1).collect::<Vec<_>>(), frame.top, frame.bottom);
        for ((style, y, text), place) in sorted.into_iter().zip(places) {
            let x = frame.right + 34.0;
            self.path("leader", &[[frame.right + 4.0, *y], [frame.right + 22.0, place], [x - 8.0, place]]);
            if let Some(style) = style {
                self.mark(*style, [x, place]);
            }
            self.text("label", "start", [x + 14.0, place + 5.0], text);
        }
    }

    /// The legend of the families' colours, from `x` on at the height `y`.
    pub fn families(&mut self, families: &[Family], [mut x, y]: [f64; 2]) {
        for family in families {
            let _ = writeln!(
                self.svg,
                "<rect class=\"{family} mark\" x=\"{x:.1}\" y=\"{:.1}\" width=\"16\" height=\"8\"/>",
                y - 9.0
            );
            let name = family.to_string();
            self.text("tick", "start", [x + 24.0, y], &name);
            x += 46.0 + 8.0 * name.len() as f64;
        }
    }
}

/// The appearance of an algorithm in all plots.
#[derive(Clone, Copy, Debug)]
pub struct PlotStyle {
    /// Its colour.
    pub family: Family,
    /// Its shape, from 0.
    pub shape: usize,
}

/// The area between the axes.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The left edge.
    pub left: f64,
    /// The right edge.
    pub right: f64,
    /// The top edge.
    pub top: f64,
    /// The bottom edge.
    pub bottom: f64,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    /// A linear scale.
    pub fn linear(from: f64, to: f64) -> Self {
        Self { from, to: if to > from { to } else { from + 1.0 }, log: false }
    }

    /// A logarithmic scale. Both ends must be above 0.
    pub fn log(from: f64, to: f64) -> Self {
        Self { from, to: if to > from { to } else { from * 2.0 }, log: true }
    }

    /// The position of a number on the scale, from 0 to 1.
    pub fn place(self, value: f64) -> f64 {
        if self.log {
            libm::log(value / self.from) / libm::log(self.to / self.from)
        } else {
            (value - self.from) / (self.to - self.from)
        }
    }

    /// Round numbers on the scale: 1, 2, 5, 10, … on a logarithmic scale, about six on a linear one.
    pub fn ticks(self) -> Vec<f64> {
        let inside = |tick: &f64| *tick >= self.from * 0.999_999 && *tick <= self.to * 1.000_001;
        if self.log {
            let tens = -3i32..=6;
            return tens
                .flat_map(|ten| [1.0, 2.0, 5.0].map(|digit| digit * libm::pow(10.0, f64::from(ten))))
                .filter(inside)
                .collect();
        }
        let rough = (self.to - self.from) / 6.0;
        let ten = libm::pow(10.0, libm::floor(libm::log10(rough)));
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * ten).find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * ten);
        let first = libm::ceil(self.from / step) as i64;
        (first..).map(|n| n as f64 * step).take_while(|tick| *tick <= self.to * 1.000_001).collect()
    }
}

impl Frame {
    /// The point of a pair of numbers.
    pub fn point(&self, x: (Scale, f64), y: (Scale, f64)) -> [f64; 2] {
        [self.x(x.0, x.1), self.y(y.0, y.1)]
    }

    /// The y coordinate of a number.
    pub fn y(&self, scale: Scale, value: f64) -> f64 {
        self.bottom + (self.top - self.bottom) * scale.place(value)
    }

    /// The x coordinate of a number.
    pub fn x(&self, scale: Scale, value: f64) -> f64 {
        self.left + (self.right - self.left) * scale.place(value)
    }

    /// Draws the grid lines, tick labels and title of the horizontal axis.
    pub fn horizontal_axis(&self, canvas: &mut Canvas, scale: Scale, ticks: &[f64], name: &str) {
        for &tick in ticks {
            let x = self.x(scale, tick);
            canvas.segment("grid", [x, self.top], [x, self.bottom]);
            canvas.text("tick", "middle", [x, self.bottom + 24.0], &super::super::number(Some(tick), 3));
        }
        canvas.segment("axis", [self.left, self.bottom], [self.right, self.bottom]);
        canvas.text("label", "middle", [(self.left + self.right) / 2.0, self.bottom + 54.0], name);
    }

    /// Draws the grid lines and tick labels of the vertical axis, with its title above it.
    pub fn vertical_axis(&self, canvas: &mut Canvas, scale: Scale, ticks: &[f64], name: &str) {
        for &tick in ticks {
            let y = self.y(scale, tick);
            if y < self.bottom - 0.5 {
                canvas.segment("grid", [self.left, y], [self.right, y]);
            }
            canvas.text("tick", "end", [self.left - 10.0, y + 5.0], &super::super::number(Some(tick), 3));
        }
        canvas.segment("axis", [self.left, self.top], [self.left, self.bottom]);
        canvas.text("label", "start", [40.0, self.top - 16.0], name);
    }
}

/// Positions at least one label apart, each as close as possible to the wanted one, within the bounds if they
/// fit.
fn apart(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut places = wanted.to_vec();
    // Push labels down, then back up from the bottom, so that none leaves the plot.
    for index in 1..places.len() {
        places[index] = places[index].max(places[index - 1] + LABEL);
    }
    let mut limit = bottom.max(top + LABEL * (places.len().saturating_sub(1)) as f64);
    for place in places.iter_mut().rev() {
        *place = place.min(limit);
        limit = *place - LABEL;
    }
    // Move labels up that are now lower than necessary.
    for index in (0..places.len()).rev() {
        let above = if index == 0 { top } else { places[index - 1] + LABEL };
        places[index] = places[index].min(wanted[index].max(above));
    }
    places
}

/// The text, escaped for SVG and HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_overlap_and_stay_within_the_plot() {
        for wanted in
            [vec![10.0, 10.0, 10.0], vec![300.0, 301.0, 302.0], vec![], vec![50.0, 299.0, 299.0, 299.5]]
        {
            let places = apart(&wanted, 0.0, 302.0);
            assert_eq!(places.len(), wanted.len());
            assert!(places.windows(2).all(|two| two[1] - two[0] >= LABEL - 1e-9), "{places:?}");
            assert!(places.iter().all(|place| (0.0..=302.0).contains(place)), "{places:?}");
        }
    }

    #[test]
    fn ticks_are_round_and_within_the_scale() {
        assert_eq!(Scale::log(1.0, 100.0).ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        let linear = Scale::linear(0.0, 1.0).ticks();
        assert_eq!(linear.len(), 6, "{linear:?}");
        assert_eq!(Scale::log(3.0, 3.0).place(3.0), 0.0, "a single size can be drawn");
    }
}
