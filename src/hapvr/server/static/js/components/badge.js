// How sure a match is, in words and as a number.

import { h } from "../dom.js";
import { sureness } from "../format.js";

export function sureBadge(hit) {
  const { words, number, level, calibrated } = sureness(hit);
  const label = words.charAt(0).toUpperCase() + words.slice(1);
  const title = calibrated
    ? "How probable it is that both show the same footage"
    : "This model has no calibration, so there is a similarity from −1 to 1 in place of a probability";
  return h(
    "p",
    { class: `sure sure-${level}`, title },
    h("span", { class: "sure-words" }, label),
    h("span", { class: "sure-number" }, number),
  );
}
