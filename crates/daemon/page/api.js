// What the page asks its daemon. The token is kept here, in the memory of this tab, and nowhere else.

let token = "";

export function useToken(text) {
  token = text.trim();
}

/** The daemon said no, or nothing: `status` is 0 if it cannot be reached. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    throw new Refused(0, `The daemon cannot be reached (${error.message}).`);
  }
  if (response.ok) return response;
  let message = `The daemon answers ${response.status}.`;
  try {
    message = sentence((await response.json()).message ?? message);
  } catch {
    // No JSON: the number has to do.
  }
  throw new Refused(response.status, message);
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

/** JSON, with fences as they are written: they have up to 63 bits, and JavaScript's numbers 53. */
function parse(json) {
  return JSON.parse(json, (key, value, context) => (key === "fence" && context?.source ? context.source : value));
}

/** Whatever takes longer than this has failed. */
const PATIENCE = 8000;

export async function get(path) {
  return (await ask(path, { signal: AbortSignal.timeout(PATIENCE) })).json();
}

export async function text(path) {
  return (await ask(path, { signal: AbortSignal.timeout(PATIENCE) })).text();
}

export async function post(path, body) {
  const headers = { "content-type": "application/json" };
  const options = { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(PATIENCE) };
  return (await ask(path, options)).json();
}

/** A connection that says nothing for so long is dead: the daemon gives a sign of life every 15 seconds. */
const SILENCE = 40000;

/** Events as the daemon sends them, once it has agreed to. (EventSource cannot show a token.) */
export async function events(path, stop) {
  const dead = new AbortController();
  const response = await ask(path, { signal: AbortSignal.any([stop, dead.signal]) });
  return read(response, dead);
}

async function* read(response, dead) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let silence;
  try {
    for (;;) {
      clearTimeout(silence);
      silence = setTimeout(() => dead.abort(), SILENCE);
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const data = part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim());
        if (data.length > 0) yield parse(data.join("\n"));
      }
    }
  } finally {
    clearTimeout(silence);
    dead.abort();
  }
}
