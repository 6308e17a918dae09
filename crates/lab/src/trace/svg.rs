//! A space-time diagram as SVG: sites as lines, time to the right, messages as arrows.

use super::{EventKind, Record, Sink};
use crate::property::Names;
use crate::simulator::time::Time;
use lockkeeper_core::{Mode, SiteId};
use std::fmt::Write as _;
use std::io::{self, Write};

/// The maximum number of messages drawn. The picture states how many were left out.
const MOST_MESSAGES: usize = 20_000;
/// The maximum number of messages with a visible label. Beyond it, labels are shown on hover.
const MOST_LABELS: usize = 150;
/// The colours of message types, in the order in which the types first occur. Those of the lab's page, which can be
/// distinguished with any kind of colour vision; so are those of [`look`]. Warm colours show the states of sites.
const COLOURS: [&str; 8] =
    ["#0072b2", "#009e73", "#b0558b", "#4a4a4a", "#2a93d5", "#7a5c00", "#7b3fb5", "#00808a"];
/// The colour of crashes and suspicions.
const WRONG: &str = "#b3261e";

const LEFT: f64 = 64.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 92.0;
const ROW: f64 = 84.0;
const BOTTOM: f64 = 96.0;
const WIDEST: f64 = 24_000.0;

struct Arrow {
    from: SiteId,
    to: SiteId,
    sent: Time,
    ended: Time,
    arrived: bool,
    kind: usize,
    text: String,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Idle,
    Waiting,
    Inside,
    Sharing,
    Campaigning,
    Leading,
    Down,
    Paused,
}

struct Span {
    site: SiteId,
    state: State,
    from: Time,
    to: Time,
}

/// Collects a run and draws it at the end.
pub struct Svg {
    out: Box<dyn Write>,
    title: String,
    names: Names,
    processes: usize,
    state: Vec<(State, Time)>,
    /// The state of each site before its pause.
    before_pause: Vec<State>,
    spans: Vec<Span>,
    arrows: Vec<Arrow>,
    not_drawn: usize,
    /// The message types seen so far, for the legend and the colours.
    kinds: Vec<String>,
    remarks: Vec<(Time, String)>,
    suspicions: Vec<(Time, SiteId, SiteId)>,
}

impl Svg {
    pub fn new(out: Box<dyn Write>, title: &str, names: Names, processes: usize) -> Self {
        Self {
            out,
            title: title.into(),
            names,
            processes,
            state: vec![(State::Idle, Time::ZERO); processes],
            before_pause: vec![State::Idle; processes],
            spans: Vec::new(),
            arrows: Vec::new(),
            not_drawn: 0,
            kinds: Vec::new(),
            remarks: Vec::new(),
            suspicions: Vec::new(),
        }
    }

    fn change(&mut self, site: SiteId, state: State, now: Time) {
        let (old, since) = std::mem::replace(&mut self.state[site.index()], (state, now));
        if old != State::Idle {
            self.spans.push(Span { site, state: old, from: since, to: now });
        }
    }

    fn arrow(&mut self, arrow: Arrow) {
        if self.arrows.len() < MOST_MESSAGES {
            self.arrows.push(arrow);
        } else {
            self.not_drawn += 1;
        }
    }

    /// The index of a message's type, which is the text before its arguments.
    fn kind(&mut self, text: &str) -> usize {
        let name = text.split([' ', '(', '[']).next().unwrap_or(text);
        self.kinds.iter().position(|known| known == name).unwrap_or_else(|| {
            self.kinds.push(name.into());
            self.kinds.len() - 1
        })
    }

