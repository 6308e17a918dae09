// The tab "Drive by hand": a scenario that grows by a line with each click, and is replayed from its start
// each time.

import { get } from "./api.js";
import { button, choice, field, h, put } from "./dom.js";
import { Film } from "./film.js";
import { algorithmChoice, isElection, readSettings, settingFields, showFieldsFor } from "./run.js";
import { packed, sharing, unpacked } from "./share.js";

const PLAIN = { algorithm: "maekawa-basic", sites: 3, settings: [], fifo: true, holder: "" };

/** A parsed scenario: its headings verbatim, and its events without their times. */
function parse(text) {
  const heads = [],
    acts = [];
  for (const line of text.split("\n")) {
    const plain = line.split("#")[0].trim();
    const event = /^[0-9.]+\s+(.*)$/.exec(plain);
    if (event) acts.push(event[1]);
    else if (plain !== "") heads.push(plain);
  }
  return { heads, acts };
}

function headingOf(heads, name) {
  return heads.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).trim());
}

export class DriveTab {
  constructor(known, player) {
    Object.assign(this, { known, player, acts: [], undone: [], heads: [] });
    this.error = h("p", { class: "error", role: "alert" });
    this.note = h("p", { class: "note" });
    this.flights = h("ul", { class: "flights", id: "flights", "aria-label": "Messages under way" });
    this.pair = h("div", { class: "pair" });
    this.undoButton = button("Undo", "Take the last step back (Ctrl+Z)", () => this.undo(), { id: "undo" });
    this.redoButton = button("Redo", "Take it again (Ctrl+Y)", () => this.redo(), { id: "redo" });
    this.form = h("form", {
      class: "form",
      id: "drive-form",
      onsubmit: (event) => {
        event.preventDefault();
        this.begin();
      },
    });
    this.setup = h("details", { class: "setup" }, h("summary", {}, "System"), this.form);
    this.element = h(
      "div",
      {},
      this.setup,
      h(
        "div",
        { class: "row" },
        this.undoButton,
        this.redoButton,
        button("Start over", "Back to the start", () => this.startOver(), { id: "start-over" }),
      ),
      this.error,
      h("h3", {}, "Under way"),
      this.flights,
      h("h3", {}, "Between two sites"),
      this.pair,
      this.note,
    );
    document.addEventListener("keydown", (event) => {
      if (!this.shown || !(event.ctrlKey || event.metaKey)) return;
      if (event.key === "z") this.undo();
      else if (event.key === "y") this.redo();
    });
    this.fill(PLAIN);
    this.heads = this.headsOf(PLAIN);
  }

