// The tab "Check": visits every reachable state of a small system, with live counts; a counterexample can be
// played.

import { follow, get } from "./api.js";
import { button, choice, field, h, put } from "./dom.js";
import { Film } from "./film.js";
import { takeOver } from "./figures.js";
import { algorithmChoice, isElection, readSettings, settingFields, showFieldsFor } from "./run.js";
import { packed, sharing } from "./share.js";

const PROPERTIES = {
  mutual_exclusion: "mutual exclusion",
  no_deadlock: "no deadlock",
  no_starvation: "no starvation",
  fence_monotone: "rising fences",
  invariant: "own invariants",
  timestamp_order: "timestamp order",
  message_bound: "message bound",
  highest_leads: "only the highest leads",
  one_leader: "one leader in each term",
  agreement: "agreement",
  termination: "comes to rest",
};
const VERDICTS = { holds: "✓ holds", violated: "✗ violated", unknown: "– not known" };
const FAULTS = [
  ["restarts", "Restarts"],
  ["losses", "Losses"],
  ["duplicates", "Duplicates"],
  ["forgets", "Forgets"],
  ["suspicions", "Suspicions"],
];

const REQUESTS = [
  ["1", "1"],
  ["2", "2"],
  ["3", "3"],
  ["", "for ever"],
];

const grouped = (number) => number.toLocaleString("en");

export class CheckTab {
  constructor(known, player) {
    Object.assign(this, { known, player });
    this.error = h("p", { class: "error", role: "alert" });
    this.note = h("p", { class: "note" });
    this.live = h("p", { class: "live", id: "live", "aria-live": "polite" });
    this.result = h("div", { class: "result", id: "check-result" });
    this.form = h("form", {
      class: "form",
      id: "check-form",
      onsubmit: (event) => {
        event.preventDefault();
        this.check();
      },
    });
    this.element = h("div", {}, this.form, this.live, this.error, this.result, this.note);
    this.fill();
  }

  fill() {
    const algorithm = algorithmChoice(this.known, "lamport");
    algorithm.append(
      h(
        "optgroup",
        { label: "wrong on purpose" },
        this.known.variants.map((one) => h("option", { value: one.name, title: one.story }, one.name)),
      ),
    );
    const settings = h("div", { class: "settings" });
    const showApplicable = () => showFieldsFor(this.form, isElection(this.known, algorithm.value));
    algorithm.addEventListener("change", () => {
      put(settings, settingFields(this.known, algorithm.value, []));
      showApplicable();
    });
    this.form.addEventListener("input", () => this.forget());
    const box = (name, text) => h("label", { class: "check" }, h("input", { type: "checkbox", name }), ` ${text}`);
    const number = (name, value, min, max) => h("input", { name, type: "number", value, min, max });
    this.start = h("button", { class: "primary", type: "submit", id: "check" }, "Check");
    this.stop = button("Stop", "Stop the search", () => this.asking?.abort(), { hidden: true, id: "stop" });
    put(
      this.form,
      h("p", { class: "idea" }, "Every order of messages, in a small system."),
      field("Algorithm", algorithm),
      settings,
      h(
        "div",
        { class: "two" },
        field("Sites", number("sites", 2, 1, 9)),
        h("div", { class: "of-elections" }, field("Spontaneous initiators", number("initiators", 1, 0, 9))),
        h("div", { class: "of-locks" }, field("Requests of each", choice("requests", REQUESTS, "1"))),
      ),
      field(
        "Channels",
        choice(
          "fifo",
          [
            ["", "as the algorithm assumes"],
            ["yes", "keep order"],
            ["no", "may reorder"],
          ],
          "no",
        ),
      ),
      h(
        "details",
        {},
        h("summary", {}, "Faults"),
        h(
          "div",
          { class: "two" },
          field("Crashes", number("crashes", 0, 0, 3)),
          FAULTS.map(([name, label]) => h("div", { class: "of-locks" }, field(label, number(name, 0, 0, 3)))),
        ),
        h(
          "div",
          { class: "of-elections" },
          box("partition", "the network may be cut in two"),
          box("short_timeouts", "a timeout may expire before the reply"),
        ),
      ),
      h("div", { class: "row" }, this.start, this.stop),
    );
    showApplicable();
  }

