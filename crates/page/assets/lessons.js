// The tab "Lessons": why consensus is impossible with one crash, and which events of a run happened before which.

import { get } from "./api.js";
import { choice, field, h, put } from "./dom.js";

const LESSONS = [
  ["flp", "Consensus is impossible"],
  ["causality", "Happened-before"],
];
const STEPS = 12;

export class LessonsTab {
  constructor(known, wide) {
    Object.assign(this, { known, wide });
    this.error = h("p", { class: "error", role: "alert" });
    this.form = h("div", {});
    this.result = h("div", { class: "lesson", id: "lesson", "aria-live": "polite" });
    this.lessons = choice("lesson", LESSONS, "flp");
    this.lessons.addEventListener("change", () => {
      location.hash = `#lessons=${this.lessons.value}`;
    });
    this.protocol = choice(
      "protocol",
      [
        ["rounds", "rounds: one crash does not block it"],
        ["wait-for-all", "wait-for-all: one crash blocks it"],
      ],
      "rounds",
    );
    this.protocol.addEventListener("change", () => this.consensus(STEPS));
    this.figure = choice(
      "figure",
      known.figures.map((figure) => [figure.name, figure.title]),
      "lamport-two-requests",
    );
    this.figure.addEventListener("change", () => this.newFigure());
    this.event = h("select", { name: "event" });
    this.event.addEventListener("change", () => this.causality());
    this.cut = h("input", { name: "cut", placeholder: "S1=2,S2=1", autocomplete: "off" });
    this.element = h(
      "div",
      {},
      h("div", { class: "form" }, field("Lesson", this.lessons)),
      this.form,
      this.error,
    );
  }

  async open(link) {
    const lesson = LESSONS.some(([name]) => name === link) ? link : "flp";
    this.lessons.value = lesson;
    put(this.wide, this.result);
    if (lesson === "flp") {
      put(
        this.form,
        h(
          "div",
          { class: "form" },
          h("p", { class: "idea" }, "No protocol is safe, tolerates one crash and ends in every run. Every claim is computed."),
          field("Protocol", this.protocol),
        ),
      );
      await this.consensus(STEPS);
    } else {
      const form = h(
        "form",
        {
          class: "form",
          onsubmit: (event) => {
            event.preventDefault();
            this.causality();
          },
        },
        h("p", { class: "idea" }, "An event happened before another if a path of events of one site and of messages leads to it."),
        field("Run", this.figure),
        field("Past and future of", this.event),
        field("Cut", this.cut, "The number of events of each site before the cut"),
        h("button", { type: "submit", class: "primary", id: "judge" }, "Judge the cut"),
      );
      put(this.form, form);
      await this.newFigure();
    }
  }

  /** Asks for a lesson; shows the error if it is rejected. A later request replaces an earlier one. */
  async ask(path, request) {
    const number = (this.asked ?? 0) + 1;
    this.asked = number;
    this.error.textContent = "";
    try {
      const lesson = await get(path, request);
      return this.asked === number ? lesson : null;
    } catch (error) {
      if (this.asked === number) this.error.textContent = error.message;
      return null;
    }
  }

  async consensus(steps) {
    const lesson = await this.ask("/api/flp", { protocol: this.protocol.value, steps });
    if (!lesson) return;
    const section = ({ title, lines }) => [h("h3", {}, title), h("ul", {}, lines.map((line) => h("li", {}, line)))];
    const more = () => this.consensus(steps + STEPS);
    const run = lesson.inputs
      ? [
          h("h3", {}, `A run without a decision, with the inputs ${lesson.inputs}`),
          h("ol", { class: "adversary" }, lesson.steps.map(step)),
          h("button", { type: "button", class: "primary", id: "more-steps", onclick: more }, "Go on without a decision"),
        ]
      : [h("p", { class: "note" }, "No configuration is bivalent: only a crash can keep this protocol from deciding.")];
    put(this.result, lesson.sections.map(section).flat(), run);
    this.result.dataset.shown = `flp ${this.protocol.value} ${lesson.steps.length}`;
  }

  async newFigure() {
    put(this.event, h("option", { value: "" }, "no event"));
    this.cut.value = "";
    await this.causality();
  }

  async causality() {
    const name = this.figure.value;
    const scenario = this.known.figures.find((figure) => figure.name === name).text;
    const [event, cut] = [this.event.value, this.cut.value];
    const lesson = await this.ask("/api/causality", { scenario, event, cut });
    if (!lesson) return;
    const events = ["", ...lesson.events];
    put(
      this.event,
      events.map((known) => h("option", { value: known, selected: known === event }, known || "no event")),
    );
    if (this.picture) URL.revokeObjectURL(this.picture);
    this.picture = URL.createObjectURL(new Blob([lesson.svg], { type: "image/svg+xml" }));
    const { relations } = lesson;
    put(
      this.result,
      h("h3", {}, lesson.title),
      h("img", { class: "history", src: this.picture, alt: `The space-time diagram of: ${lesson.title}` }),
      relations && [
        h("p", {}, relations.say),
        h("p", {}, `Happened before it: ${relations.before}`),
        h("p", {}, `Happened after it: ${relations.after}`),
        h("p", {}, `Concurrent with it: ${relations.concurrent}`),
      ],
      lesson.cut && [
        h("p", { class: lesson.cut.consistent ? "fine" : "wrong", id: "cut-verdict" }, lesson.cut.sentences[0]),
        h("ul", {}, lesson.cut.sentences.slice(1).map((line) => h("li", {}, line.trim()))),
      ],
      h("h3", {}, "Clocks"),
      h("ul", {}, lesson.clocks.map((line) => h("li", {}, line))),
    );
    this.result.dataset.shown = `causality ${name} ${event} ${cut}`;
  }
}

function step({ turn, event, valence, lemma, why, states, under_way, same_as }) {
  return h(
    "li",
    {},
    h("strong", {}, `${event} → ${valence}`),
    h("p", {}, `Turn of ${turn}, lemma ${lemma}: ${why}`),
    h("p", { class: "note" }, states.map((state, place) => `S${place + 1}: ${state}`).join(" · ")),
    h("p", { class: "note" }, `Under way: ${under_way.join(", ") || "nothing"}`),
    same_as !== null &&
      h("p", { class: "fine" }, `The configuration after step ${same_as} again, apart from the numbers of rounds.`),
  );
}
