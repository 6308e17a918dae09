// Paints the space-time diagram: sites as lines, time to the right.

import { inks, kindColour } from "./colours.js";

export const GUTTER = 52;
/** The x coordinate of time 0 without scrolling. */
export const ORIGIN = GUTTER + 14;
const TOP = 24;
/** The maximum number of arrows drawn at once. Beyond it many share a pixel, and a sample is drawn. */
const MOST_ARROWS = 5000;
const FONT = "12px system-ui, sans-serif";

/** The y coordinate of a site's line. */
export function laneY(view, site) {
  return TOP + view.lane * (site + 0.5);
}

/** The x coordinate of an instant. */
export function timeX(view, time) {
  return ORIGIN + (time - view.from) * view.scale;
}

export function heightFor(sites, room) {
  return Math.max(room, TOP + sites * 20 + 6);
}

/** The height of each site's lane. */
export function laneHeight(sites, height) {
  return Math.min(76, (height - TOP - 4) / Math.max(1, sites));
}

/** The distance of ticks that leaves room for their labels. */
function tickStep(scale, smallest) {
  for (let step = smallest; ; step *= 10) {
    for (const times of [1, 2, 5]) if (step * times * scale >= 56) return step * times;
  }
}

function paintScale(pen, view, film, ink) {
  const step = tickStep(view.scale, film.byHand || film.isStory ? 1 : 0.01);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  pen.textAlign = "center";
  for (let tick = Math.ceil(view.from / step); timeX(view, tick * step) < view.width; tick += 1) {
    if (tick < 0) continue;
    const x = timeX(view, tick * step);
    pen.strokeStyle = ink.line;
    pen.globalAlpha = 0.5;
    pen.beginPath();
    pen.moveTo(x, TOP - 6);
    pen.lineTo(x, view.height);
    pen.stroke();
    pen.globalAlpha = 1;
    pen.fillStyle = ink.faint;
    pen.fillText((tick * step).toFixed(digits), x, 12);
  }
}

function paintCuts(pen, view, film, ink) {
  for (const cut of film.cuts) {
    const x1 = Math.max(GUTTER, timeX(view, cut.from));
    const x2 = Math.min(view.width, timeX(view, cut.to ?? film.end));
    if (x2 < GUTTER || x1 > view.width) continue;
    pen.fillStyle = ink.wrong;
    pen.globalAlpha = 0.07;
    pen.fillRect(x1, TOP - 4, Math.max(2, x2 - x1), view.height);
    pen.globalAlpha = 0.8;
    const names = (sites) => sites.map((site) => film.names[site]).join(" ");
    pen.textAlign = "left";
    pen.fillText(`cut ${names(cut.left)} ${cut.one_way ? "▷" : "|"} ${names(cut.right)}`, x1 + 4, TOP + 4);
    // A dotted line between neighbours that are separated by a partition.
    pen.strokeStyle = ink.wrong;
    pen.setLineDash([3, 4]);
    for (let site = 0; site + 1 < film.names.length; site += 1) {
      const apart = (a, b) => cut.left.includes(a) && cut.right.includes(b);
      if (!apart(site, site + 1) && !apart(site + 1, site)) continue;
      const y = (laneY(view, site) + laneY(view, site + 1)) / 2;
      pen.beginPath();
      pen.moveTo(x1, y);
      pen.lineTo(x2, y);
      pen.stroke();
    }
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }
}

/** A bar up to the current time, and its future part faintly. */
function paintBar(pen, view, bar, y, now, end, ink) {
  const heights = { Inside: Math.min(18, view.lane * 0.46), Waiting: 5, down: 2, paused: 2 };
  const colours = { Inside: ink.inside, Waiting: ink.waiting, down: ink.wrong, paused: ink.faint };
  const height = heights[bar.kind];
  const part = (from, to, alpha) => {
    const x1 = Math.max(GUTTER, timeX(view, from)),
      x2 = Math.min(view.width, timeX(view, to));
    if (x2 < GUTTER || x1 > view.width || to < from) return;
    pen.globalAlpha = alpha;
    pen.fillStyle = colours[bar.kind];
    const width = Math.max(bar.to === null && bar.kind === "Inside" && alpha === 1 ? 9 : 2, x2 - x1);
    if (bar.kind === "Inside" && width > 4) {
      pen.beginPath();
      pen.roundRect(x1, y - height / 2, width, height, 3);
      pen.fill();
      if (bar.mode === "Shared") paintStripes(pen, x1, y, width, height, ink);
    } else {
      pen.fillRect(x1, y - height / 2, width, height);
    }
    pen.globalAlpha = 1;
  };
  const to = bar.to ?? end;
  if (bar.from <= now) part(bar.from, Math.min(to, now), 1);
  if (to > now) part(Math.max(bar.from, now), to, 0.16);
}

/** Stripes show a shared hold. */
function paintStripes(pen, x, y, width, height, ink) {
  pen.fillStyle = ink.back;
  for (let at = x + 4; at < x + width - 2; at += 7) pen.fillRect(at, y - height / 2 + 2, 2, height - 4);
}

