// The page: its tabs, and the state in its address.

import { get } from "./api.js";
import { CheckTab } from "./check.js";
import { isDark } from "./colours.js";
import { CompareTab } from "./compare.js";
import { h, put } from "./dom.js";
import { DriveTab } from "./drive.js";
import { FiguresTab } from "./figures.js";
import { GalleryTab } from "./gallery.js";
import { LessonsTab } from "./lessons.js";
import { Player } from "./player.js";
import { QuizTab } from "./quiz.js";
import { RunTab } from "./run.js";

const TABS = [
  ["run", "Run"],
  ["drive", "Drive by hand"],
  ["figure", "Figures"],
  ["break", "Break it"],
  ["compare", "Compare"],
  ["check", "Check"],
  ["quiz", "Quiz"],
  ["lessons", "Lessons"],
];
const HINT = [
  "Press space to play, ← and → to step; scroll to zoom, drag to pan. Every site's state is below the diagram.",
  "Drive by hand: click a site to request or to leave, a message to deliver it. Undo any step; the link contains the whole run.",
  "Break it shows the runs behind famous mistakes; Check searches for more.",
];

const byId = (id) => document.getElementById(id);

function showHint() {
  if (localStorage.getItem("hint") === "seen") return;
  const close = () => {
    localStorage.setItem("hint", "seen");
    byId("hint").hidden = true;
  };
  put(
    byId("hint"),
    h(
      "div",
      {},
      HINT.map((line) => h("p", {}, line)),
    ),
    h("button", { type: "button", class: "quiet", onclick: close, "aria-label": "Close the hint" }, "✕"),
  );
  byId("hint").hidden = false;
}

function chooseTheme(player) {
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
  byId("theme").addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
    player.refresh();
  });
}

class Page {
  constructor(known, player) {
    this.player = player;
    this.tabs = {
      run: new RunTab(known, player),
      drive: new DriveTab(known, player),
      figure: new FiguresTab(known, player),
      break: new GalleryTab(known, player),
      compare: new CompareTab(known, byId("wide")),
      check: new CheckTab(known, player),
      quiz: new QuizTab(player),
      lessons: new LessonsTab(known, byId("wide")),
    };
    this.buttons = TABS.map(([name, title]) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${name}`,
          "aria-controls": "panel",
          onclick: () => {
            location.hash = `#${name}`;
          },
        },
        title,
      ),
    );
    put(byId("tabs"), this.buttons);
    byId("tabs").addEventListener("keydown", (event) => this.arrows(event));
    addEventListener("hashchange", () => this.open());
    this.open();
  }

  /** The keys left and right switch between tabs, as screen readers expect. */
  arrows(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const place = this.buttons.indexOf(document.activeElement);
    this.buttons[(place + step + this.buttons.length) % this.buttons.length].focus();
    event.preventDefault();
    event.stopPropagation();
  }

  async open() {
    const [, name, value] = /^#([a-z]+)(?:=(.*))?$/.exec(location.hash) ?? [null, "run", ""];
    const tab = this.tabs[name] ? name : "run";
    if (this.shown !== tab) this.tabs[this.shown]?.leave?.();
    this.shown = tab;
    TABS.forEach(([known], place) => {
      this.buttons[place].setAttribute("aria-selected", String(known === tab));
      this.buttons[place].tabIndex = known === tab ? 0 : -1;
      // On a phone the bar of tabs is wider than the screen.
      if (known === tab) this.buttons[place].scrollIntoView({ block: "nearest", inline: "center" });
    });
    // These tabs show tables and texts in place of a run.
    const wide = ["compare", "lessons"].includes(tab);
    byId("wide").hidden = !wide;
    byId("stage").hidden = wide;
    put(byId("panel"), this.tabs[tab].element);
    document.body.dataset.tab = tab;
    try {
      await this.tabs[tab].open(value ? decodeURIComponent(value) : "");
    } catch {
      this.tabs[tab].error.textContent = "This link is damaged: a run cannot be read from it.";
    }
  }
}

const player = new Player();
byId("stage").append(player.element);
chooseTheme(player);
showHint();
try {
  new Page(await get("/api/about"), player);
  document.body.dataset.ready = "yes";
} catch (error) {
  put(byId("panel"), h("p", { class: "error", role: "alert" }, error.message));
}
