// Colours that can be distinguished with any kind of colour vision (after Okabe and Ito). Warm colours show a
// site's own state, waiting or inside; the others show message types, in the order of their first occurrence.

const KINDS_LIGHT = ["#0072b2", "#009e73", "#b0558b", "#4a4a4a", "#2a93d5", "#7a5c00", "#7b3fb5", "#00808a"];
const KINDS_DARK = ["#56b4e9", "#2fc79b", "#e39cc6", "#c8c8c8", "#86c8ff", "#d9c36a", "#b995ea", "#4cc9d0"];

/** Whether the page uses the dark theme. */
export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** The colour of the nth message type. */
export function kindColour(index) {
  const kinds = isDark() ? KINDS_DARK : KINDS_LIGHT;
  return kinds[index % kinds.length];
}

/** A colour of the style sheet, by its name. */
export function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** All colours of a drawing, read once per drawing. */
export function inks() {
  const ink = (name) => themeColour(name);
  return {
    text: ink("--text"),
    faint: ink("--faint"),
    line: ink("--line"),
    accent: ink("--accent"),
    back: ink("--back"),
    inside: ink("--inside"),
    waiting: ink("--waiting"),
    wrong: ink("--wrong"),
    panel: ink("--panel"),
  };
}