function paintLanes(pen, view, film, now, selected, ink) {
  const end = Math.max(film.end, now);
  film.names.forEach((_, site) => {
    const y = laneY(view, site);
    if (site === selected) {
      pen.fillStyle = ink.accent;
      pen.globalAlpha = 0.07;
      pen.fillRect(0, y - view.lane / 2, view.width, view.lane);
      pen.globalAlpha = 1;
    }
    pen.strokeStyle = ink.line;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(GUTTER, y);
    pen.lineTo(view.width, y);
    pen.stroke();
    for (const bar of film.bars[site]) {
      if (bar.from > view.until) break;
      if ((bar.to ?? end) < view.from) continue;
      paintBar(pen, view, bar, y, now, end, ink);
      if (bar.kind === "down") paintCross(pen, timeX(view, bar.from), y, 6, ink.wrong);
    }
  });
}

function paintCross(pen, x, y, size, colour) {
  if (x < GUTTER) return;
  pen.strokeStyle = colour;
  pen.lineWidth = 2.2;
  pen.beginPath();
  pen.moveTo(x - size, y - size);
  pen.lineTo(x + size, y + size);
  pen.moveTo(x + size, y - size);
  pen.lineTo(x - size, y + size);
  pen.stroke();
  pen.lineWidth = 1;
}

/** The two ends of a message's arrow, up to the message's current position. */
export function arrowOf(view, film, message, step, now) {
  const x1 = timeX(view, message.from_t),
    y1 = laneY(view, message.from);
  const arrived = message.ended !== null && message.ended <= step;
  let way = 1;
  let x2 = timeX(view, message.to_t ?? now);
  if (message.ended === null) {
    // The arrival time is unknown: the arrow ends between the lines, where its head can be pointed at.
    way = 0.72;
    x2 = Math.max(x1 + 26, timeX(view, Math.max(now, message.from_t)) + 14);
  } else if (!arrived) {
    const span = message.to_t - message.from_t;
    way = span > 0 ? Math.min(1, Math.max(0, (now - message.from_t) / span)) : 1;
  } else if (message.lost) {
    way = 0.6;
  }
  const y2 = laneY(view, message.to);
  const hanging = message.ended === null;
  return { x1, y1, x2: hanging ? x2 : x1 + (x2 - x1) * way, y2: y1 + (y2 - y1) * way, arrived, hanging };
}

function paintMessages(pen, view, film, step, now, hovered) {
  const [first, last] = film.between(view.from, view.until);
  const heads = last - first < 900;
  // Where many arrows share a pixel, each is more transparent, so that bars remain visible behind them.
  const dense = (last - first) / (view.width - GUTTER);
  const alpha = Math.max(0.05, Math.min(0.95, 1.1 / Math.max(dense, 0.01)));
  const wide = view.scale * Math.max(0.2, Math.min(film.longest, 3)) > 90;
  const names = heads && !film.isStory && wide && last - first < 160;
  // Odd, so that sampling does not always omit the same receivers of a broadcast to an even number of sites.
  const stride = Math.ceil((last - first + 1) / MOST_ARROWS) | 1;
  const groups = film.kinds.map(() => ({ past: [], hanging: [], future: [], lost: [] }));
  for (let place = first - (first % stride); place <= last; place += stride) {
    const message = film.messages[place];
    if (message.to_t !== null && message.to_t < view.from) continue;
    const group = groups[message.kind];
    if (message.sent > step) {
      if (message.to_t !== null) group.future.push([message, arrowOf(view, film, message, film.last, film.end)]);
      continue;
    }
    const arrow = arrowOf(view, film, message, step, now);
    if (arrow.hanging) group.hanging.push([message, arrow]);
    else if (message.lost && arrow.arrived) group.lost.push([message, arrow]);
    else group.past.push([message, arrow]);
  }
  groups.forEach((group, kind) => {
    const colour = kindColour(kind);
    pen.strokeStyle = colour;
    pen.fillStyle = colour;
    pen.lineWidth = last - first > 3000 ? 0.7 : 1.4;
    strokeAll(pen, group.future, 0.13);
    pen.globalAlpha = 1;
    strokeAll(pen, group.past, alpha);
    pen.setLineDash([5, 4]);
    strokeAll(pen, group.hanging, 0.95);
    strokeAll(pen, group.lost, 0.95);
    pen.setLineDash([]);
    if (heads) {
      for (const [, arrow] of group.past) paintHead(pen, arrow);
      for (const [, arrow] of group.hanging) paintHead(pen, arrow);
      for (const [, arrow] of group.lost) paintCross(pen, arrow.x2, arrow.y2, 4, colour);
    }
    if (names) for (const [message, arrow] of group.past.concat(group.hanging)) paintName(pen, message, arrow);
  });
  if (hovered && hovered.sent <= step) {
    pen.lineWidth = 3.4;
    pen.strokeStyle = kindColour(hovered.kind);
    strokeAll(pen, [[hovered, arrowOf(view, film, hovered, step, now)]], 1);
  }
  pen.globalAlpha = 1;
  pen.lineWidth = 1;
}

