// A button that copies the address of two videos side by side. An uploaded query is kept for it from then on.

import { part, post } from "../api.js";
import { announce, h } from "../dom.js";
import { day } from "../format.js";
import { t } from "../i18n.js";
import { icon } from "../icons.js";
import { toast } from "./notice.js";

/** `query` is the side { kind, id } that was searched for. */
export function linkButton(query) {
  const button = h("button", { type: "button", class: "button quiet small" }, icon("link"), t("link.copy"));
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const kept = query.kind === "queries" ? await post(`queries/${part(query.id)}/keep`) : null;
      const said = kept ? t("link.until", { day: day(kept.until) }) : t("link.copied");
      await write(location.href, said);
    } catch (error) {
      toast([error.message, error.hint].filter(Boolean).join(" "), { kind: "error" });
    }
    button.disabled = false;
  });
  return button;
}

async function write(text, said) {
  try {
    await navigator.clipboard.writeText(text);
    announce(said);
    toast(said);
  } catch {
    toast(t("link.byHand"), { kind: "error" });
  }
}
