// A verdict: copy, same scene or event, or no match, with its probability.

import { h } from "../dom.js";
import { describeVerdict } from "../format.js";
import { t } from "../i18n.js";

export function verdictBadge(hit) {
  const { words, number, level, calibrated } = describeVerdict(hit);
  const label = words.charAt(0).toUpperCase() + words.slice(1);
  const title = calibrated ? t("badge.probability") : t("badge.score");
  return h(
    "p",
    { class: `sure sure-${level}`, title },
    h("span", { class: "sure-words" }, label),
    h("span", { class: "sure-number" }, number),
  );
}

/** The evidence in a sentence, which also says what a comparison at full size has shown. */
export function verdictReason(hit) {
  return h("p", { class: "verdict-reason muted small-text" }, hit.reason);
}