function strokeAll(pen, arrows, alpha) {
  if (arrows.length === 0) return;
  pen.globalAlpha = alpha;
  pen.beginPath();
  for (const [, arrow] of arrows) {
    pen.moveTo(arrow.x1, arrow.y1);
    pen.lineTo(arrow.x2, arrow.y2);
  }
  pen.stroke();
}

function paintHead(pen, { x1, y1, x2, y2 }) {
  const angle = Math.atan2(y2 - y1, x2 - x1),
    size = 7;
  pen.beginPath();
  pen.moveTo(x2, y2);
  pen.lineTo(x2 - size * Math.cos(angle - 0.38), y2 - size * Math.sin(angle - 0.38));
  pen.lineTo(x2 - size * Math.cos(angle + 0.38), y2 - size * Math.sin(angle + 0.38));
  pen.fill();
}

/** The message's name along its arrow, near the tail, where arrows are furthest apart. */
function paintName(pen, message, { x1, y1, x2, y2 }) {
  const length = Math.hypot(x2 - x1, y2 - y1);
  if (length < 70) return;
  pen.save();
  pen.translate(x1 + (x2 - x1) * 0.4, y1 + (y2 - y1) * 0.4);
  pen.rotate(Math.atan2(y2 - y1, x2 - x1));
  pen.textAlign = "center";
  pen.font = "10.5px system-ui, sans-serif";
  pen.fillText(message.text.length > 18 ? message.name : message.text, 0, -3);
  pen.restore();
}

/** Marks violations. */
function paintViolations(pen, view, film, now, ink) {
  for (const found of film.wrong) {
    if (found.at > now + 1e-9) continue;
    const x = timeX(view, found.at);
    if (x < GUTTER || x > view.width) continue;
    pen.strokeStyle = ink.wrong;
    pen.lineWidth = 2;
    pen.setLineDash([6, 3]);
    pen.beginPath();
    pen.moveTo(x, TOP - 6);
    pen.lineTo(x, view.height);
    pen.stroke();
    pen.setLineDash([]);
    pen.lineWidth = 1;
  }
}

function paintCursor(pen, view, now, ink) {
  const x = timeX(view, now);
  if (x < GUTTER - 1 || x > view.width) return;
  pen.strokeStyle = ink.accent;
  pen.fillStyle = ink.accent;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x, TOP - 8);
  pen.lineTo(x, view.height);
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x - 5, TOP - 14);
  pen.lineTo(x + 5, TOP - 14);
  pen.lineTo(x, TOP - 6);
  pen.fill();
  pen.lineWidth = 1;
}

/** A dot for each step of a short run. */
function paintSteps(pen, view, film, step, ink) {
  if (film.last > 80) return;
  pen.fillStyle = ink.text;
  for (let at = 1; at <= step; at += 1) {
    const { site, at: time } = film.steps[at];
    if (site === null || time < view.from) continue;
    pen.beginPath();
    pen.arc(timeX(view, time), laneY(view, site), 2.6, 0, 7);
    pen.fill();
  }
}

/** Marks the site of the current step. */
function paintHere(pen, view, film, step, ink) {
  const { site, at } = film.steps[step];
  if (site === null) return;
  pen.strokeStyle = ink.accent;
  pen.lineWidth = 2.5;
  pen.beginPath();
  pen.arc(timeX(view, at), laneY(view, site), 7, 0, 7);
  pen.stroke();
  pen.lineWidth = 1;
}

function paintNames(pen, view, film, step, selected, ink) {
  pen.fillStyle = ink.back;
  pen.fillRect(0, 0, GUTTER, view.height);
  pen.textAlign = "right";
  pen.fillStyle = ink.faint;
  pen.fillText(film.isStory ? "step" : "T", GUTTER - 12, 12);
  film.names.forEach((name, site) => {
    const state = film.stateAt(site, step);
    pen.font = site === selected ? "700 13px system-ui, sans-serif" : "600 13px system-ui, sans-serif";
    pen.fillStyle = !state.up ? ink.wrong : state.phase === "Inside" ? ink.inside : ink.text;
    pen.fillText(name, GUTTER - 14, laneY(view, site) + 4.5);
    if (state.tokens > 0) pen.fillText("◆", 13, laneY(view, site) + 4.5);
  });
  pen.font = FONT;
}

/** Paints everything for one instant. */
export function paint(pen, view, film, { step, now, selected, hovered }) {
  const ink = inks();
  pen.font = FONT;
  pen.fillStyle = ink.back;
  pen.fillRect(0, 0, view.width, view.height);
  paintScale(pen, view, film, ink);
  paintCuts(pen, view, film, ink);
  const [first, last] = film.between(view.from, view.until);
  const crowded = last - first > 3 * view.width;
  if (!crowded) paintLanes(pen, view, film, now, selected, ink);
  paintMessages(pen, view, film, step, now, hovered);
  if (crowded) paintLanes(pen, view, film, now, selected, ink);
  paintSteps(pen, view, film, step, ink);
  paintViolations(pen, view, film, now, ink);
  paintCursor(pen, view, now, ink);
  paintHere(pen, view, film, step, ink);
  paintNames(pen, view, film, step, selected, ink);
}