    fn draw(&self, end: Time) -> String {
        let span = end.as_t().max(1.0);
        // Short runs are stretched for legibility; long ones are compressed to a width that viewers can open.
        let scale = (1100.0 / span).clamp(70.0, 150.0).min((WIDEST - LEFT - RIGHT) / span);
        let x = |time: Time| LEFT + time.as_t() * scale;
        let y = |site: SiteId| TOP + ROW * site.index() as f64 + 20.0;
        let width = (x(end) + RIGHT).max(760.0);
        let height = TOP + ROW * (self.processes as f64 - 1.0) + 20.0 + BOTTOM;

        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" font-family=\"system-ui,Segoe UI,Helvetica,Arial,sans-serif\">\n\
             <title>{title}</title>\n<style>.l{{font-size:11px;paint-order:stroke;stroke:#fff;stroke-width:4px;\
             stroke-linejoin:round}}.a{{stroke-width:1.6;fill:none}}.t{{font-size:11px;fill:#666}}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"20\" y=\"30\" font-size=\"17\" font-weight=\"600\" fill=\"#222\">{title}</text>\n",
            title = escape(&self.title)
        );
        self.draw_legend(&mut svg);
        self.draw_axis(&mut svg, end, scale, height, &x);
        for site in SiteId::all(self.processes) {
            let (name, at) = (self.names.of(site), y(site));
            let _ = writeln!(
                svg,
                "<text x=\"20\" y=\"{:.1}\" font-size=\"15\" font-weight=\"600\" fill=\"#222\">{name}</text>\
                 <line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#999\" stroke-width=\"1.2\"/>",
                at + 5.0,
                x(end)
            );
        }
        for span in &self.spans {
            draw_span(&mut svg, span, self.names, x(span.from), x(span.to), y(span.site));
        }
        let mut labels = (self.arrows.len() <= MOST_LABELS).then(Labels::default);
        for arrow in &self.arrows {
            let ends = [x(arrow.sent), y(arrow.from), x(arrow.ended), y(arrow.to)];
            draw_arrow(&mut svg, arrow, self.names, labels.as_mut(), ends);
        }
        for (at, site, suspect) in &self.suspicions {
            let _ = writeln!(
                svg,
                "<text class=\"l\" x=\"{:.1}\" y=\"{:.1}\" fill=\"{WRONG}\">{}?</text>",
                x(*at),
                y(*site) - 8.0,
                self.names.of(*suspect)
            );
        }
        for (at, text) in &self.remarks {
            let _ = writeln!(
                svg,
                "<line x1=\"{0:.1}\" y1=\"{1}\" x2=\"{0:.1}\" y2=\"{2:.1}\" stroke=\"#bbb\" stroke-dasharray=\"2 4\"/>\
                 <text class=\"t\" x=\"{0:.1}\" y=\"{3}\" text-anchor=\"{4}\">{5}</text>",
                x(*at),
                TOP - 14.0,
                height - BOTTOM + 20.0,
                TOP - 18.0,
                // A remark near the right edge is right-aligned, so that it does not leave the picture.
                if x(*at) + 6.0 * text.chars().count() as f64 > width { "end" } else { "start" },
                escape(text)
            );
        }
        if self.not_drawn > 0 {
            let _ = writeln!(
                svg,
                "<text class=\"t\" x=\"20\" y=\"{:.1}\">{} more messages are not drawn</text>",
                height - 12.0,
                self.not_drawn
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw_legend(&self, svg: &mut String) {
        let mut at = 20.0;
        let mut item = |svg: &mut String, shape: String, text: &str| {
            let _ = write!(
                svg,
                "{shape}<text class=\"t\" x=\"{:.1}\" y=\"56\">{}</text>",
                at + 26.0,
                escape(text)
            );
            at += 26.0 + 7.2 * text.chars().count() as f64 + 18.0;
            at
        };
        let mut next = 20.0;
        for (index, kind) in self.kinds.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let shape = format!(
                "<line x1=\"{next:.1}\" y1=\"52\" x2=\"{:.1}\" y2=\"52\" stroke=\"{colour}\" stroke-width=\"2.4\"/>",
                next + 20.0
            );
            next = item(svg, shape, kind);
        }
        let elects = self.spans.iter().any(|span| matches!(span.state, State::Campaigning | State::Leading));
        let shares = self.spans.iter().any(|span| span.state == State::Sharing);
        let states: &[(State, &str)] = match (elects, shares) {
            (true, _) => &[(State::Campaigning, "campaigning"), (State::Leading, "leader")],
            (false, false) => &[(State::Waiting, "waiting"), (State::Inside, "critical section")],
            (false, true) => &[
                (State::Waiting, "waiting"),
                (State::Inside, "critical section"),
                (State::Sharing, "shared"),
            ],
        };
        for &(state, text) in states {
            let (colour, thick) = look(state);
            let shape = format!(
                "<rect x=\"{next:.1}\" y=\"{:.1}\" width=\"20\" height=\"{thick}\" rx=\"2\" fill=\"{colour}\"/>",
                52.0 - thick / 2.0
            );
            next = item(svg, shape, text);
        }
        svg.push('\n');
    }

    fn draw_axis(&self, svg: &mut String, end: Time, scale: f64, height: f64, x: &dyn Fn(Time) -> f64) {
        // Ticks at 1, 2 or 5 times a power of ten, at least 60 pixels apart.
        let steps =
            (0..9).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * f64::from(10_u32.pow(power))));
        let step = steps.into_iter().find(|step| step * scale >= 60.0).unwrap_or(1e9);
        let base = height - 48.0;
        let mut tick = 0.0;
        while tick <= end.as_t() + 1e-9 {
            let at = x(Time::clamped(tick));
            let _ = write!(
                svg,
                "<line x1=\"{at:.1}\" y1=\"{base}\" x2=\"{at:.1}\" y2=\"{}\" stroke=\"#999\"/>\
                 <text class=\"t\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>",
                base + 5.0,
                base + 18.0
            );
            tick += step;
        }
        let _ = writeln!(svg, "<text class=\"t\" x=\"20\" y=\"{}\">time in T</text>", base + 36.0);
    }
}

