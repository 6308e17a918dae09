//! The space-time diagram of a history as SVG: processes as lines, events as circles in the order in which they
//! happened, with both clocks; the past and future of one event, and a cut.

use super::cut::{Cut, CutVerdict};
use super::history::{History, Relation, Stamp};
use crate::trace::svg::escape;
use lockkeeper_core::SiteId;
use std::fmt::Write as _;

const LEFT: f64 = 70.0;
const TOP: f64 = 110.0;
const ROW: f64 = 110.0;
const RADIUS: f64 = 7.0;
/// The colours of the past, the future and concurrent events; those of the other diagrams.
const PAST: &str = "#0072b2";
const FUTURE: &str = "#d55e00";
const CONCURRENT: &str = "#8a8a8a";
const CHOSEN: &str = "#e69f00";
const PLAIN: &str = "#222222";
/// The colour of a message that makes a cut inconsistent.
const WRONG: &str = "#b3261e";

/// What the diagram shows apart from events and messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks<'a> {
    /// The event whose past, future and concurrent events have colours.
    pub event: Option<usize>,
    /// A cut with its verdict.
    pub cut: Option<(&'a Cut, &'a CutVerdict)>,
}

/// Draws a history.
pub fn draw(history: &History, stamps: &[Stamp], title: &str, marks: Marks<'_>) -> String {
    let processes = history.names.len();
    // Room for the vector below an event, so that vectors of neighbours do not overlap.
    let step = (14.0 + 7.0 * (2 * processes + 1) as f64).max(46.0);
    let width = (LEFT + step * (history.events.len() as f64 + 1.0)).max(760.0);
    let height = TOP + ROW * processes as f64 + 20.0;
    let drawing = Drawing { history, step, marks };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" font-family=\"system-ui,Segoe UI,Helvetica,Arial,sans-serif\">\n\
         <title>{title}</title>\n<style>.c{{font-size:11px;text-anchor:middle;paint-order:stroke;stroke:#fff;\
         stroke-width:4px;stroke-linejoin:round}}.t{{font-size:12px;fill:#555}}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"20\" y=\"30\" font-size=\"17\" font-weight=\"600\" fill=\"#222\">{title}</text>\n",
        title = escape(title)
    );
    drawing.legend(&mut svg);
    for (site, name) in SiteId::all(processes).zip(&history.names) {
        let y = drawing.y(site);
        let _ = writeln!(
            svg,
            "<text x=\"20\" y=\"{:.1}\" font-size=\"15\" font-weight=\"600\" fill=\"#222\">{}</text>\
             <line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#999\" stroke-width=\"1.2\"/>",
            y + 5.0,
            escape(name),
            width - 20.0
        );
    }
    for message in 0..history.messages.len() {
        drawing.message(&mut svg, message);
    }
    drawing.cut(&mut svg, height);
    for (event, stamp) in stamps.iter().enumerate() {
        drawing.event(&mut svg, event, stamp);
    }
    svg.push_str("</svg>\n");
    svg
}

struct Drawing<'a> {
    history: &'a History,
    step: f64,
    marks: Marks<'a>,
}

