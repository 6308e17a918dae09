// The tab "Break it": known counterexamples, each with a shortest run.

import { get } from "./api.js";
import { h, put } from "./dom.js";
import { Film } from "./film.js";
import { picks, takeOver } from "./figures.js";
import { sharing } from "./share.js";

export class GalleryTab {
  constructor(known, player) {
    Object.assign(this, { known, player });
    this.error = h("p", { class: "error", role: "alert" });
    this.note = h("p", { class: "note" });
    this.list = h("div", {});
    this.why = h("div", { class: "why" });
    this.element = h(
      "div",
      {},
      h("p", { class: "idea" }, "Famous failures. The checker found these runs; none is shorter."),
      this.list,
      this.why,
      this.error,
      this.note,
    );
  }

  async open(name) {
    this.chosen = name || this.chosen || this.known.gallery[0].name;
    put(
      this.list,
      picks(
        this.known.gallery.map((one) => ({ name: one.name, title: one.title })),
        this.chosen,
        (other) => {
          location.hash = `#break=${other}`;
        },
      ),
    );
    this.error.textContent = this.note.textContent = "";
    try {
      const { failure, film: sent } = await get(`/api/gallery/${encodeURIComponent(this.chosen)}`);
      const film = new Film({ ...sent, title: failure.title, about: failure.story });
      put(this.why, h("p", {}, failure.why), h("code", { class: "command" }, failure.command));
      const notify = (text) => {
        this.note.textContent = text;
      };
      this.player.load(film, {
        tools: [...takeOver(film, this.player), ...sharing(film, `#break=${failure.name}`, notify)],
      });
    } catch (error) {
      this.error.textContent = error.message;
    }
  }
}
