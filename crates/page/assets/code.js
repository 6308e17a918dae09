// The pseudo-code of the algorithm; the lines that the current step executed are marked.

import { h, put } from "./dom.js";

export class Code {
  constructor() {
    this.element = h("ol", { class: "code", id: "code", "aria-label": "Pseudo-code" });
  }

  show(film) {
    this.film = film;
    this.lines = film.code.map((text) => {
      const indent = text.length - text.trimStart().length;
      const line = h("li", {}, text.trim());
      line.style.setProperty("--indent", String(indent));
      return line;
    });
    put(this.element, this.lines);
  }

  at(step) {
    const fires = this.film.steps[step].fires ?? [];
    this.lines.forEach((line, number) => {
      const now = fires.includes(number);
      line.classList.toggle("fires", now);
      if (now) line.setAttribute("aria-current", "step");
      else line.removeAttribute("aria-current");
    });
    if (fires.length === 0 || this.element.hidden) return;
    const first = this.lines[Math.min(...fires)],
      last = this.lines[Math.max(...fires)];
    const { scrollTop, clientHeight } = this.element;
    if (first.offsetTop < scrollTop || last.offsetTop + last.offsetHeight > scrollTop + clientHeight)
      this.element.scrollTop = first.offsetTop - clientHeight / 4;
  }
}
