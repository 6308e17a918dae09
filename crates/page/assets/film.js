// A recorded run, with queries about each of its instants.

const NO_STATE = {
  phase: "Idle",
  mode: "Exclusive",
  up: true,
  paused: false,
  tokens: 0,
  timers: 0,
  fields: [],
  points_to: null,
  waits_for: [],
  quorum: [],
};

/** The last index in a sorted list whose key is not larger; -1 if there is none. */
function lastUpTo(list, key, limit) {
  let low = 0,
    high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(list[middle]) <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The name of a message: the text before its first bracket or blank. */
function nameOf(text) {
  return text.split(/[ (\[]/, 1)[0];
}

export class Film {
  constructor({ title, about, scenario, recording }) {
    Object.assign(this, { title, about, scenario, recording });
    Object.assign(this, recording);
    this.code = recording.code ?? [];
    this.last = this.steps.length - 1;
    this.isStory = this.steps.at(-1).kinds.includes("ending");
    this.ending = this.isStory ? this.steps.at(-1).say : null;
    this.messages.sort((one, other) => one.sent - other.sent);
    this.kinds = [];
    this.longest = 0;
    for (const message of this.messages) {
      message.name = this.isStory ? "message" : nameOf(message.text);
      if (!this.kinds.includes(message.name)) this.kinds.push(message.name);
      message.kind = this.kinds.indexOf(message.name);
      message.from_t = this.steps[message.sent].at;
      message.to_t = message.ended === null ? null : this.steps[message.ended].at;
      this.longest = Math.max(this.longest, (message.to_t ?? this.end) - message.from_t);
    }
    this.hasTree = this.states.some((states) => states.some(([, state]) => state.points_to !== null));
    this.hasQuorums = this.states.some((states) => states.some(([, state]) => state.quorum.length > 0));
    // Runs with one step at each whole time: driven by hand, found by a checker, or given as sentences.
    this.byHand = /^\s*delivery:\s*by hand/m.test(scenario ?? "");
    const hasState = ([, state]) => state.fields.length > 0 || state.phase !== "Idle" || !state.up;
    this.plain = this.isStory && !this.states.some((states) => states.some(hasState));
    this.bars = this.states.map((states) => this.barsOf(states));
  }

  /** The periods in which a site waits, is inside, or is down. */
  barsOf(states) {
    const bars = [];
    const kindOf = (state) => (!state.up ? "down" : state.paused ? "paused" : state.phase);
    for (const [step, state] of states) {
      const kind = kindOf(state),
        before = bars.at(-1);
      const entersAgain =
        before?.kind === "Inside" && kind === "Inside" && step > 0 && this.steps[step].kinds.includes("exit");
      if (before && before.kind === kind && !entersAgain) continue;
      if (before) before.to = this.steps[step].at;
      bars.push({ kind, mode: state.mode, from: this.steps[step].at, to: null, step });
    }
    return bars.filter((bar) => bar.kind !== "Idle");
  }

  /** A site's state after a number of steps. */
  stateAt(site, step) {
    const states = this.states[site] ?? [];
    const place = lastUpTo(states, ([from]) => from, step);
    return place < 0 ? NO_STATE : states[place][1];
  }

  /** The last step at or before a time. */
  stepAt(time) {
    return Math.max(
      0,
      lastUpTo(this.steps, (step) => step.at, time),
    );
  }

  /** The messages visible between two times: sent before the end, at most the longest delay before the start. */
  between(from, to) {
    const first = lastUpTo(this.messages, (message) => message.from_t, from - this.longest - 1e-9) + 1;
    const last = lastUpTo(this.messages, (message) => message.from_t, to);
    return [Math.max(0, first), last];
  }

  /** The messages under way after a number of steps. */
  underWay(step) {
    const now = this.steps[step].at;
    const [first, last] = this.between(now, now);
    const found = [];
    for (let place = first; place <= last && found.length < 400; place += 1) {
      const message = this.messages[place];
      if (message.sent <= step && (message.ended === null || message.ended > step)) found.push(message);
    }
    return found;
  }
}
