// The sites as a map: on a circle, or as the tree of their pointers, with the messages between them.

import { s } from "./dom.js";
import { kindColour } from "./colours.js";

const SIZE = 240;
const GLIDE = 0.16;
const MOST_WAITS = 40;

/** Positions on a circle, S1 at the top. */
function circle(count) {
  const radius = count > 1 ? SIZE * 0.37 : 0;
  return Array.from({ length: count }, (_, site) => {
    const angle = (2 * Math.PI * site) / count - Math.PI / 2;
    return [SIZE / 2 + radius * Math.cos(angle), SIZE / 2 + radius * Math.sin(angle)];
  });
}

/**
 * The pointers without cycles. While a token is under way, its sender and its receiver may point at each other:
 * one of them is then treated as the root, the previous root if it is in the cycle.
 */
function withoutCycles(parents, rootBefore) {
  const up = [...parents];
  parents.forEach((_, start) => {
    const way = [];
    for (let at = start; at !== null && at !== undefined; at = up[at]) {
      const place = way.indexOf(at);
      if (place >= 0) {
        const cycle = way.slice(place);
        up[cycle.includes(rootBefore) ? rootBefore : Math.min(...cycle)] = null;
        break;
      }
      way.push(at);
    }
  });
  return up;
}

/** Positions in a tree: sites without a pointer at the top, all others below the site that they point to. */
function tree(up) {
  const ways = up.map((_, site) => {
    const way = [site];
    while (up[way[0]] !== null && up[way[0]] !== undefined) way.unshift(up[way[0]]);
    return way;
  });
  const deepest = Math.max(2, ...ways.map((way) => way.length)) - 1;
  const places = [];
  for (let level = 0; level <= deepest; level += 1) {
    const here = ways.filter((way) => way.length === level + 1);
    here.sort((one, other) => one.join(".").localeCompare(other.join("."), undefined, { numeric: true }));
    here.forEach((way, index) => {
      places[way.at(-1)] = [SIZE * ((index + 1) / (here.length + 1)), 26 + (SIZE - 52) * (level / deepest)];
    });
  }
  return places;
}

