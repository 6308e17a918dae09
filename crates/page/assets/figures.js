// The tab "Figures": the named scenarios, playable.

import { get } from "./api.js";
import { button, h, put } from "./dom.js";
import { Film } from "./film.js";
import { packed, sharing } from "./share.js";

/** A list of items, with the selected one highlighted. */
export function picks(items, chosen, act) {
  return h(
    "ul",
    { class: "picks" },
    items.map((item) =>
      h(
        "li",
        {},
        h(
          "button",
          {
            type: "button",
            class: item.name === chosen ? "chosen" : "",
            "data-name": item.name,
            "aria-pressed": String(item.name === chosen),
            onclick: () => act(item.name),
          },
          h("strong", {}, item.title),
          h("small", {}, item.name),
        ),
      ),
    ),
  );
}

/** A button that continues a run by hand from the current step; only for runs whose messages are delivered by hand. */
export function takeOver(film, player) {
  // In other runs, exits and deliveries depend on time, and the events would have other effects at other
  // times.
  if (!film.byHand || !/^\s*cs:\s*by hand/m.test(film.scenario)) return [];
  const drive = () => {
    const until = player.now;
    const lines = film.scenario.split("\n").filter((line) => {
      const event = /^\s*([0-9.]+)\s/.exec(line);
      return !event || Number(event[1]) <= until;
    });
    location.hash = `#drive=${packed(lines.join("\n"))}`;
  };
  return [button("Drive from here", "Continue by hand from this step", drive, { id: "take-over" })];
}

export class FiguresTab {
  constructor(known, player) {
    Object.assign(this, { known, player });
    this.error = h("p", { class: "error", role: "alert" });
    this.note = h("p", { class: "note" });
    this.list = h("div", {});
    this.element = h(
      "div",
      {},
      h("p", { class: "idea" }, "The figures of the textbooks, as scenarios."),
      this.error,
      this.note,
      this.list,
    );
  }

  async open(name) {
    this.chosen = name || this.chosen || this.known.figures[0].name;
    const figure = this.known.figures.find((one) => one.name === this.chosen);
    put(
      this.list,
      picks(this.known.figures, this.chosen, (other) => {
        location.hash = `#figure=${other}`;
      }),
    );
    this.error.textContent = this.note.textContent = "";
    if (!figure) {
      this.error.textContent = `There is no figure '${this.chosen}'.`;
      return;
    }
    try {
      const film = new Film(await get("/api/play", { scenario: figure.text }));
      const notify = (text) => {
        this.note.textContent = text;
      };
      this.player.load(film, {
        tools: [...takeOver(film, this.player), ...sharing(film, `#figure=${figure.name}`, notify)],
      });
    } catch (error) {
      this.error.textContent = error.message;
    }
  }
}
