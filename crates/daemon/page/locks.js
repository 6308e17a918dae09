// The table of locks with their holders and waiters.

import { el, showText, since } from "./dom.js";

/** Maximum number of locks, and of waiters of a lock: more than people read, and few enough to draw quickly. */
const MOST_LOCKS = 200;
const MOST_WAITERS = 100;
/** Number of waiters that are always listed. The others are listed on demand; the style sheet numbers them from here. */
const WAITERS_AT_ONCE = 4;

const rows = document.querySelector("#rows");
const find = document.querySelector("#find");

/** All known locks, by name. */
let locks = new Map();
/** Locks whose waiters are all listed. */
const opened = new Set();
/** The reason why no locks are known; empty if they are. */
let unknown = "Not known yet.";
let may = () => false;
let actions = {};

/** Sets the actions on a lock: `take(lock, holders)` and `why(lock, place)`. */
export function begin(given) {
  actions = given;
  find.addEventListener("input", draw);
}

/** Sets the function that checks, by its name, whether a lock may be released by force. */
export function setRights(check) {
  may = check;
  draw();
}

/** Clears the table when a new stream begins. */
export function forget() {
  [locks, unknown] = [new Map(), ""];
  draw();
}

/** Clears the table and shows the reason. */
export function hide(why) {
  [locks, unknown] = [new Map(), why];
  draw();
}

/** Stores the new state of a lock. */
export function put(lock) {
  const begun = (party) => ({ ...party, since: Date.now() - party.for_ms });
  if (lock.holders.length === 0 && lock.waiters.length === 0) locks.delete(lock.name);
  else locks.set(lock.name, { ...lock, holders: lock.holders.map(begun), waiters: lock.waiters.map(begun) });
  if (!drawing) drawing = requestAnimationFrame(draw);
}

let drawing = 0;

function draw() {
  drawing = 0;
  const wanted = find.value.trim().toLowerCase();
  const names = [...locks.keys()].filter((name) => name.toLowerCase().includes(wanted)).sort();
  const shown = names.slice(0, MOST_LOCKS);
  const focus = focused();
  const old = new Map([...rows.children].map((row) => [row.dataset.name, row]));
  rows.replaceChildren(...shown.map((name) => {
    const before = old.get(name);
    return before?.lock === locks.get(name) && before.may === may ? before : row(locks.get(name));
  }));
  focus();
  document.querySelector("#count").textContent = locks.size === 0 ? "" : `${locks.size}`;
  const none = unknown || (locks.size === 0 ? "No client holds or waits for a lock that you may see." : `No lock has “${find.value}” in its name.`);
  showText(document.querySelector("#none"), shown.length === 0 ? none : "");
  const left = names.length - shown.length;
  showText(document.querySelector("#more"), left > 0 ? `… and ${left} more: look for a part of a name.` : "");
}

/** Remembers the focused element, and returns a function that focuses it again after its row was redrawn. */
function focused() {
  const key = document.activeElement?.dataset?.key;
  return () => {
    if (key && document.activeElement?.dataset?.key !== key) rows.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
  };
}

/** The row of a lock. An error while it is drawn affects only this row. */
function row(lock) {
  let row;
  try {
    row = drawn(lock);
  } catch (error) {
    row = el("tr", { "data-name": lock.name }, el("th", { scope: "row" }, lock.name), el("td", { colspan: "2" }, `cannot be shown: ${error.message}`));
  }
  row.lock = lock;
  row.may = may;
  return row;
}

function drawn(lock) {
  const holders = el("ol", { "aria-label": "Holders" }, ...lock.holders.map((holder) => held(lock, holder)));
  if (lock.holders.length > 1 && may(lock.name)) holders.append(el("li", {}, taker(lock, lock.holders, "Take away from all …")));
  return el("tr", { "data-name": lock.name },
    el("th", { scope: "row" }, lock.name),
    el("td", {}, lock.holders.length > 0 ? holders : "no client, at this moment"),
    el("td", {}, ...waiting(lock)));
}

function held(lock, holder) {
  const facts = el("div", { class: "facts" }, ...spaced([
    mode(holder),
    `member ${holder.member}`,
    holder.fence === undefined ? "" : el("span", { class: "fence" }, `fence ${holder.fence}`),
    since(holder.since, "for\u00a0"),
    deadline(holder),
  ]));
  const take = may(lock.name) ? taker(lock, [holder], "Take away …") : "";
  return el("li", {}, el("span", { class: "owner" }, name(holder)), " ", take, note(holder), facts, jeopardy(holder));
}