  fill(given) {
    const algorithm = algorithmChoice(this.known, given.algorithm);
    const settings = h("div", { class: "settings" }, settingFields(this.known, given.algorithm, given.settings));
    const showApplicable = () => showFieldsFor(this.form, isElection(this.known, algorithm.value));
    algorithm.addEventListener("change", () => {
      put(settings, settingFields(this.known, algorithm.value, []));
      showApplicable();
    });
    put(
      this.form,
      field("Algorithm", algorithm),
      h(
        "div",
        { class: "two" },
        field("Sites", h("input", { name: "sites", type: "number", value: given.sites, min: 1, max: 60 })),
        h(
          "div",
          { class: "of-locks" },
          field("Inside at the start", h("input", { name: "holder", value: given.holder, placeholder: "none" })),
        ),
      ),
      settings,
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", name: "non_fifo", checked: !given.fifo }),
        " messages may overtake",
      ),
      h("button", { class: "primary", type: "submit", id: "begin" }, "Start"),
    );
    showApplicable();
  }

  headsOf({ algorithm, sites, settings, fifo, holder }) {
    const election = isElection(this.known, algorithm);
    return [
      `title: ${algorithm}, driven by hand`,
      `${election ? "election" : "algorithm"}: ${algorithm}`,
      `sites: ${sites}`,
      ...settings.map((pair) => `set: ${pair}`),
      `fifo: ${fifo ? "yes" : "no"}`,
      ...(election ? [] : ["cs: by hand"]),
      "delivery: by hand",
      "timers: by hand",
      ...(holder && !election ? [`holder: ${holder}`] : []),
    ];
  }

  /** Starts a new run with the values of the form. */
  begin() {
    const data = new FormData(this.form);
    const system = {
      algorithm: String(data.get("algorithm")),
      sites: Number(data.get("sites")),
      settings: readSettings(this.form),
      fifo: data.get("non_fifo") === null,
      holder: String(data.get("holder")).trim(),
    };
    const before = [this.heads, this.acts, this.undone];
    [this.heads, this.acts, this.undone] = [this.headsOf(system), [], []];
    this.play().then((fine) => {
      if (!fine) [this.heads, this.acts, this.undone] = before;
    });
  }

  startOver() {
    this.undone = [];
    this.acts = [];
    this.play();
  }

  /** The scenario so far: one event at each time. */
  text() {
    return `${this.heads.join("\n")}\n\n${this.acts.map((act, index) => `${index + 1} ${act}`).join("\n")}\n`;
  }

  async open(link) {
    if (link) {
      const { heads, acts } = parse(unpacked(link));
      Object.assign(this, { heads, acts, undone: [] });
      this.fill({
        algorithm: headingOf(heads, "algorithm")[0] ?? headingOf(heads, "election")[0],
        sites: headingOf(heads, "sites")[0],
        settings: headingOf(heads, "set"),
        fifo: headingOf(heads, "fifo")[0] !== "no",
        holder: headingOf(heads, "holder")[0] ?? "",
      });
    }
    this.shown = true;
    await this.play();
  }

  leave() {
    this.shown = false;
  }

  /** Appends an event. If the user has stepped back, the later events are removed. */
  async act(line) {
    const before = [this.acts, this.undone];
    const happened = this.player.step < this.film.last ? Math.floor(this.player.now) : this.acts.length;
    [this.acts, this.undone] = [[...this.acts.slice(0, happened), line], []];
    if (!(await this.play())) [this.acts, this.undone] = before;
  }

  undo() {
    if (this.acts.length === 0) return;
    this.undone.push(this.acts.pop());
    this.play();
  }

  redo() {
    if (this.undone.length === 0) return;
    this.acts.push(this.undone.pop());
    this.play();
  }

  /** Replays the scenario so far; returns whether that succeeded. */
  async play() {
    this.error.textContent = this.note.textContent = "";
    this.asked = (this.asked ?? 0) + 1;
    const turn = this.asked;
    try {
      const sent = await get("/api/play", { scenario: this.text() });
      if (turn !== this.asked) return true;
      const same = this.film?.names.length === sent.recording.names.length && this.acts.length > 0;
      this.film = new Film(sent);
      this.show(same);
      return true;
    } catch (error) {
      this.error.textContent = error.message;
      return false;
    }
  }

  show(keepView) {
    if (!this.shown) return;
    const film = this.film,
      hash = () => `#drive=${packed(this.text())}`;
    history.replaceState(null, "", this.acts.length > 0 ? hash() : "#drive");
    const driving = {
      actions: (site, state) => this.actions(site, state),
      site: (site) => this.main(site),
      message: (message) => this.deliver(message),
      stepped: () => this.listFlights(),
    };
    film.about =
      film.about ||
      (film.election
        ? "Click a site to let it miss the leader, a message to deliver it; crash the leader below its state."
        : "Click a site to request or to leave, a message to deliver it.");
    this.player.load(film, {
      step: film.last,
      driving,
      keepView,
      tools: sharing(film, hash(), (message) => {
        this.note.textContent = message;
      }),
    });
    this.undoButton.disabled = this.acts.length === 0;
    this.redoButton.disabled = this.undone.length === 0;
    this.listFlights();
    this.listPairs();
  }

  /** The possible actions of a site. */
  actions(site, state) {
    const name = this.film.names[site],
      asks = site < this.film.sites;
    const act = (label, line, more) =>
      h(
        "button",
        {
          type: "button",
          "data-act": line,
          ...more,
          onclick: (event) => {
            event.stopPropagation();
            this.act(line);
          },
        },
        label,
      );
    if (!state.up) return [act("recover", `recover ${name}`)];
    const timers = Array.from({ length: state.timers }, (_, which) =>
      act(`timer ${which + 1}`, `${name} wakes ${which + 1}`),
    );
    if (this.film.election) {
      const down = this.film.names.filter((_, other) => !this.film.stateAt(other, this.player.step).up);
      return [
        act("campaign", `${name} campaigns`, { class: "primary" }),
        ...timers,
        ...down.map((other) => act(`suspect ${other}`, `${name} suspects ${other}`)),
        act("crash", `crash ${name}`),
      ];
    }
    const shares = this.known.algorithms.find(
      ({ about }) => about.slug === headingOf(this.heads, "algorithm")[0],
    )?.shares;
    return [
      asks && state.phase === "Idle" && act("request", `${name} requests`, { class: "primary" }),
      asks && state.phase === "Idle" && shares && act("request shared", `${name} requests shared`),
      state.phase === "Inside" && act("exit", `${name} exits`, { class: "primary" }),
      ...timers,
      act("crash", `crash ${name}`),
    ];
  }

  /** Performs the action of a click on a site. */
  main(site) {
    const state = this.film.stateAt(site, this.player.step),
      name = this.film.names[site];
    if (!state.up) this.act(`recover ${name}`);
    else if (this.film.election) this.act(`${name} campaigns`);
    else if (state.phase === "Inside") this.act(`${name} exits`);
    else if (state.phase === "Idle" && site < this.film.sites) this.act(`${name} requests`);
  }

  which({ from, to, text }) {
    return `${this.film.names[from]}>${this.film.names[to]} ${text}`;
  }

  /** Whether an earlier message of the same FIFO channel has to be delivered first. */
  waits(held, place) {
    if (headingOf(this.heads, "fifo")[0] === "no") return false;
    const { from, to } = held[place];
    return held.slice(0, place).some((other) => other.from === from && other.to === to);
  }

  /** The messages under way at the displayed step. */
  held() {
    return this.player.step < this.film.last ? this.film.underWay(this.player.step) : this.film.held;
  }

  deliver(message) {
    const held = this.held();
    const place = held.findIndex(
      ({ from, to, text }) => from === message.from && to === message.to && text === message.text,
    );
    if (place < 0) return;
    if (this.waits(held, place))
      this.error.textContent = "An earlier message of this channel has to be delivered first: channels are FIFO here.";
    else this.act(`deliver ${this.which(message)}`);
  }

  listFlights() {
    const { film } = this,
      held = this.held();
    put(
      this.flights,
      held.map((message, place) => {
        const waits = this.waits(held, place),
          which = this.which(message);
        const why = waits ? "an earlier message of this channel has to be delivered first" : `Deliver ${message.text}`;
        return h(
          "li",
          {},
          h(
            "button",
            {
              type: "button",
              class: "deliver",
              disabled: waits,
              title: why,
              "data-act": `deliver ${which}`,
              "aria-label": `Deliver ${message.text} from ${film.names[message.from]} to ${film.names[message.to]}`,
              onclick: () => this.act(`deliver ${which}`),
            },
            h("b", {}, message.text),
            ` ${film.names[message.from]} → ${film.names[message.to]}`,
          ),
          button(
            "✕",
            `Lose ${message.text} from ${film.names[message.from]} to ${film.names[message.to]}`,
            () => this.act(`lose ${which}`),
            { "data-act": `lose ${which}`, class: "quiet" },
          ),
        );
      }),
      held.length === 0 && h("li", { class: "none" }, "none"),
    );
  }

  /** The possible actions on a pair of sites: cut, heal, suspect. */
  listPairs() {
    const names = this.film.names.map((name, site) => [String(site + 1), name]);
    const [a, b] = [choice("one site", names, this.one ?? "1"), choice("another site", names, this.other ?? "2")];
    const both = (line) => () => {
      [this.one, this.other] = [a.value, b.value];
      if (a.value === b.value) this.error.textContent = "Choose two different sites.";
      else this.act(line(a.value, b.value));
    };
    const name = (number) => this.film.names[Number(number) - 1];
    put(
      this.pair,
      h("div", { class: "row" }, a, b),
      h(
        "div",
        { class: "row" },
        button(
          "cut",
          "Cut the link between them",
          both((x, y) => `cut ${x}|${y}`),
          { id: "cut" },
        ),
        button(
          "heal",
          "Heal the link",
          both((x, y) => `heal ${x}|${y}`),
          { id: "heal" },
        ),
        button(
          "suspect",
          "The first suspects the second",
          both((x, y) => `${name(x)} suspects ${name(y)}`),
          { id: "suspect" },
        ),
      ),
    );
  }
}
