// Plays a run: play, pause, step, scrub; shows every instant as a diagram, a map, states and a sentence.

import { button, h, put } from "./dom.js";
import { Code } from "./code.js";
import { kindColour } from "./colours.js";
import { Diagram } from "./diagram.js";
import { Inside } from "./inside.js";
import { SiteMap } from "./map.js";

const SPEEDS = [0.25, 0.5, 1, 2, 5, 10, 25, 100];
const STORY_WINDOW = 40;

export class Player {
  constructor() {
    this.step = 0;
    this.now = 0;
    this.selected = null;
    this.playing = false;
    this.driving = null;
    this.beside = "code";
    const select = (site) => this.select(site);
    this.diagram = new Diagram({
      select,
      go: (time) => this.go(time),
      message: (message) => this.driving?.message(message),
    });
    this.map = new SiteMap((site) => {
      this.select(site);
      this.driving?.site(site);
    });
    this.inside = new Inside({ select });
    this.code = new Code();
    this.sentence = h("p", { class: "sentence", id: "sentence", "aria-live": "polite" });
    this.verdict = h("div", { class: "verdict", id: "verdict" });
    this.story = h("ol", { class: "story", "aria-label": "The story so far" });
    this.choices = [
      ["code", "Pseudo-code"],
      ["story", "Steps"],
    ].map(([name, label]) =>
      h("button", { type: "button", class: "quiet", "data-beside": name, onclick: () => this.showBeside(name) }, label),
    );
    this.legend = h("div", { class: "legend" });
    this.title = h("h2", {});
    this.about = h("p", { class: "about" });
    this.tools = h("div", { class: "tools" });
    this.element = h(
      "div",
      { class: "player" },
      h(
        "div",
        { class: "headline" },
        this.title,
        h("a", { class: "to-panel", href: "#panel", onclick: toPanel }, "What to run ↓"),
        this.tools,
      ),
      this.about,
      this.diagram.element,
      this.controls(),
      this.sentence,
      this.verdict,
      h(
        "div",
        { class: "below" },
        h("figure", { class: "mapbox" }, this.map.element, this.legend),
        this.inside.element,
        h("div", { class: "beside" }, h("div", { class: "choices" }, this.choices), this.code.element, this.story),
      ),
    );
    document.addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.refresh());
  }

  /** Shows the pseudo-code or the steps in the column beside the states. */
  showBeside(name) {
    this.beside = name;
    this.arrange();
    this.show(true);
  }

  arrange() {
    const shown = this.film.code.length > 0 ? this.beside : "story";
    this.code.element.hidden = shown !== "code";
    this.story.hidden = shown !== "story";
    for (const choice of this.choices) {
      choice.setAttribute("aria-pressed", String(choice.dataset.beside === shown));
      choice.hidden = this.film.code.length === 0;
    }
  }

  controls() {
    this.playButton = button("▶", "Play (space)", () => this.toggle(), { class: "primary", id: "play" });
    this.scrub = h("input", { type: "range", min: 0, max: 0, value: 0, step: 1, id: "scrub", "aria-label": "Step" });
    this.scrub.addEventListener("input", () => {
      this.pause();
      this.to(Number(this.scrub.value));
    });
    this.counter = h("output", { class: "counter", id: "counter" });
    this.speed = h(
      "select",
      { "aria-label": "Speed", title: "Speed, in T for each second", id: "speed" },
      SPEEDS.map((speed) => h("option", { value: String(speed), selected: speed === 1 }, `${speed} T/s`)),
    );
    return h(
      "div",
      { class: "controls", role: "toolbar", "aria-label": "Go through the run" },
      button("|◀", "To the start (Home)", () => this.jump(0), { id: "first" }),
      button("◁", "One step back (←)", () => this.jump(this.step - 1), { id: "back" }),
      this.playButton,
      button("▷", "One step on (→)", () => this.jump(this.step + 1), { id: "forward" }),
      button("▶|", "To the end (End)", () => this.jump(this.film?.last ?? 0), { id: "end" }),
      this.scrub,
      this.counter,
      this.speed,
      button("−", "Smaller (−)", () => this.diagram.zoom(1 / 1.4), {}),
      button("+", "Larger (+)", () => this.diagram.zoom(1.4), {}),
      button("⤢", "The whole run (0)", () => this.diagram.fitAll(), {}),
    );
  }

  /** Shows a run, from its start or from another of its steps. */
  load(film, { step = 0, tools = [], driving = null, keepView = false } = {}) {
    this.pause();
    this.film = film;
    this.driving = driving;
    this.inside.actions = driving ? driving.actions : null;
    this.element.classList.remove("blank");
    this.element.classList.toggle("driving", Boolean(driving));
    this.element.classList.toggle("plain", film.plain);
    this.title.textContent = film.title;
    this.about.textContent = film.about;
    this.about.hidden = !film.about;
    put(this.tools, tools);
    if (this.selected !== null && this.selected >= film.names.length) this.selected = null;
    this.scrub.max = String(film.last);
    if (!driving)
      this.speed.value = String(SPEEDS.find((speed) => speed >= 0.5 && film.end / speed < 45) ?? SPEEDS.at(-1));
    this.diagram.show(film, keepView);
    this.map.show(film);
    this.inside.show(film);
    this.code.show(film);
    this.drawLegend();
    this.arrange();
    this.to(step, true);
    this.element.dataset.loaded = String(Number(this.element.dataset.loaded ?? 0) + 1);
  }

  /** Shows no run, but a title and a sentence in place of one. */
  blank(title, about) {
    this.pause();
    this.film = this.driving = null;
    this.element.classList.add("blank");
    this.title.textContent = title;
    this.about.textContent = about;
    this.about.hidden = !about;
    put(this.tools);
  }

  drawLegend() {
    const kinds = this.film.kinds.map((name, kind) => {
      const swatch = h("i", { class: "swatch" });
      swatch.style.background = kindColour(kind);
      return h("span", {}, swatch, name);
    });
    const leads = this.film.election ? h("span", {}, h("i", { class: "swatch inside" }), "leads") : null;
    const phases =
      leads ?? ["inside", "waiting"].map((phase) => h("span", {}, h("i", { class: `swatch ${phase}` }), phase));
    put(
      this.legend,
      kinds,
      this.film.plain ? [] : phases,
      !this.film.hasTree &&
        this.film.states.some((states) => states.some(([, state]) => state.waits_for.length > 0)) &&
        h("span", { class: "waits-for" }, "⇢ waits for"),
    );
  }

  /** Shows one step. */
  to(step, quick) {
    this.step = Math.max(0, Math.min(this.film.last, step));
    this.now = this.step === this.film.last ? this.film.end : this.film.steps[this.step].at;
    this.show(quick);
  }

  jump(step) {
    if (!this.film) return;
    this.pause();
    this.to(step);
  }

  /** Shows a time. */
  go(time) {
    this.pause();
    this.to(this.film.stepAt(time));
  }

  select(site) {
    this.selected = this.selected === site && !this.driving ? null : site;
    this.show();
  }

  /** The highlighted site: the selected one, or that of the current step. */
  focus() {
    return this.selected ?? (this.film.hasQuorums ? this.film.steps[this.step].site : null);
  }

  show(quick) {
    const film = this.film,
      now = { step: this.step, now: this.now, selected: this.focus(), chosen: this.selected !== null };
    this.diagram.follow(this.now);
    this.diagram.at({ ...now, selected: this.selected });
    this.map.at(now, quick);
    this.inside.at({ step: this.step, selected: this.selected });
    this.code.at(this.step);
    if (this.film.steps[this.step].site !== null) this.inside.reveal(this.selected ?? this.film.steps[this.step].site);
    // The verdict shows the ending of a run that is given as sentences.
    const sentence = film.isStory && this.step === film.last ? "" : film.steps[this.step].say;
    const text = capital(sentence) || (this.step === 0 ? "Nothing has happened yet." : "");
    if (this.sentence.textContent !== text) this.sentence.textContent = text;
    this.scrub.value = String(this.step);
    this.scrub.setAttribute("aria-valuetext", `step ${this.step} of ${film.last}`);
    this.counter.textContent = `${this.step} / ${film.last}` + (film.isStory ? "" : `  ·  ${format(this.now)} T`);
    const label = film.names.length + " sites, step " + this.step + ": " + text;
    this.diagram.canvas.setAttribute("aria-label", "Space-time diagram. " + label);
    // While playing, the sentences are updated at a readable rate.
    if (!this.playing || performance.now() - (this.listedAt ?? 0) > 120) {
      this.listedAt = performance.now();
      this.listSteps();
    }
    this.judge();
    if (!this.gliding) this.glide();
    if (this.shownStep !== this.step || this.shownFilm !== film) this.driving?.stepped();
    [this.shownStep, this.shownFilm] = [this.step, film];
  }

  glide() {
    this.gliding = true;
    requestAnimationFrame(() => {
      if (this.map.glide()) this.glide();
      else this.gliding = false;
    });
  }

  /** Shows the sentences around this step. */
  listSteps() {
    const first = Math.max(1, this.step - STORY_WINDOW),
      last = Math.min(this.film.last, this.step + STORY_WINDOW / 2);
    if (this.listedFilm !== this.film || first !== this.listedFirst || last !== this.listedLast) {
      Object.assign(this, { listedFilm: this.film, listedFirst: first, listedLast: last });
      const lines = [];
      for (let step = first; step <= last; step += 1) {
        const go = () => this.jump(step);
        lines.push(
          h("li", { value: step, "data-step": String(step), onclick: go }, capital(this.film.steps[step].say)),
        );
      }
      put(this.story, lines);
    }
    for (const line of this.story.children) {
      const step = Number(line.dataset.step);
      line.className = step === this.step ? "current" : step > this.step ? "coming" : "";
      if (step === this.step) line.setAttribute("aria-current", "step");
      else line.removeAttribute("aria-current");
      if (step === this.step) this.story.scrollTop = line.offsetTop - this.story.clientHeight / 2;
    }
  }

  /** Shows the violations so far, and the result of the run. */
  judge() {
    const film = this.film,
      shown = film.wrong.filter(
        (found) => (found.at <= this.now + 1e-9 && this.step >= film.last) || found.at < this.now,
      );
    const ended = this.step === film.last;
    const good = ended && film.last > 0 && film.wrong.length === 0 && film.summary ? this.summary() : null;
    const cut = ended && film.cut_off ? "The run is longer, but only this part was recorded." : null;
    const ending = ended && film.ending ? film.ending : null;
    put(
      this.verdict,
      shown
        .slice(0, 3)
        .map((found) =>
          h("p", { class: "wrong" }, `✗ ${capital(found.breach)} at ${format(found.at)} T: ${found.what}`),
        ),
      ending && h("p", { class: "wrong" }, `✗ ${ending}`),
      good && h("p", { class: good.startsWith("✓") ? "fine" : "note" }, good),
      cut && h("p", { class: "note" }, cut),
    );
  }

  summary() {
    const waiting = this.film.names.some((_, site) => this.film.stateAt(site, this.film.last).phase === "Waiting");
    // Driven by hand, an election is not over while messages are under way.
    const underWay = this.film.election && this.film.held.length > 0;
    return waiting || underWay
      ? `${this.film.summary}; every property held so far.`
      : `✓ ${this.film.summary}; every property held.`;
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    if (!this.film) return;
    if (this.step === this.film.last) this.to(0, true);
    this.playing = true;
    this.playButton.textContent = "II";
    this.playButton.setAttribute("aria-label", "Pause (space)");
    let before = performance.now();
    const frame = (at) => {
      if (!this.playing) return;
      const passed = Math.min(0.1, (at - before) / 1000);
      before = at;
      this.now = Math.min(this.film.end, this.now + Math.max(0, passed) * Number(this.speed.value));
      this.step = Math.max(this.step, this.film.stepAt(this.now));
      this.show();
      if (this.step >= this.film.last) this.pause();
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  pause() {
    if (this.playing && this.film) this.listSteps();
    this.playing = false;
    this.playButton.textContent = "▶";
    this.playButton.setAttribute("aria-label", "Play (space)");
  }

  /** Repaints after a change of colours. */
  refresh() {
    if (!this.film) return;
    this.drawLegend();
    this.show();
  }

  key(event) {
    const typing = event.target.closest?.("input:not([type=range]), select, textarea, [contenteditable]");
    if (!this.film || typing || event.ctrlKey || event.metaKey || event.altKey || this.element.offsetParent === null)
      return;
    const acts = {
      " ": () => this.toggle(),
      ArrowRight: () => this.jump(this.step + 1),
      ArrowLeft: () => this.jump(this.step - 1),
      Home: () => this.jump(0),
      End: () => this.jump(this.film.last),
      "+": () => this.diagram.zoom(1.4),
      "=": () => this.diagram.zoom(1.4),
      "-": () => this.diagram.zoom(1 / 1.4),
      0: () => this.diagram.fitAll(),
      PageDown: () => this.jump(this.step + 10),
      PageUp: () => this.jump(this.step - 10),
    };
    const onButton = event.target.closest?.("button, [role=button], [role=tab]") && event.key === " ";
    if (!acts[event.key] || onButton) return;
    event.preventDefault();
    acts[event.key]();
  }
}

/** On a narrow screen, what to run is below the run. The address keeps its hash, which selects the tab. */
function toPanel(event) {
  event.preventDefault();
  document.getElementById("panel")?.scrollIntoView({ behavior: "smooth" });
}

/** A time without trailing zeros. */
function format(time) {
  return String(Math.round(time * 1000) / 1000);
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
