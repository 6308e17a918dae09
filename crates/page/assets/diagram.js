// The space-time diagram: its visible part, and its interaction with mouse and wheel.

import { h } from "./dom.js";
import { GUTTER, ORIGIN, arrowOf, heightFor, laneHeight, laneY, paint, timeX } from "./paint.js";

const NEAR = 7;

/** The distance of a point from the line between two others. */
function distance(x, y, { x1, y1, x2, y2 }) {
  const length = (x2 - x1) ** 2 + (y2 - y1) ** 2;
  const way = length === 0 ? 0 : Math.max(0, Math.min(1, ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / length));
  return Math.hypot(x - x1 - way * (x2 - x1), y - y1 - way * (y2 - y1));
}

export class Diagram {
  /** `handlers` receives the user's actions: select a site, go to a time, point at a message. */
  constructor(handlers) {
    this.handlers = handlers;
    this.canvas = h("canvas", { class: "diagram", tabIndex: 0, role: "img" });
    this.tip = h("div", { class: "tip", hidden: true, role: "tooltip" });
    this.scroller = h("div", { class: "diagram-scroll" }, this.canvas);
    this.element = h("div", { class: "diagram-frame" }, this.scroller, this.tip);
    this.from = 0;
    this.scale = 60;
    this.now = { step: 0, now: 0, selected: null, hovered: null };
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  show(film, keepView) {
    this.film = film;
    this.now.hovered = null;
    this.tip.hidden = true;
    if (!keepView) this.fit();
    this.resize();
  }

  /** Shows the whole run if that is legible, otherwise its beginning. */
  fit() {
    const room = this.width() - GUTTER - 40,
      whole = Math.max(this.film.end, 1);
    const readable = Math.max(14, room / 60);
    this.from = 0;
    this.scale = Math.max(readable, Math.min(160, room / whole));
  }

  /** Shows the whole run, legible or not. */
  fitAll() {
    this.from = 0;
    this.scale = (this.width() - GUTTER - 20) / Math.max(this.film.end, 0.1);
    this.draw();
  }

  width() {
    return this.scroller.clientWidth || 800;
  }

  resize() {
    if (!this.film) return;
    const ratio = devicePixelRatio || 1;
    const width = this.width();
    const height = heightFor(this.film.names.length, this.scroller.clientHeight || 200);
    this.height = height;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.draw();
  }

  view() {
    const width = this.width();
    const lane = laneHeight(this.film.names.length, this.height);
    const until = this.from + (width - GUTTER) / this.scale;
    return { from: this.from, until, scale: this.scale, width, height: this.height, lane };
  }

  /** Shows an instant. */
  at(now) {
    Object.assign(this.now, now);
    this.draw();
  }

  /** Scrolls so that the current time is visible. */
  follow(time) {
    const view = this.view(),
      x = timeX(view, time);
    if (this.from === 0 && timeX(view, this.film.end) < view.width - 8) return;
    if (x > view.width * 0.82 || x < GUTTER) {
      const room = (view.width - ORIGIN) / this.scale;
      // Do not scroll beyond the end of the run.
      this.from = Math.max(0, Math.min(time - room * 0.35, this.film.end - room * 0.93));
    }
  }

  draw() {
    if (!this.film || this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      const ratio = devicePixelRatio || 1;
      const pen = this.canvas.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      paint(pen, this.view(), this.film, this.now);
    });
  }

  /** Zooms; the given x coordinate keeps its time. */
  zoom(factor, x) {
    const view = this.view();
    const anchor = x ?? Math.max(GUTTER, Math.min(view.width, timeX(view, this.now.now)));
    const time = this.from + (anchor - ORIGIN) / this.scale;
    const smallest = (view.width - GUTTER) / Math.max(this.film.end * 1.2, 1);
    this.scale = Math.min(4000, Math.max(Math.min(smallest, 20), this.scale * factor));
    this.from = Math.max(0, time - (anchor - ORIGIN) / this.scale);
    this.draw();
  }

  pan(pixels) {
    this.from = Math.max(0, Math.min(this.film.end, this.from + pixels / this.scale));
    this.draw();
  }

  listen() {
    const place = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        if (!this.film) return;
        event.preventDefault();
        const [x] = place(event);
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX || event.deltaY);
        else this.zoom(Math.exp(-event.deltaY * 0.0018), Math.max(GUTTER, x));
      },
      { passive: false },
    );
    let held = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      held = { x: event.clientX, moved: false };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!this.film) return;
      if (held) {
        const dx = event.clientX - held.x;
        held.moved ||= Math.abs(dx) > 3;
        if (held.moved) {
          this.pan(-dx);
          held.x = event.clientX;
        }
        return;
      }
      this.point(...place(event));
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const clicked = held && !held.moved;
      held = null;
      if (clicked && this.film) this.click(...place(event));
    });
    this.canvas.addEventListener("pointerleave", () => this.hover(null));
  }

  click(x, y) {
    const message = this.messageAt(x, y),
      site = this.siteAt(y);
    if (message) this.handlers.message?.(message);
    if (site !== null) this.handlers.select(site);
    if (x > GUTTER && !message) this.handlers.go(this.from + (x - ORIGIN) / this.scale);
  }

  siteAt(y) {
    const view = this.view();
    const site = Math.floor((y - laneY(view, 0)) / view.lane + 0.5);
    return site >= 0 && site < this.film.names.length ? site : null;
  }

  /** The nearest message that has been sent. */
  messageAt(x, y) {
    const view = this.view(),
      { step, now } = this.now;
    const [first, last] = this.film.between(view.from, view.until);
    let best = null,
      nearest = NEAR;
    for (let place = first; place <= last; place += 1) {
      const message = this.film.messages[place];
      if (message.sent > step) break;
      const far = distance(x, y, arrowOf(view, this.film, message, step, now));
      if (far < nearest) [best, nearest] = [message, far];
    }
    return best;
  }

  point(x, y) {
    const message = x > GUTTER ? this.messageAt(x, y) : null;
    this.hover(message, x, y);
  }

  hover(message, x, y) {
    const changed = message !== this.now.hovered;
    this.now.hovered = message;
    this.tip.hidden = !message;
    if (message) {
      const names = this.film.names,
        fate =
          message.ended === null
            ? "under way"
            : message.lost
              ? `lost at ${message.to_t}`
              : `${message.from_t} → ${message.to_t} T`;
      this.tip.textContent = `${message.text}  ${names[message.from]} → ${names[message.to]}, ${fate}`;
      const left = Math.min(x + 14, this.width() - this.tip.offsetWidth - 8);
      this.tip.style.transform = `translate(${Math.max(0, left)}px, ${y - this.scroller.scrollTop + 16}px)`;
    }
    if (changed) this.draw();
  }
}
