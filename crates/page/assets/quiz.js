// The tab "Quiz": exercises that are generated from a seed and graded by running them.

import { get } from "./api.js";
import { button, field, h, put } from "./dom.js";
import { Film } from "./film.js";

const letter = (place) => String.fromCharCode(97 + place);

export class QuizTab {
  constructor(player) {
    Object.assign(this, { player, seed: 1, number: 1, right: 0, answered: new Set() });
    this.error = h("p", { class: "error", role: "alert" });
    this.body = h("div", { class: "quiz", id: "quiz" });
    this.score = h("p", { class: "note", id: "score", "aria-live": "polite" });
    this.seedField = h("input", { name: "seed", type: "number", value: 1, min: 0, max: 1e9 });
    const start = h(
      "form",
      {
        class: "form",
        onsubmit: (event) => {
          event.preventDefault();
          location.hash = `#quiz=${Number(this.seedField.value)}.1`;
        },
      },
      h("p", { class: "idea" }, "Exercises from a seed. The simulator and the checker know the answers: they run them."),
      h(
        "div",
        { class: "two" },
        field("Seed", this.seedField),
        h("button", { type: "submit", id: "quiz-start" }, "From its first question"),
      ),
    );
    this.element = h("div", {}, start, this.score, this.body, this.error);
  }

  async open(link) {
    const [seed, number] = (link || `${this.seed}.${this.number}`).split(".").map(Number);
    if (!Number.isSafeInteger(seed) || !Number.isSafeInteger(number)) throw new Error("not a question");
    if (seed !== this.seed) [this.right, this.answered] = [0, new Set()];
    Object.assign(this, { seed, number });
    this.seedField.value = String(seed);
    this.showScore();
    this.error.textContent = "";
    try {
      this.show(await get("/api/quiz", { seed, number }));
    } catch (error) {
      this.error.textContent = error.message;
    }
  }

  showScore() {
    const answered = this.answered.size;
    this.score.textContent = answered > 0 ? `${this.right} of ${answered} right` : "";
  }

  show(question) {
    this.verdict = h("div", { class: "grade", id: "grade", "aria-live": "polite" });
    const kind = question.several ? "checkbox" : "radio";
    const answer =
      question.choices.length > 0
        ? h(
            "fieldset",
            { class: "boxes" },
            h("legend", {}, question.several ? "Choose all that apply" : "Choose one"),
            question.choices.map((choice, place) =>
              h(
                "label",
                { class: "check" },
                h("input", { type: kind, name: "answer", value: letter(place) }),
                ` ${choice}`,
              ),
            ),
          )
        : field("Number", h("input", { name: "answer", type: "number", min: 0, step: 1, autocomplete: "off" }));
    const form = h(
      "form",
      {
        class: "form",
        id: "quiz-form",
        onsubmit: (event) => {
          event.preventDefault();
          const given = new FormData(form).getAll("answer").join(", ");
          if (given) this.grade(given);
        },
      },
      answer,
      h(
        "div",
        { class: "row" },
        h("button", { class: "primary", type: "submit", id: "answer" }, "Answer"),
        button("Show the answer", "Show the answer without a guess", () => this.grade(""), { id: "give-up" }),
      ),
    );
    put(
      this.body,
      h("h3", {}, `${question.number}. ${question.topic}`),
      // The player shows the run so far; without one, the system is described here.
      question.given.slice(0, question.recording ? 2 : undefined).map((line) => h("p", {}, line)),
      h("p", { class: "asked" }, question.text),
      form,
      this.verdict,
    );
    if (question.recording) this.play(question.recording, "The run so far", question.text);
    else this.player.blank(question.text, "");
  }

  play(recording, title, about) {
    const film = new Film({ title, about, scenario: null, recording });
    this.player.load(film, { step: film.last });
  }

  async grade(answer) {
    const { seed, number } = this;
    this.error.textContent = "";
    try {
      const grade = await get("/api/quiz/grade", { seed, number, answer });
      if (seed !== this.seed || number !== this.number) return;
      // Only the first answer to a question counts.
      if (!this.answered.has(number)) {
        this.answered.add(number);
        if (grade.right) this.right += 1;
      }
      this.showScore();
      const verdict = grade.right
        ? `✓ Right: ${grade.expected}`
        : `${answer ? "✗ Wrong. " : ""}The answer is ${grade.expected}.`;
      const next = () => {
        location.hash = `#quiz=${seed}.${number + 1}`;
      };
      put(
        this.verdict,
        h("p", { class: grade.right ? "fine" : "wrong" }, verdict),
        h("ol", { class: "because" }, grade.because.map((line) => h("li", {}, line))),
        h("code", { class: "command" }, grade.command),
        h("button", { type: "button", class: "primary", id: "next-question", onclick: next }, "Next question"),
      );
      this.verdict.scrollIntoView({ block: "nearest" });
      if (grade.recording) this.play(grade.recording, "The whole run", "");
    } catch (error) {
      this.error.textContent = error.message;
    }
  }
}