/** The deadline of a detached hold, which needs no client. */
function deadline(holder) {
  if (!Number.isSafeInteger(holder.detached_until_ms)) return "";
  return `held for its owner until ${new Date(holder.detached_until_ms).toLocaleString()}`;
}

/** A warning about a hold whose client is silent. */
function jeopardy(holder) {
  if (!holder.in_jeopardy) return "";
  return el("div", { class: "jeopardy" }, "⚠ in jeopardy: its client sends nothing; if it does not come back, the hold ends with its time to live");
}

function taker(lock, holders, text) {
  const whose = holders.length === 1 ? holders[0].acquisition : "all";
  const label = `Take ${lock.name} away from ${holders.map(name).join(", ")}`;
  const key = `take ${lock.name} ${whose}`;
  return el("button", { class: "small", "aria-label": label, "data-key": key, onclick: () => actions.take(lock, holders) }, text);
}

function waiting(lock) {
  if (lock.waiters.length === 0) return [el("span", { class: "facts" }, "none")];
  const line = (waiter) => el("li", {},
    el("span", { class: "owner" }, name(waiter)), " ",
    el("span", { class: "facts" }, ...spaced([mode(waiter) === "alone" ? "" : mode(waiter), `member ${waiter.member}`, since(waiter.since, "for\u00a0")])));
  const list = el("ol", { class: "next", "aria-label": "Waiting, in order" }, ...lock.waiters.slice(0, WAITERS_AT_ONCE).map(line));
  const parts = [list];
  const later = lock.waiters.slice(WAITERS_AT_ONCE);
  if (later.length > 0) {
    const rest = el("ol", { class: "next later" }, ...later.slice(0, MOST_WAITERS).map(line));
    if (later.length > MOST_WAITERS) rest.append(el("li", {}, `… and ${later.length - MOST_WAITERS} more`));
    const toggled = ({ target }) => (target.open ? opened.add(lock.name) : opened.delete(lock.name));
    const summary = el("summary", { "data-key": `later ${lock.name}` }, `${later.length} more wait`);
    parts.push(el("details", { open: opened.has(lock.name), ontoggle: toggled }, summary, rest));
  }
  const place = el("div", { class: "why", role: "status" });
  parts.push(el("button", {
    class: "small", "data-key": `why ${lock.name}`, "aria-label": `Why is ${lock.name} waited for?`, onclick: () => actions.why(lock, place),
  }, "Why?"), place);
  return parts;
}

function spaced(parts) {
  return parts.filter((part) => part !== "").flatMap((part, place) => (place === 0 ? [part] : [" · ", part]));
}

function mode(party) {
  if (party.mode === "permit") return `one of ${party.permits} permits`;
  return party.mode === "exclusive" ? "alone" : party.mode;
}

/**
 * The JSON that the Rust library writes about a holder: host, process, program and purpose. Other clients may write
 * anything there, including objects that throw when they are converted to text, so only strings and numbers are used.
 */
function tag(party) {
  let tag;
  try {
    tag = JSON.parse(party.purpose);
  } catch {
    return undefined;
  }
  if (typeof tag !== "object" || tag === null || !Number.isSafeInteger(tag.pid)) return undefined;
  const text = (value) => (typeof value === "string" ? value : "");
  const facts = [text(tag.metadata?.command), text(tag.metadata?.purpose)];
  return { host: text(tag.host) || "unknown host", pid: tag.pid, note: facts.filter((fact) => fact !== "").join(": ") };
}

/** The displayed name of the client with this acquisition. */
export function nameOf(acquisition) {
  for (const lock of locks.values()) {
    const party = [...lock.holders, ...lock.waiters].find((party) => party.acquisition === acquisition);
    if (party) return name(party);
  }
  return acquisition;
}

/** The displayed name of a holder or waiter. */
export function name(party) {
  const shown = tag(party);
  // A detached hold belongs to its owner, not to the process that acquired it.
  const process = shown && !Number.isSafeInteger(party.detached_until_ms);
  return process ? `${shown.host}, process ${shown.pid}` : party.owner || party.acquisition;
}

function note(party) {
  const shown = tag(party);
  const text = shown ? shown.note : party.purpose;
  return text ? el("div", { class: "facts" }, text) : "";
}
