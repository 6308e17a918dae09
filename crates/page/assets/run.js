// The tab "Run": an algorithm with its flags, in the simulator.

import { get } from "./api.js";
import { field, h, put } from "./dom.js";
import { Film } from "./film.js";
import { DELAYS, DETECTORS, LOADS, menu } from "./menus.js";
import { packed, sharing, unpacked } from "./share.js";

export const PLAIN = {
  algorithm: "ricart-agrawala",
  sites: 4,
  settings: [],
  load: "high",
  entries: 12,
  delay: "constant:1",
  cs: "1",
  fifo: true,
  loss: "",
  duplicate: "",
  crash: [],
  recover: [],
  pause: [],
  partition: [],
  detector: "none",
  holder: "",
  readers: "",
  initiators: ["1"],
  seed: 1,
};

/** A select element of the algorithms by family, and of the elections. */
export function algorithmChoice(known, chosen) {
  const select = h("select", { name: "algorithm", "aria-label": "Algorithm" });
  for (const family of ["coordinator", "permission", "token", "quorum"]) {
    const members = known.algorithms.filter(({ about }) => about.family === family);
    select.append(
      h(
        "optgroup",
        { label: family },
        members.map(({ about }) => h("option", { value: about.slug, selected: about.slug === chosen }, about.title)),
      ),
    );
  }
  select.append(
    h(
      "optgroup",
      { label: "elections" },
      known.elections.map(({ slug, title }) => h("option", { value: slug, selected: slug === chosen }, title)),
    ),
  );
  return select;
}

/** Whether a name is that of an election, or of a wrong variant of one. */
export function isElection(known, name) {
  const variant = known.variants.find((one) => one.name === name);
  return known.elections.some(({ slug }) => slug === name) || Boolean(variant?.election);
}

/** Shows the fields of a form that apply to the algorithm: those of locks, or those of elections. */
export function showFieldsFor(form, election) {
  for (const part of form.querySelectorAll(".of-locks")) part.hidden = election;
  for (const part of form.querySelectorAll(".of-elections")) part.hidden = !election;
}

function aboutOf(known, slug) {
  return (
    known.algorithms.find((one) => one.about.slug === slug)?.about ?? known.elections.find((one) => one.slug === slug)
  );
}

/** Fields for the settings of an algorithm: quorums, trees, k. */
export function settingFields(known, slug, given) {
  const about = aboutOf(known, slug);
  return (about?.settings ?? []).map((setting) => {
    const value = given.find((pair) => pair.startsWith(`${setting.name}=`))?.slice(setting.name.length + 1) ?? "";
    const input = h("input", { name: `set:${setting.name}`, placeholder: setting.default, value });
    return field(setting.name, input, `${setting.help}: ${setting.values}`);
  });
}

export function readSettings(form) {
  const inputs = [...form.querySelectorAll("input[name^='set:']")].filter((input) => input.value.trim() !== "");
  return inputs.map((input) => `${input.name.slice(4)}=${input.value.trim()}`);
}

const listOf = (text) => text.split(/[;\s]+/).filter((part) => part !== "");

export class RunTab {
  constructor(known, player) {
    Object.assign(this, { known, player, parameters: { ...PLAIN } });
    this.error = h("p", { class: "error", role: "alert" });
    this.note = h("p", { class: "note" });
    this.command = h("code", { class: "command" });
    this.form = h("form", {
      class: "form",
      id: "run-form",
      onsubmit: (event) => {
        event.preventDefault();
        this.run();
      },
    });
    this.element = h("div", {}, this.form, this.error, this.note, this.command);
    this.fill();
  }

