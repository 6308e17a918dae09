// The state of every site at an instant, with the paper's names.

import { h, put } from "./dom.js";

const PHASES = { Idle: "idle", Waiting: "waiting", Inside: "inside" };

function badge(state, election) {
  if (!state.up) return h("span", { class: "badge crashed" }, "crashed");
  if (state.paused) return h("span", { class: "badge paused" }, "paused");
  if (election) return state.phase === "Inside" ? h("span", { class: "badge inside" }, "leads") : null;
  const how = state.mode === "Shared" && state.phase !== "Idle" ? ", shared" : "";
  return h("span", { class: `badge ${PHASES[state.phase]}` }, PHASES[state.phase] + how);
}

export class Inside {
  /** `handlers.select` receives the selected site; `actions` creates the buttons of a site in a run driven by hand. */
  constructor(handlers) {
    this.handlers = handlers;
    this.actions = null;
    this.element = h("div", { class: "cards", role: "list", "aria-label": "State of every site" });
  }

  show(film) {
    this.film = film;
    this.cards = film.names.map((name, site) => {
      const body = h("dl", {}),
        head = h("header", {}),
        foot = h("footer", {});
      const card = h(
        "article",
        { class: "card", role: "listitem", "data-site": name, onclick: () => this.handlers.select(site) },
        head,
        body,
        foot,
      );
      return { card, head, body, foot, state: null };
    });
    put(
      this.element,
      this.cards.map(({ card }) => card),
    );
    this.element.classList.toggle("many", film.names.length > 12);
  }

  at({ step, selected }) {
    const film = this.film,
      here = film.steps[step].site;
    this.cards.forEach((parts, site) => {
      const state = film.stateAt(site, step);
      const before = step > 0 ? film.stateAt(site, step - 1) : state;
      parts.card.classList.toggle("selected", site === selected);
      parts.card.classList.toggle("here", site === here);
      if (parts.state !== state || parts.before !== before) this.fill(parts, site, state, before);
    });
  }

  fill(parts, site, state, before) {
    Object.assign(parts, { state, before });
    const token = state.tokens > 0 ? h("span", { class: "token", title: "has the token" }, "◆ token") : null;
    put(parts.head, h("strong", {}, this.film.names[site]), badge(state, this.film.election), token);
    const old = new Map(before.fields.map((field) => [field.name, field.value]));
    const rows = state.fields
      .filter((field) => field.name !== "state" || this.film.election)
      .flatMap(({ name, value }) => {
        const changed = before !== state && old.get(name) !== value;
        return [h("dt", {}, name), h("dd", { class: changed ? "changed" : null }, value === "" ? "–" : value)];
      });
    put(parts.body, rows);
    put(parts.foot, this.actions ? this.actions(site, state) : []);
  }

  /** Scrolls to a site's card. */
  reveal(site) {
    const card = this.cards?.[site]?.card;
    if (!card) return;
    const box = this.element;
    if (card.offsetTop < box.scrollTop || card.offsetTop + card.offsetHeight > box.scrollTop + box.clientHeight) {
      box.scrollTop = card.offsetTop - 4;
    }
  }
}
