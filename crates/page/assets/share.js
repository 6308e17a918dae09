// Runs as links and as files.

import { text } from "./api.js";
import { button, download } from "./dom.js";

/** A text encoded for a link: only letters, digits, - and _. */
export function packed(plain) {
  const bytes = new TextEncoder().encode(plain);
  let raw = "";
  for (const byte of bytes) raw += String.fromCharCode(byte);
  return btoa(raw).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

export function unpacked(link) {
  const raw = atob(link.replaceAll("-", "+").replaceAll("_", "/"));
  return new TextDecoder().decode(Uint8Array.from(raw, (letter) => letter.charCodeAt(0)));
}

/** Offers a link to the user: in the address bar and, if possible, in the clipboard. */
async function offer(hash, notify) {
  history.replaceState(null, "", hash);
  try {
    await navigator.clipboard.writeText(location.href);
    notify("The link is in the clipboard, and in the address above.");
  } catch {
    notify("The link is in the address above.");
  }
}

function fileName(film, ending) {
  const plain = film.title
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-|-$/g, "")
    .slice(0, 60);
  return `${plain || "run"}.${ending}`;
}

/** A run as one self-contained page. */
async function lecture(film) {
  const page = await text("/lecture.html");
  const { title, about, scenario, recording } = film;
  // A script element must not contain the text of its end tag.
  const run = JSON.stringify({ title, about, scenario, recording }).replaceAll("<", "\\u003c");
  const safe = title.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return page.replace("TITLE_OF_THE_RUN", () => safe).replace("THE_RUN_ITSELF", () => run);
}

/** The buttons to share or save a run. */
export function sharing(film, hash, notify) {
  const tools = [button("Link", "Copy a link to this run", () => offer(hash, notify), { id: "link" })];
  if (film.scenario) {
    const save = () => download(fileName(film, "scenario"), "text/plain", film.scenario);
    tools.push(
      button("Scenario", "Save it for 'lockkeeper sim --scenario' and 'lockkeeper replay'", save, { id: "export" }),
    );
  }
  const page = async () => {
    try {
      download(fileName(film, "html"), "text/html", await lecture(film));
    } catch (error) {
      notify(error.message);
    }
  };
  tools.push(button("Page", "Save it as one page that needs no server, for a lecture", page, { id: "lecture" }));
  return tools;
}