fn look(state: State) -> (&'static str, f64) {
    match state {
        State::Waiting | State::Campaigning => ("#e69f00", 6.0),
        State::Inside | State::Leading => ("#d55e00", 18.0),
        State::Sharing => ("#eaae7f", 18.0),
        State::Down => ("#ffffff", 4.0),
        State::Paused => ("#dddddd", 12.0),
        State::Idle => ("none", 0.0),
    }
}

fn draw_span(svg: &mut String, span: &Span, names: Names, from: f64, to: f64, y: f64) {
    let (colour, thick) = look(span.state);
    let kind = match span.state {
        State::Waiting => "waits",
        State::Inside => "is inside",
        State::Sharing => "is inside and shares",
        State::Campaigning => "campaigns",
        State::Leading => "leads",
        State::Down => "is down",
        State::Paused => "is paused",
        State::Idle => "is idle",
    };
    let _ = writeln!(
        svg,
        "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{thick}\" rx=\"2\" fill=\"{colour}\">\
         <title>{} {kind} from {} to {} T</title></rect>",
        y - thick / 2.0,
        (to - from).max(1.5),
        names.of(span.site),
        span.from,
        span.to
    );
    if span.state == State::Down {
        let _ = writeln!(
            svg,
            "<line x1=\"{from:.1}\" y1=\"{y:.1}\" x2=\"{to:.1}\" y2=\"{y:.1}\" stroke=\"{WRONG}\" stroke-dasharray=\"3 6\"/>\
             <text x=\"{from:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"20\" font-weight=\"700\" fill=\"{WRONG}\">✕</text>",
            y + 7.0
        );
    }
}

fn draw_arrow(
    svg: &mut String,
    arrow: &Arrow,
    names: Names,
    labels: Option<&mut Labels>,
    [x1, y1, x2, y2]: [f64; 4],
) {
    let colour = COLOURS[arrow.kind % COLOURS.len()];
    // The arrow of a lost message ends on the way.
    let share = if arrow.arrived { 1.0 } else { 0.6 };
    let (x2, y2) = (x1 + (x2 - x1) * share, y1 + (y2 - y1) * share);
    let angle = libm::atan2(y2 - y1, x2 - x1);
    let text = escape(&arrow.text);
    let _ = write!(
        svg,
        "<g><title>{text}, {} to {}, {} to {} T{}</title><path class=\"a\" stroke=\"{colour}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>",
        names.of(arrow.from),
        names.of(arrow.to),
        arrow.sent,
        arrow.ended,
        if arrow.arrived { "" } else { ", lost" }
    );
    if arrow.arrived {
        let wing = |turn: f64| (x2 - 9.0 * libm::cos(angle + turn), y2 - 9.0 * libm::sin(angle + turn));
        let ((ax, ay), (bx, by)) = (wing(0.35), wing(-0.35));
        let _ =
            write!(svg, "<path fill=\"{colour}\" d=\"M{x2:.1} {y2:.1}L{ax:.1} {ay:.1}L{bx:.1} {by:.1}Z\"/>");
    } else {
        let _ = write!(
            svg,
            "<text x=\"{x2:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"15\" fill=\"{colour}\">✕</text>",
            y2 + 5.0
        );
    }
    if let Some([x, y]) = labels.and_then(|labels| labels.place(&arrow.text, [x1, y1, x2, y2], angle)) {
        let degrees = angle.to_degrees();
        let _ = write!(
            svg,
            "<text class=\"l\" transform=\"translate({x:.1} {y:.1}) rotate({degrees:.1})\" dy=\"-3\" \
             text-anchor=\"middle\" fill=\"{colour}\">{text}</text>"
        );
    }
    svg.push_str("</g>\n");
}

