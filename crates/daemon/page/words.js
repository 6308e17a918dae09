// Small things that all parts use: elements, times, numbers.

/** An element with attributes and children. Text is text: nothing that a client said becomes markup. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== ""));
  return element;
}

/** How long, in the unit that matters; since when exactly is told on hover. */
export function duration(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 120) return `${s}\u00a0s`;
  if (s < 7200) return `${Math.floor(s / 60)}\u00a0min`;
  return s < 172800 ? `${Math.floor(s / 3600)}\u00a0h` : `${Math.floor(s / 86400)}\u00a0d`;
}

/** A time that goes on by itself: see `tick`. */
export function since(at, before = "") {
  const text = before + duration(Date.now() - at);
  return el("time", { "data-since": at, "data-before": before, title: `since ${new Date(at).toLocaleString()}` }, text);
}

/** Lets all times go on. */
export function tick() {
  for (const time of document.querySelectorAll("[data-since]")) {
    const text = time.dataset.before + duration(Date.now() - Number(time.dataset.since));
    if (time.textContent !== text) time.textContent = text;
  }
}

/** A number for people: three digits that matter, however large or small it is. */
export function number(value) {
  if (!Number.isFinite(value)) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
}

/** Seconds for people. */
export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  if (value < 1e-3) return `${number(value * 1e6)} µs`;
  return value < 1 ? `${number(value * 1e3)} ms` : `${number(value)} s`;
}

/** Shows a sentence, or nothing. */
export function say(element, text) {
  element.hidden = !text;
  if (element.textContent !== (text ?? "")) element.textContent = text ?? "";
}
