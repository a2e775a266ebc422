// What the page says, from the one table of strings, in the language that was chosen or that the browser asks for.

import { STRINGS } from "./strings.js";

const KEY = "hapvr.language";

/** The languages, in the order of the table's columns, as they call themselves. */
export const LANGUAGES = Object.freeze({ en: "English", de: "Deutsch", es: "Español" });

const shown = chosen() ?? navigator.languages.map(base).find((one) => one in LANGUAGES) ?? "en";
const column = Object.keys(LANGUAGES).indexOf(shown);
const rules = new Intl.PluralRules(shown);

/** The language that is shown. */
export const language = () => shown;

/** How dates are written: as the browser's own language does, where that is the one shown. */
export const locale = () => navigator.languages.find((one) => base(one) === shown) ?? shown;

/** Show another language from now on. The page is loaded again for it. */
export function setLanguage(code) {
  try {
    localStorage.setItem(KEY, code);
  } catch {
    return; // without storage the browser's language stays
  }
  location.reload();
}

/**
 * The string of a key, with values in place of {names}. A string with two forms is chosen by the number `n`.
 * t("n.videos", { n: 2 }) is "2 videos".
 */
export function t(key, values = {}) {
  const row = STRINGS[key];
  if (!row) throw new Error(`The table of strings has no '${key}'.`);
  const found = row[column];
  const text = Array.isArray(found) ? found[rules.select(values.n ?? 0) === "one" ? 0 : 1] : found;
  return text.replace(/\{(\w+)\}/g, (_, name) =>
    name === "n" ? Math.round(values.n).toLocaleString(shown) : String(values[name]),
  );
}

function base(tag) {
  return tag.toLowerCase().split("-")[0];
}

function chosen() {
  try {
    const code = localStorage.getItem(KEY);
    return code in LANGUAGES ? code : null;
  } catch {
    return null; // storage may be switched off
  }
}