impl Drawing<'_> {
    fn x(&self, event: usize) -> f64 {
        LEFT + self.step * (event as f64 + 0.7)
    }

    fn y(&self, site: SiteId) -> f64 {
        TOP + ROW * site.index() as f64 + 20.0
    }

    fn legend(&self, svg: &mut String) {
        let mut items = vec![(PLAIN, "L: Lamport clock, below it the vector clock".to_string())];
        if let Some(event) = self.marks.event {
            let name = self.history.name(event);
            items = vec![
                (CHOSEN, name.clone()),
                (PAST, format!("happened before {name}")),
                (FUTURE, format!("{name} happened before it")),
                (CONCURRENT, format!("concurrent with {name}")),
            ];
        }
        if let Some((_, verdict)) = self.marks.cut {
            let text = if verdict.is_consistent() { "consistent cut" } else { "inconsistent cut" };
            items.push((if verdict.is_consistent() { "#009e73" } else { WRONG }, text.into()));
        }
        let mut x = 20.0;
        for (colour, text) in items {
            let _ = write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"52\" r=\"6\" fill=\"{colour}\"/>\
                 <text class=\"t\" x=\"{:.1}\" y=\"56\">{}</text>",
                x + 6.0,
                x + 18.0,
                escape(&text)
            );
            x += 40.0 + 7.2 * text.chars().count() as f64;
        }
        svg.push('\n');
    }

    fn message(&self, svg: &mut String, place: usize) {
        let message = &self.history.messages[place];
        let sent = &self.history.events[message.sent];
        let wrong = self.marks.cut.is_some_and(|(_, verdict)| verdict.violations.contains(&place));
        let colour = if wrong { WRONG } else { "#666" };
        let thick = if wrong { 2.6 } else { 1.4 };
        let text = escape(&message.text);
        let (x1, y1) = (self.x(message.sent), self.y(sent.site));
        if message.received.is_empty() {
            // Lost or under way: the line ends soon.
            let (x2, y2) = (x1 + self.step * 0.6, y1 + (self.y(message.to) - y1) * 0.3);
            let _ = writeln!(
                svg,
                "<g><title>{text}, not received</title><line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" \
                 stroke=\"{colour}\" stroke-dasharray=\"4 3\"/></g>"
            );
        }
        for &event in &message.received {
            let (x2, y2) = (self.x(event), self.y(message.to));
            let length = libm::sqrt((x2 - x1) * (x2 - x1) + (y2 - y1) * (y2 - y1));
            // The arrow ends at the circle of the event.
            let (dx, dy) = ((x2 - x1) / length, (y2 - y1) / length);
            let (tip_x, tip_y) = (x2 - dx * RADIUS, y2 - dy * RADIUS);
            let (base_x, base_y) = (tip_x - dx * 9.0, tip_y - dy * 9.0);
            let _ = writeln!(
                svg,
                "<g><title>{text}</title><line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{tip_x:.1}\" y2=\"{tip_y:.1}\" \
                 stroke=\"{colour}\" stroke-width=\"{thick}\"/><path fill=\"{colour}\" \
                 d=\"M{tip_x:.1} {tip_y:.1}L{:.1} {:.1}L{:.1} {:.1}Z\"/></g>",
                base_x - dy * 3.5,
                base_y + dx * 3.5,
                base_x + dy * 3.5,
                base_y - dx * 3.5
            );
        }
    }

    /// The cut as a line between the last events before it and the first ones after it.
    fn cut(&self, svg: &mut String, height: f64) {
        let Some((cut, verdict)) = self.marks.cut else { return };
        let colour = if verdict.is_consistent() { "#009e73" } else { WRONG };
        let place = |site: SiteId| {
            let own = self.history.events.iter().enumerate().filter(|(_, event)| event.site == site);
            let last = own.rev().find(|(place, _)| cut.contains(self.history, *place));
            last.map_or(LEFT, |(place, _)| self.x(place) + self.step * 0.45)
        };
        let all: Vec<SiteId> = SiteId::all(cut.events.len()).collect();
        let points: Vec<String> =
            all.iter().map(|site| format!("{:.1} {:.1}", place(*site), self.y(*site))).collect();
        let (first, last) =
            (all.first().map_or(LEFT, |site| place(*site)), all.last().map_or(LEFT, |site| place(*site)));
        let _ = writeln!(
            svg,
            "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"7 4\" \
             d=\"M{first:.1} {:.1}L{}L{last:.1} {:.1}\"/>",
            TOP - 24.0,
            points.join("L"),
            height - 12.0
        );
    }

    fn event(&self, svg: &mut String, place: usize, stamp: &Stamp) {
        let event = &self.history.events[place];
        let (x, y) = (self.x(place), self.y(event.site));
        let colour = match self.marks.event.map(|chosen| self.history.relation(place, chosen)) {
            None => PLAIN,
            Some(Relation::Same) => CHOSEN,
            Some(Relation::Before) => PAST,
            Some(Relation::After) => FUTURE,
            Some(Relation::Concurrent) => CONCURRENT,
        };
        let vector: Vec<String> = stamp.vector.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            svg,
            "<g><title>{}: {}</title><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{RADIUS}\" fill=\"{colour}\"/>\
             <text class=\"c\" x=\"{x:.1}\" y=\"{:.1}\" fill=\"{colour}\">L {}</text>\
             <text class=\"c\" x=\"{x:.1}\" y=\"{:.1}\" fill=\"{colour}\">({})</text></g>",
            escape(&self.history.name(place)),
            escape(&event.say),
            y - 13.0,
            stamp.lamport,
            y + 22.0,
            vector.join(",")
        );
    }
}
