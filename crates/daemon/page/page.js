// The operator's page. It sends requests to its own daemon only.

import { events, get, post, text, useToken } from "./api.js";
import * as locks from "./locks.js";
import { look, parse } from "./numbers.js";
import { el, showText, tick } from "./dom.js";

const PAUSE = 2000;
const MOST_EVENTS = 100;
const $ = (id) => document.getElementById(id);

/** Adds an entry to the list of events, the newest first. */
function happened(what) {
  const at = new Date();
  $("events").prepend(el("li", {}, el("time", { datetime: at.toISOString() }, at.toLocaleTimeString()), what));
  while ($("events").children.length > MOST_EVENTS) $("events").lastChild.remove();
}

const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));

// Status of the daemon.

let updatedAt = 0;

function trouble(error) {
  document.body.classList.toggle("stale", error.status === 0);
  const old = updatedAt && error.status === 0 ? ` What you see is from ${new Date(updatedAt).toLocaleTimeString()}; the page tries again.` : "";
  showText($("alert"), error.status === 401 ? "" : error.message + old);
  $("state").className = "bad";
  $("state").textContent = error.status === 0 ? "✕ not reached" : error.status === 401 ? "✕ a token is needed" : "✕ refused";
  if (error.status === 401) refuseToken("A valid token is needed.");
}

let before;

function showStatus(status, members) {
  updatedAt = Date.now();
  document.body.classList.remove("stale");
  showText($("alert"), status.serves ? "" : `This member does not serve: ${status.reason}.`);
  document.title = `${status.cluster}: Lockkeeper`;
  $("cluster").textContent = `cluster ${status.cluster}, member ${status.member}`;
  $("state").className = status.serves ? "good" : "bad";
  $("state").textContent = status.serves ? "✓ serves" : "✕ does not serve";
  const inside = members.filter((member) => member.in_view);
  const leader = status.leader === undefined ? "no leader known" : `led by member ${status.leader}`;
  $("view").textContent = status.epoch === undefined ? `in no view, ${leader}` :
    `view ${status.epoch}: ${inside.length} of ${members.length} members, ${leader} in term ${status.term}, ${status.algorithm}`;
  $("members").replaceChildren(...members.map(memberRow));
  const now = { epoch: status.epoch, serves: status.serves, leader: status.leader };
  if (before && now.epoch !== before.epoch && now.epoch !== undefined) {
    happened(`view ${now.epoch} has members ${inside.map((member) => member.id).join(", ")}`);
  }
  if (before && now.leader !== before.leader && now.leader !== undefined) happened(`member ${now.leader} leads the voters`);
  if (before && now.serves !== before.serves) happened(now.serves ? "this member serves again" : `this member does not serve: ${status.reason}`);
  before = now;
}

function memberRow(member) {
  const answer = (yes) => el("td", { class: yes ? "yes" : "no" }, yes ? "✓ yes" : "✕ no");
  const votes = el("td", {}, member.votes ? (member.leads ? "leads" : "votes") : "–");
  return el("tr", { "data-member": member.id },
    el("th", { scope: "row" }, `${member.id} `, el("span", { class: "facts" }, member.address)),
    answer(member.in_view), votes, answer(member.connected));
}

let lost;

function showNumbers(sums) {
  look(sums);
  const now = sums.get("lockkeeper_lost_leases_total") ?? 0;
  if (lost !== undefined && now > lost) happened(`${now - lost} of this member's clients lost what they held: a lease ran out`);
  lost = now;
}

async function poll() {
  for (;;) {
    try {
      if (!rightsKnown) await who();
      const [status, members, metrics] = await Promise.all([get("/v1/status"), get("/v1/members"), text("/metrics")]);
      showStatus(status, members);
      showNumbers(parse(metrics));
    } catch (error) {
      trouble(error);
    }
    await Promise.race([sleep(PAUSE), hurry]);
  }
}

// `hurryUp` ends all pauses, so that a new token takes effect at once.
let wake;
let hurry = new Promise((resolve) => { wake = resolve; });

function hurryUp() {
  wake();
  hurry = new Promise((resolve) => { wake = resolve; });
}

// Locks, from the watch stream.

let stop = new AbortController();

async function follow() {
  for (;;) {
    stop = new AbortController();
    try {
      const stream = await events("/v1/watch", stop.signal);
      locks.forget();
      for await (const lock of stream) locks.put(lock);
    } catch (error) {
      // `poll` reports whether the daemon can be reached; the last known locks stay visible.
      if (error.status === 401) locks.hide("They are shown to those who have a token.");
    }
    await Promise.race([sleep(PAUSE / 2), hurry]);
  }
}

async function why(lock, place) {
  place.textContent = "…";
  try {
    const { chain, deadlock } = await get(`/v1/locks/${encodeURIComponent(lock.name)}/why`);
    const step = ({ waiter, lock, holder }) => 
      el("div", {}, `${locks.nameOf(waiter)} waits for “${lock}”, which ${locks.nameOf(holder)} holds.`);
    const circle = el("div", { class: "circle" }, "Deadlock: these clients wait for each other in a cycle. Take one of these locks away.");
    place.replaceChildren(...(chain.length > 0 ? chain.map(step) : [el("div", {}, "Nothing blocks the waiters of this lock at the moment.")]), ...(deadlock ? [circle] : []));
  } catch (error) {
    place.textContent = error.message;
  }
}

// Forced release.

let taking;

function take(lock, holders) {
  taking = { lock, holders };
  const who = holders.map(locks.name).join(", ");
  $("take-title").textContent = `Take “${lock.name}” away?`;
  $("take-what").textContent = `${who} ${holders.length === 1 ? "holds" : "hold"} it now, by way of member ${holders.map((holder) => holder.member).join(", ")}.`;
  showText($("take-error"), "");
  $("take-yes").disabled = false;
  $("take").showModal();
}

async function taken(event) {
  event.preventDefault();
  const { lock, holders } = taking;
  $("take-yes").disabled = true;
  try {
    const path = `/v1/locks/${encodeURIComponent(lock.name)}/force-release`;
    const body = holders.length === 1 ? { acquisition: holders[0].acquisition } : {};
    const { released } = await post(path, body);
    happened(released.length > 0 ? `“${lock.name}” was taken away from ${holders.map(locks.name).join(", ")}` : `“${lock.name}” was given back before it could be taken away`);
    $("take").close();
  } catch (error) {
    showText($("take-error"), error.message);
    $("take-yes").disabled = false;
  }
}

// The operator's token.

function refuseToken(why) {
  $("who").className = "bad";
  $("who").textContent = why;
}

let rightsKnown = false;

async function who() {
  try {
    const me = await get("/v1/whoami");
    $("who").className = "";
    $("who").textContent = me.admin.length === 0 ? `${me.who}: looks on` : me.who;
    locks.setRights((name) => me.admin.some((prefix) => name.startsWith(prefix)));
    rightsKnown = true;
  } catch (error) {
    locks.setRights(() => false);
    if (error.status === 401) refuseToken(error.message);
  }
}

function tokenGiven(event) {
  event.preventDefault();
  useToken($("token").value);
  $("token").value = "";
  rightsKnown = false;
  stop.abort();
  hurryUp();
}

// Start.

locks.begin({ take, why });
$("access").addEventListener("submit", tokenGiven);
$("take-yes").addEventListener("click", taken);
$("theme").addEventListener("change", () => { document.documentElement.dataset.theme = $("theme").value; });
$("hide-hint").addEventListener("click", () => { $("hint").remove(); $("locks").focus(); });
setInterval(tick, 1000);
poll();
follow();
