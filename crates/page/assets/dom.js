// Helpers that create elements.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name in element && typeof value !== "string" && !(element instanceof SVGElement)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element: `h("p", { class: "x" }, "text")`. */
export function h(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function s(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/** A button with a label for screen readers. */
export function button(text, label, act, more) {
  // After a mouse click, the space bar plays the run again and does not activate this button.
  const click = (event) => {
    if (event.detail > 0) event.currentTarget.blur();
    act(event);
  };
  return h("button", { type: "button", "aria-label": label, title: label, onclick: click, ...more }, text);
}

/** A labelled field of a form. */
export function field(label, input, help) {
  const hint = help ? h("small", {}, help) : null;
  return h("label", { class: "field" }, h("span", {}, label), input, hint);
}

/** A select element from pairs of value and text. */
export function choice(name, pairs, chosen) {
  const options = pairs.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  return h("select", { name, "aria-label": name }, options);
}

/** Replaces the children of an element. */
export function put(element, ...children) {
  element.replaceChildren(
    ...children.flat().filter((child) => child !== null && child !== undefined && child !== false),
  );
}

/** Offers a text for download as a file. */
export function download(name, kind, text) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: kind })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
