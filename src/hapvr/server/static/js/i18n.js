// What the page says, from the one table of strings.

import { STRINGS } from "./strings.js";

/** The languages, in the order of the table's columns, as they call themselves. */
export const LANGUAGES = Object.freeze({ en: "English", de: "Deutsch", es: "Español" });

/** The language that is shown. */
export const language = () => "en";

/**
 * The string of a key, with values in place of {names}. A string with two forms is chosen by the number `n`.
 * t("videos", { n: 2 }) is "2 videos".
 */
export function t(key, values = {}) {
  const row = STRINGS[key];
  if (!row) throw new Error(`The table of strings has no '${key}'.`);
  const found = row[Object.keys(LANGUAGES).indexOf(language())];
  const form = new Intl.PluralRules(language()).select(values.n ?? 0) === "one" ? 0 : 1;
  const text = Array.isArray(found) ? found[form] : found;
  return text.replace(/\{(\w+)\}/g, (_, name) =>
    name === "n" ? Math.round(values.n).toLocaleString(language()) : String(values[name]),
  );
}