  /** Removes the verdict, which belongs to the former values of the form. */
  forget() {
    this.asking?.abort();
    this.asking = null;
    this.stop.hidden = true;
    this.live.textContent = this.error.textContent = this.note.textContent = "";
    put(this.result, h("p", { class: "note", id: "stale" }, "Press Check for a verdict on these values."));
    this.film = this.scenario = null;
    this.player.blank("No verdict yet", "");
  }

  read() {
    const data = new FormData(this.form),
      text = (name) => String(data.get(name) ?? "");
    const request = {
      algorithm: text("algorithm"),
      sites: Number(text("sites")),
      settings: readSettings(this.form),
      requests: text("requests") === "" ? null : Number(text("requests")),
      fifo: text("fifo") === "" ? null : text("fifo") === "yes",
    };
    request.crashes = Number(text("crashes") || 0);
    if (isElection(this.known, request.algorithm)) {
      request.requests = 1;
      request.initiators = Number(text("initiators") || 0);
      for (const name of ["partition", "short_timeouts"]) request[name] = data.get(name) !== null;
    } else for (const [name] of FAULTS) request[name] = Number(text(name) || 0);
    return request;
  }

  async open() {
    if (this.film) this.play(this.scenario);
    else if (this.blank) this.player.blank(...this.blank);
    else await this.check();
  }

  async check() {
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    this.error.textContent = this.note.textContent = this.live.textContent = "";
    put(this.result);
    this.film = this.scenario = this.blank = null;
    this.player.blank("Searching every state …", "");
    this.stop.hidden = false;
    try {
      const { answer } = await follow("/api/check", this.read(), asking.signal, (sofar) => {
        this.live.textContent = `${grouped(sofar.distinct)} states, ${grouped(sofar.generated)} steps, ${sofar.depth} deep`;
      });
      if (this.asking === asking) this.show(answer);
    } catch (error) {
      if (this.asking !== asking) return;
      if (error.name === "AbortError") this.live.textContent += " – stopped";
      else this.error.textContent = error.message;
    } finally {
      if (this.asking === asking) this.stop.hidden = true;
    }
  }

  show(answer) {
    const order = answer.fifo ? "FIFO channels" : "channels that may reorder";
    this.live.textContent = `${grouped(answer.distinct)} states, ${grouped(answer.generated)} steps, ${answer.depth} deep; ${order}`;
    const rows = Object.entries(answer.properties).map(([property, verdict]) =>
      h(
        "tr",
        { class: verdict },
        h("th", { scope: "row" }, PROPERTIES[property] ?? property),
        h("td", {}, verdict === "unknown" && answer.wrong ? "–" : (VERDICTS[verdict] ?? verdict)),
      ),
    );
    const complete = answer.complete
      ? null
      : h("p", { class: "note" }, "The limit was reached: deeper states were not visited.");
    const bypass = answer.scenario
      ? null
      : h(
          "p",
          {},
          answer.max_bypass === null
            ? "The number of entries of others during one wait is unbounded."
            : `At most ${answer.max_bypass} entries of others during one wait.`,
        );
    const wrong = answer.wrong
      ? h("p", { class: "wrong" }, `✗ ${answer.wrong}. The shortest run to it is on the right.`)
      : null;
    put(
      this.result,
      h("table", { class: "verdicts" }, h("tbody", {}, rows)),
      complete,
      wrong,
      bypass,
      answer.never_fired.length > 0 &&
        h("p", { class: "note" }, `Never occurred: ${answer.never_fired.join("; ")}`),
    );
    this.result.dataset.done = String(Number(this.result.dataset.done ?? 0) + 1);
    if (answer.scenario) this.play(answer.scenario);
    else {
      const system = answer.system ?? answer.algorithm;
      const about = answer.wrong ? "" : `No reachable state of ${system} violates a property.`;
      this.blank = [answer.wrong ? "No run was found" : "No counterexample", about];
      this.player.blank(...this.blank);
    }
  }

  async play(scenario) {
    try {
      this.scenario = scenario;
      this.film = new Film(await get("/api/play", { scenario }));
      const notify = (text) => {
        this.note.textContent = text;
      };
      this.player.load(this.film, {
        tools: [...takeOver(this.film, this.player), ...sharing(this.film, `#drive=${packed(scenario)}`, notify)],
      });
    } catch (error) {
      this.error.textContent = error.message;
    }
  }

  leave() {
    this.asking?.abort();
  }
}