  fill() {
    const { parameters } = this;
    const text = (name, value, more) => h("input", { name, value, ...more });
    const number = (name, value, min, max) => h("input", { name, type: "number", value, min, max, required: true });
    const algorithm = algorithmChoice(this.known, parameters.algorithm);
    const settings = h(
      "div",
      { class: "settings" },
      settingFields(this.known, parameters.algorithm, parameters.settings),
    );
    const idea = h("p", { class: "idea" });
    const showApplicable = () => {
      const about = aboutOf(this.known, algorithm.value);
      const shares = this.known.algorithms.find((one) => one.about.slug === algorithm.value)?.shares;
      showFieldsFor(this.form, isElection(this.known, algorithm.value));
      put(idea, about.idea, h("small", { class: "paper" }, about.paper));
      readers.hidden = !shares;
    };
    const readers = field("Share of readers", text("readers", parameters.readers, { placeholder: "0" }));
    algorithm.addEventListener("change", () => {
      put(settings, settingFields(this.known, algorithm.value, []));
      showApplicable();
      this.run();
    });
    put(
      this.form,
      field("Algorithm", algorithm),
      idea,
      h(
        "div",
        { class: "two" },
        field("Sites", number("sites", parameters.sites, 1, 60)),
        field("Seed", number("seed", parameters.seed, 0, 1e9)),
      ),
      settings,
      h("div", { class: "of-locks" }, menu("Load", "load", LOADS, parameters.load)),
      menu("Delay of messages", "delay", DELAYS, parameters.delay),
      h(
        "div",
        { class: "two of-locks" },
        field("Entries", number("entries", parameters.entries, 1, 20000)),
        field("Time inside", text("cs", parameters.cs, { title: "A time in T, or a distribution: uniform:0.5..1.5" })),
      ),
      h(
        "div",
        { class: "of-elections" },
        field(
          "Starts an election",
          text("initiators", parameters.initiators.join("; "), { placeholder: "1; 2@3" }),
          "SITE, at the first crash, or SITE@TIME; …",
        ),
      ),
      readers,
      h("button", { class: "primary", type: "submit", id: "run" }, "Run"),
      h(
        "details",
        { open: this.hasFaults() },
        h("summary", {}, "Faults"),
        h(
          "label",
          { class: "check" },
          h("input", { type: "checkbox", name: "non_fifo", checked: !parameters.fifo }),
          " messages may overtake",
        ),
        h(
          "div",
          { class: "two" },
          field("Loss", text("loss", parameters.loss, { placeholder: "0" })),
          field("Duplicates", text("duplicate", parameters.duplicate, { placeholder: "0" })),
        ),
        field("Crashes", text("crash", parameters.crash.join("; "), { placeholder: "2@5" }), "SITE@TIME; …"),
        field("Recoveries", text("recover", parameters.recover.join("; "), { placeholder: "2@12" })),
        field("Pauses", text("pause", parameters.pause.join("; "), { placeholder: "3@4..9" })),
        field("Partitions", text("partition", parameters.partition.join("; "), { placeholder: "1,2|3@5..15" })),
        menu("Failure detector", "detector", DETECTORS, parameters.detector),
        h(
          "div",
          { class: "of-locks" },
          field("Inside at the start", text("holder", parameters.holder, { placeholder: "none" })),
        ),
      ),
    );
    showApplicable();
  }

  hasFaults() {
    const { crash, recover, pause, partition, loss, duplicate, fifo } = this.parameters;
    return (
      [crash, recover, pause, partition].some((list) => list.length > 0) || loss !== "" || duplicate !== "" || !fifo
    );
  }

  read() {
    const data = new FormData(this.form),
      text = (name) => String(data.get(name) ?? "").trim();
    return {
      algorithm: text("algorithm"),
      sites: Number(text("sites")),
      settings: readSettings(this.form),
      load: text("load"),
      entries: Number(text("entries")),
      delay: text("delay"),
      cs: text("cs"),
      fifo: data.get("non_fifo") === null,
      loss: text("loss"),
      duplicate: text("duplicate"),
      crash: listOf(text("crash")),
      recover: listOf(text("recover")),
      initiators: listOf(text("initiators")),
      pause: listOf(text("pause")),
      partition: listOf(text("partition")),
      detector: text("detector"),
      holder: text("holder"),
      readers: this.form.querySelector("[name=readers]").closest("label").hidden ? "" : text("readers"),
      seed: Number(text("seed")),
    };
  }

  /** Shows the run of a link, or the previous one. */
  async open(link) {
    if (link) {
      this.parameters = { ...PLAIN, ...JSON.parse(unpacked(link)) };
      this.fill();
    }
    if (link || !this.film) await this.run();
    else this.show();
  }

  async run() {
    this.asking?.abort();
    this.asking = new AbortController();
    this.error.textContent = "";
    this.parameters = this.read();
    this.element.classList.add("busy");
    try {
      this.film = new Film(await get("/api/run", this.parameters, this.asking.signal));
      this.show();
    } catch (error) {
      if (error.name !== "AbortError") this.error.textContent = error.message;
    } finally {
      this.element.classList.remove("busy");
    }
  }

  show() {
    const hash = `#run=${packed(JSON.stringify(this.parameters))}`;
    this.command.textContent = this.film.command;
    this.note.textContent = "";
    // The first view is the finished run, with all its colours; the space bar plays it from the start.
    this.player.load(this.film, {
      step: this.film.last,
      tools: sharing(this.film, hash, (message) => {
        this.note.textContent = message;
      }),
    });
  }
}
