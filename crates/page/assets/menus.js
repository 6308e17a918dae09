// Menus for the values that the commands take as text: load, delay, failure detector.

import { h, put } from "./dom.js";

const T = "in T, the unit of time";

export const LOADS = [
  { name: "low", label: "low", help: "One site at a time requests; the next one when the network is quiet." },
  {
    name: "high",
    label: "high",
    help: "Every site requests again as soon as it has left. All start together.",
  },
  { name: "staggered", label: "staggered", help: "As high, but the sites make their first requests one after another." },
  { name: "burst", label: "burst", help: "All sites request at the same instant, and again when all were inside." },
  { name: "pairs", label: "pairs", help: "As low, and every site follows every other one exactly once." },
  {
    name: "poisson",
    label: "random times",
    help: "Requests come at random, at this rate per site and T. Requests at a busy site queue there.",
    parts: [["rate", "0.1"]],
    join: ([rate]) => `poisson:${rate}`,
  },
];

export const DELAYS = [
  {
    name: "constant",
    label: "constant",
    help: `Every message takes the same time, ${T}.`,
    parts: [["T", "1"]],
    join: ([time]) => `constant:${time}`,
  },
  {
    name: "uniform",
    label: "uniform",
    help: `Each message takes a random time between two bounds, ${T}.`,
    parts: [
      ["from", "0.5"],
      ["to", "1.5"],
    ],
    join: ([from, to]) => `uniform:${from}..${to}`,
  },
  {
    name: "exponential",
    label: "exponential",
    help: `Most messages are fast and a few take long. The mean is ${T}.`,
    parts: [["mean", "1"]],
    join: ([mean]) => `exponential:${mean}`,
  },
  {
    name: "lognormal",
    label: "lognormal",
    help: "As on the internet: few messages are fast, some take very long. A larger sigma spreads them more.",
    parts: [
      ["mean", "1"],
      ["sigma", "0.5"],
    ],
    join: ([mean, sigma]) => `lognormal:${mean},${sigma}`,
  },
];

export const DETECTORS = [
  { name: "none", label: "none", help: "No site notices a crash." },
  { name: "perfect", label: "perfect", help: "Every site notices every crash 1 T later, and nothing else." },
  {
    name: "timeout",
    label: "timeout",
    help: "A site is suspected that is silent for this time: crashed, or only slow.",
    parts: [["T", "4"]],
    join: ([time]) => `timeout:${time}`,
  },
  {
    name: "false",
    label: "false alarms",
    help: "As perfect, and each site suspects a random other one at this rate per T.",
    parts: [["rate", "0.05"]],
    join: ([rate]) => `false:${rate}`,
  },
];

/** A menu with the fields of the chosen entry and its help. The value is in a hidden input of the given name. */
export function menu(label, name, entries, value) {
  const hidden = h("input", { type: "hidden", name, value });
  const [given, rest] = value.split(/:(.*)/);
  const select = h(
    "select",
    { "aria-label": label, "data-menu": name },
    entries.map((entry) => h("option", { value: entry.name, selected: entry.name === given }, entry.label)),
  );
  const help = h("small", {}),
    parts = h("span", { class: "parts" });
  const entry = () => entries.find((one) => one.name === select.value);
  const write = () => {
    const values = [...parts.querySelectorAll("input")].map((input) => input.value.trim());
    hidden.value = entry().join ? entry().join(values) : entry().name;
  };
  const show = (texts) => {
    help.textContent = entry().help;
    put(
      parts,
      (entry().parts ?? []).map(([part, standard], place) =>
        h("input", { value: texts[place] ?? standard, "aria-label": `${label}: ${part}`, title: part, oninput: write }),
      ),
    );
  };
  show(rest ? rest.split(/\.\.|,/) : []);
  select.addEventListener("change", () => {
    show([]);
    write();
  });
  return h("div", { class: "field menu" }, h("span", {}, label), h("div", {}, select, parts), help, hidden);
}
