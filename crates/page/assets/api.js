// Requests to the server. Every failure becomes an Error with a message for the user.

const UNREACHABLE = "The server does not answer: is 'lockkeeper lab' still running?";

async function ask(path, body, signal) {
  const options =
    body === undefined
      ? {}
      : {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify(body),
        };
  let response;
  try {
    response = await fetch(path, { ...options, signal });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error(UNREACHABLE);
  }
  if (response.ok) return response;
  const text = await response.text();
  let why = text;
  try {
    why = JSON.parse(text).error ?? text;
  } catch {
    /* a plain text */
  }
  throw new Error(why);
}

/** Sends a request and waits for the complete response. */
export async function get(path, body, signal) {
  return (await ask(path, body, signal)).json();
}

export async function text(path) {
  return (await ask(path)).text();
}

/** Starts a long job: calls `sofar` with each progress report; returns the last line, which is the result. */
export async function follow(path, body, signal, sofar) {
  const reader = (await ask(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "",
    last = null;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      last = JSON.parse(line);
      if (last.sofar) sofar(last.sofar);
    }
  }
  if (last?.error) throw new Error(last.error);
  if (!last || last.sofar) throw new Error(UNREACHABLE);
  return last;
}
