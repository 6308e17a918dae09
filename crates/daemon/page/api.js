// Requests to the daemon. The token is kept in the memory of this tab only.

let token = "";

export function useToken(text) {
  token = text.trim();
}

/** An error response of the daemon; `status` is 0 if it cannot be reached. */
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
    // Not JSON: show the status code only.
  }
  throw new Refused(response.status, message);
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

/** Parses JSON, with fences as text: they have up to 63 bits, and JavaScript's numbers 53. */
function parse(json) {
  return JSON.parse(json, (key, value, context) => (key === "fence" && context?.source ? context.source : value));
}

/** Timeout of a request, in milliseconds. */
const TIMEOUT_MS = 8000;

export async function get(path) {
  return (await ask(path, { signal: AbortSignal.timeout(TIMEOUT_MS) })).json();
}

export async function text(path) {
  return (await ask(path, { signal: AbortSignal.timeout(TIMEOUT_MS) })).text();
}

export async function post(path, body) {
  const headers = { "content-type": "application/json" };
  const options = { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(TIMEOUT_MS) };
  return (await ask(path, options)).json();
}

/** Timeout of a silent stream, in milliseconds: the daemon sends an empty comment every 15 seconds. */
const SILENCE = 40000;

/** The events of a stream, once the daemon has accepted the request. (EventSource cannot send a token.) */
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