/// The bounding boxes of the labels placed so far, so that no label covers another.
#[derive(Default)]
struct Labels(Vec<[f64; 4]>);

impl Labels {
    /// A free position for a label along an arrow, near the sender if possible; `None` if there is none.
    fn place(&mut self, text: &str, [x1, y1, x2, y2]: [f64; 4], angle: f64) -> Option<[f64; 2]> {
        let (width, height) = (6.0 * text.chars().count() as f64, 11.0);
        // The bounding box of the rotated text.
        let (sin, cos) = (libm::fabs(libm::sin(angle)), libm::fabs(libm::cos(angle)));
        let (half_x, half_y) = ((width * cos + height * sin) / 2.0, (width * sin + height * cos) / 2.0);
        let (place, [x, y]) = [0.36, 0.26, 0.46, 0.56, 0.66, 0.76]
            .into_iter()
            .map(|share| [x1 + (x2 - x1) * share, y1 + (y2 - y1) * share])
            .map(|[x, y]| ([x - half_x, y - half_y, x + half_x, y + half_y], [x, y]))
            .find(|(place, _)| !self.0.iter().any(|other| overlap(place, other)))?;
        self.0.push(place);
        Some([x, y])
    }
}

fn overlap(a: &[f64; 4], b: &[f64; 4]) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Sink for Svg {
    fn record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let (site, now) = (record.site, record.at);
        // The order of the types, and so their colours, is that in which they are sent.
        for sent in record.sends {
            self.kind(&sent.message.to_string());
        }
        match record.what {
            EventKind::Request { .. } => self.change(site, State::Waiting, now),
            EventKind::Enter { mode: Mode::Exclusive, .. } => self.change(site, State::Inside, now),
            EventKind::Enter { mode: Mode::Shared, .. } => self.change(site, State::Sharing, now),
            EventKind::Exit | EventKind::Recover => self.change(site, State::Idle, now),
            EventKind::Campaign => self.change(site, State::Campaigning, now),
            EventKind::Elected { leader } => {
                self.change(site, if leader == site { State::Leading } else { State::Idle }, now);
            }
            EventKind::Crash => self.change(site, State::Down, now),
            EventKind::Pause => {
                self.before_pause[site.index()] = self.state[site.index()].0;
                self.change(site, State::Paused, now);
            }
            EventKind::Resume => self.change(site, self.before_pause[site.index()], now),
            EventKind::Receive { from, message, sent, .. } => {
                let text = message.to_string();
                let kind = self.kind(&text);
                self.arrow(Arrow { from, to: site, sent, ended: now, arrived: true, kind, text });
            }
            EventKind::Lost { from, message, sent, .. } => {
                let text = message.to_string();
                let kind = self.kind(&text);
                // A message that is lost when it is sent is drawn as if it had been under way for one T.
                let ended = if now > sent { now } else { now + Time::UNIT };
                self.arrow(Arrow { from, to: site, sent, ended, arrived: false, kind, text });
            }
            EventKind::Suspect { suspect } => self.suspicions.push((now, site, suspect)),
            EventKind::Remark { text } => self.remarks.push((now, text.to_string())),
            EventKind::Start | EventKind::Timer => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: Time) -> io::Result<()> {
        for site in SiteId::all(self.processes) {
            self.change(site, State::Idle, end);
        }
        self.out.write_all(self.draw(end).as_bytes())?;
        self.out.flush()
    }
}