export class SiteMap {
  /** `chosen` is called with the site that the user selects. */
  constructor(chosen) {
    this.chosen = chosen;
    this.links = s("g", { class: "links" });
    this.dots = s("g", { class: "dots" });
    this.nodes = s("g", { class: "nodes" });
    const tip = (id) =>
      s(
        "marker",
        { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto-start-reverse" },
        s("path", { d: "M0 0L8 4L0 8z" }),
      );
    this.element = s(
      "svg",
      { class: "map", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "group", "aria-label": "The sites" },
      s("defs", {}, tip("tip"), tip("tip-waits")),
      this.links,
      this.dots,
      this.nodes,
    );
  }

  show(film) {
    this.film = film;
    this.places = null;
    this.radius = Math.max(7, Math.min(17, 130 / film.names.length));
    this.circles = film.names.map((name, site) => {
      const act = () => this.chosen(site);
      const node = s(
        "g",
        {
          class: "node",
          tabindex: "0",
          role: "button",
          onclick: act,
          onkeydown: (event) => {
            if (event.key === "Enter") act();
          },
        },
        s("circle", { class: "halo", r: this.radius + 4.5 }),
        s("circle", { class: "body", r: this.radius }),
        s("text", { dy: "0.35em" }, this.radius < 9 ? name.slice(1) : name),
        s("text", { class: "token", dy: "0.35em", dx: `${this.radius + 9}px` }, "◆"),
      );
      return node;
    });
    this.nodes.replaceChildren(...this.circles);
  }

  /** Shows an instant. `quick` omits the animation. */
  at({ step, now, selected, chosen }, quick) {
    const film = this.film;
    const states = film.names.map((_, site) => film.stateAt(site, step));
    this.states = states;
    const parents = states.map((state) => state.points_to);
    const up = film.hasTree ? withoutCycles(parents, this.root) : [];
    this.root = up.indexOf(null);
    this.goal = film.hasTree ? tree(up) : circle(film.names.length);
    if (!this.places || quick) this.places = this.goal.map(([x, y]) => [x, y]);
    const quorum = selected === null ? [] : states[selected].quorum;
    this.circles.forEach((node, site) => {
      const state = states[site];
      const kind = !state.up ? "crashed" : state.paused ? "paused" : state.phase.toLowerCase();
      const member = quorum.includes(site);
      node.setAttribute(
        "class",
        [
          "node",
          kind,
          site === selected ? "selected" : "",
          member ? "member" : "",
          chosen && quorum.length > 0 && !member && site !== selected ? "outsider" : "",
          state.tokens > 0 ? "holder" : "",
        ].join(" "),
      );
      node.setAttribute("aria-label", `${film.names[site]}, ${kind}${state.tokens ? ", has the token" : ""}`);
    });
    this.parents = parents;
    this.under = film.underWay(step);
    this.now = now;
    this.draw();
  }

  /** Draws one frame of the animation; returns whether there are more. */
  glide() {
    if (!this.goal || !this.places) return false;
    let moves = false;
    this.places.forEach((place, site) => {
      const [dx, dy] = [this.goal[site][0] - place[0], this.goal[site][1] - place[1]];
      if (Math.abs(dx) + Math.abs(dy) < 0.4) return;
      place[0] += dx * GLIDE;
      place[1] += dy * GLIDE;
      moves = true;
    });
    if (moves) this.draw();
    return moves;
  }

  draw() {
    this.circles.forEach((node, site) => node.setAttribute("transform", `translate(${this.places[site].join(" ")})`));
    const links = this.parents.flatMap((parent, site) =>
      parent === null || !this.places[parent] ? [] : [this.link(site, parent, "points")],
    );
    // Waits-for edges, unless the pointers already show them.
    const waits = this.film.hasTree
      ? []
      : this.states.flatMap((state, site) => state.waits_for.map((other) => this.link(site, other, "waits")));
    if (waits.length <= MOST_WAITS) links.push(...waits);
    this.links.replaceChildren(...links);
    this.dots.replaceChildren(...this.under.map((message) => this.dot(message)));
  }

  link(from, to, kind) {
    const [[x1, y1], [x2, y2]] = [this.places[from], this.places[to]];
    const length = Math.hypot(x2 - x1, y2 - y1) || 1,
      gap = this.radius + 3;
    const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
    return s("line", {
      class: kind,
      x1: x1 + ux * gap,
      y1: y1 + uy * gap,
      x2: x2 - ux * gap,
      y2: y2 - uy * gap,
      "marker-end": kind === "waits" ? "url(#tip-waits)" : "url(#tip)",
    });
  }

  /** A message under way between two sites. */
  dot(message) {
    const [[x1, y1], [x2, y2]] = [this.places[message.from], this.places[message.to]];
    const span = (message.to_t ?? 0) - message.from_t;
    const way =
      message.to_t === null
        ? 0.62
        : span > 0
          ? Math.max(0.05, Math.min(0.95, (this.now - message.from_t) / span))
          : 0.5;
    // To the right of the line in the direction of travel, so that messages in opposite directions do not
    // overlap.
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [nx, ny] = [(-(y2 - y1) / length) * 4, ((x2 - x1) / length) * 4];
    const at = { cx: x1 + (x2 - x1) * way + nx, cy: y1 + (y2 - y1) * way + ny };
    const colour = kindColour(message.kind);
    return s(
      "g",
      {},
      s("line", { class: "trail", stroke: colour, x1: x1 + nx, y1: y1 + ny, x2: at.cx, y2: at.cy }),
      s("circle", { ...at, r: 4.2, fill: colour }, s("title", {}, message.text)),
    );
  }
}
