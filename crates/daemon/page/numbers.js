// Rates and means, computed from the daemon's counters, with their history of the last minutes.

import { el, number, seconds } from "./dom.js";

/** Number of samples that are drawn: two minutes. */
const LOOKS = 60;

/** The charts: title, key, value from two samples `now` and `before` that are `s` seconds apart, and format. */
const LINES = [
  ["Entries a second", "entries", (now, before, s) => rate(now, before, s, "lockkeeper_entries_total"), number],
  ["Mean wait", "wait", (now, before) => mean(now, before, "lockkeeper_wait_seconds"), seconds],
  ["Mean time held", "hold", (now, before) => mean(now, before, "lockkeeper_hold_seconds"), seconds],
  ["Messages for an entry", "messages", (now, before) => per(now, before, "lockkeeper_messages_total", "lockkeeper_entries_total"), number],
  ["Views started", "views", (now) => now.get("lockkeeper_view_changes_total"), number],
  ["Leases lost", "lost", (now) => now.get("lockkeeper_lost_leases_total"), number],
  ["HTTP connections", "connections", (now) => now.get("lockkeeper_daemon_connections"), number],
  ["Refused a second", "refused", (now, before, s) => rate(now, before, s, "lockkeeper_daemon_refused_total"), number],
];

/** The sum of every metric over its labels, by name. */
export function parse(text) {
  const sums = new Map();
  for (const line of text.split("\n")) {
    const found = /^([A-Za-z_:][\w:]*)(?:\{.*\})? (\S+)/.exec(line);
    if (found && !found[1].endsWith("_bucket")) sums.set(found[1], (sums.get(found[1]) ?? 0) + Number(found[2]));
  }
  return sums;
}

function gain(now, before, name) {
  // A restarted daemon counts from 0 again.
  const [new_, old] = [now.get(name) ?? 0, before.get(name) ?? 0];
  return new_ >= old ? new_ - old : new_;
}

function rate(now, before, s, name) {
  return gain(now, before, name) / s;
}

function per(now, before, what, each) {
  const count = gain(now, before, each);
  return count === 0 ? NaN : gain(now, before, what) / count;
}

function mean(now, before, name) {
  return per(now, before, `${name}_sum`, `${name}_count`);
}

const history = new Map(LINES.map(([, key]) => [key, []]));
let last;

/** Adds a sample of the counters and redraws the charts. */
export function look(sums) {
  const at = performance.now();
  const before = last ?? { sums, at };
  last = { sums, at };
  const s = Math.max((at - before.at) / 1000, 0.001);
  const shown = LINES.map(([label, key, value, show]) => {
    const now = value(sums, before.sums, s) ?? NaN;
    const values = history.get(key);
    values.push(Number.isFinite(now) ? now : 0);
    if (values.length > LOOKS) values.shift();
    return el("div", { "data-number": key }, el("dt", {}, label), el("dd", {}, show(now), drawn(values)));
  });
  document.querySelector("#numbers").replaceChildren(...shown);
}

const SVG = "http://www.w3.org/2000/svg";

/** The last samples as a line. It is hidden from screen readers, which read the number beside it. */
function drawn(values) {
  const highest = Math.max(...values, 1e-9);
  const points = values.map((value, place) => `${LOOKS - values.length + place},${(20 - (18 * value) / highest).toFixed(1)}`);
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", points.join(" "));
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${LOOKS - 1} 21`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  svg.append(line);
  return svg;
}
