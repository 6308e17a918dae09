// Helpers for elements, times and numbers.

/** An element with attributes and children. Strings become text nodes, so text of clients is never markup. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== ""));
  return element;
}

/** A duration, rounded down to a suitable unit. */
export function duration(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 120) return `${s}\u00a0s`;
  if (s < 7200) return `${Math.floor(s / 60)}\u00a0min`;
  return s < 172800 ? `${Math.floor(s / 3600)}\u00a0h` : `${Math.floor(s / 86400)}\u00a0d`;
}

/** A running duration, updated by `tick`; its tooltip has the exact start. */
export function since(at, before = "") {
  const text = before + duration(Date.now() - at);
  return el("time", { "data-since": at, "data-before": before, title: `since ${new Date(at).toLocaleString()}` }, text);
}

/** Updates all running durations. */
export function tick() {
  for (const time of document.querySelectorAll("[data-since]")) {
    const text = time.dataset.before + duration(Date.now() - Number(time.dataset.since));
    if (time.textContent !== text) time.textContent = text;
  }
}

/** A number with three significant digits. */
export function number(value) {
  if (!Number.isFinite(value)) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
}

/** A duration in seconds, with a suitable unit. */
export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  if (value < 1e-3) return `${number(value * 1e6)} µs`;
  return value < 1 ? `${number(value * 1e3)} ms` : `${number(value)} s`;
}

/** Shows a text, or hides the element if there is none. */
export function showText(element, text) {
  element.hidden = !text;
  if (element.textContent !== (text ?? "")) element.textContent = text ?? "";
}
