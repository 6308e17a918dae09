// The tab "Compare": algorithms side by side, with the papers' formulas as dots.

import { follow } from "./api.js";
import { button, download, field, h, put } from "./dom.js";

const COLUMNS = [
  ["algorithm", "algorithm"],
  ["sites", "sites"],
  ["load", "load"],
  ["messages_per_entry", "messages"],
  ["formula", "formula"],
  ["formula_value", "="],
  ["sync_delay", "SD"],
  ["client_delay", "client"],
  ["throughput", "entries/T"],
  ["jain", "fairness"],
  ["max_bypass", "bypass"],
  ["busiest_site", "busiest"],
];

/** A number with at most two decimal places. */
function short(value) {
  return value === null || value === undefined
    ? "–"
    : typeof value === "number"
      ? String(Math.round(value * 100) / 100)
      : String(value);
}

export class CompareTab {
  constructor(known, wide) {
    Object.assign(this, { known, wide });
    this.error = h("p", { class: "error", role: "alert" });
    this.bar = h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Progress" });
    this.live = h("p", { class: "live", "aria-live": "polite" });
    this.result = h(
      "div",
      { class: "comparison", id: "comparison" },
      h("p", { class: "idea" }, "Choose algorithms, sizes and loads, and compare."),
    );
    this.form = h("form", {
      class: "form",
      id: "compare-form",
      onsubmit: (event) => {
        event.preventDefault();
        this.compare();
      },
    });
    this.element = h("div", {}, this.form, this.bar, this.live, this.error);
    this.fill();
  }

  fill() {
    const first = ["lamport", "ricart-agrawala", "maekawa", "suzuki-kasami", "raymond", "naimi-trehel"];
    const boxes = this.known.algorithms.map(({ about }) =>
      h(
        "label",
        { class: "check", title: about.idea },
        h("input", { type: "checkbox", name: "algorithms", value: about.slug, checked: first.includes(about.slug) }),
        ` ${about.slug}`,
      ),
    );
    this.stop = button("Stop", "Stop the comparison", () => this.asking?.abort(), { hidden: true });
    put(
      this.form,
      h(
        "div",
        { class: "two" },
        field("Sites", h("input", { name: "sites", value: "3, 7, 13, 31" })),
        field("Seeds", h("input", { name: "seeds", type: "number", value: 2, min: 1, max: 10 })),
      ),
      h(
        "div",
        { class: "two" },
        field("Loads", h("input", { name: "loads", value: "low, high" })),
        field("Time inside", h("input", { name: "cs", value: "0.1" })),
      ),
      h(
        "div",
        { class: "row" },
        h("button", { class: "primary", type: "submit", id: "compare" }, "Compare"),
        this.stop,
      ),
      h("fieldset", { class: "boxes" }, h("legend", {}, "Algorithms"), boxes),
    );
  }

  read() {
    const data = new FormData(this.form),
      list = (name) =>
        String(data.get(name))
          .split(",")
          .map((part) => part.trim())
          .filter(Boolean);
    return {
      algorithms: data.getAll("algorithms"),
      sites: list("sites").map(Number),
      loads: list("loads"),
      seeds: Number(data.get("seeds")),
      cs: String(data.get("cs")),
    };
  }

  open() {
    put(this.wide, this.result);
  }

  leave() {
    this.asking?.abort();
  }

  async compare() {
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    this.error.textContent = "";
    this.stop.hidden = this.bar.hidden = false;
    try {
      this.show(
        await follow("/api/compare", this.read(), asking.signal, ({ entries, of }) => {
          this.bar.value = of > 0 ? entries / of : 0;
          this.live.textContent = `${entries.toLocaleString("en")} of ${of.toLocaleString("en")} entries`;
        }),
      );
    } catch (error) {
      if (error.name !== "AbortError") this.error.textContent = error.message;
    } finally {
      if (this.asking === asking) this.stop.hidden = this.bar.hidden = true;
    }
  }

  show({ comparison, csv, plots }) {
    this.live.textContent = `${comparison.rows.length} rows.`;
    const pictures = plots.map((plot) => {
      const url = URL.createObjectURL(new Blob([plot.svg], { type: "image/svg+xml" }));
      return h(
        "figure",
        { class: "plot" },
        h("img", { src: url, alt: plot.caption }),
        h(
          "figcaption",
          {},
          button("SVG", `Save ${plot.name}.svg`, () => download(`${plot.name}.svg`, "image/svg+xml", plot.svg), {}),
        ),
      );
    });
    put(
      this.result,
      h("div", { class: "plots" }, pictures),
      h(
        "div",
        { class: "row" },
        h("h3", {}, "Measured"),
        button("CSV", "Save the table for a spreadsheet", () => download("comparison.csv", "text/csv", csv), {
          id: "csv",
        }),
      ),
      h("div", { class: "tablebox" }, this.table(comparison)),
      h(
        "ol",
        { class: "footnotes" },
        comparison.footnotes.map((note) => h("li", { value: note.number }, note.text ?? "")),
      ),
    );
    this.result.dataset.done = String(Number(this.result.dataset.done ?? 0) + 1);
  }

  table({ rows }) {
    const head = COLUMNS.map(([, title]) => h("th", { scope: "col" }, title));
    const cells = (row) => COLUMNS.map(([name]) => h("td", {}, short(row[name])));
    const trouble = (row) => [
      ...COLUMNS.slice(0, 3).map(([name]) => h("td", {}, short(row[name]))),
      h("td", { class: "wrong", colSpan: COLUMNS.length - 3 }, row.trouble.what ?? "no figures"),
    ];
    const body = rows.map((row) => h("tr", {}, row.trouble ? trouble(row) : cells(row)));
    return h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
  }
}
