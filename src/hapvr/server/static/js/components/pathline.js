// Where a file lies, if the server may tell, with a button that copies it.

import { announce, h } from "../dom.js";
import { t } from "../i18n.js";
import { icon } from "../icons.js";
import { toast } from "./notice.js";

/** A line for a video with a `path`; nothing for one whose path the server keeps to itself. */
export function pathLine({ path, name }) {
  if (!path) return null;
  const copy = h(
    "button",
    {
      type: "button",
      class: "button quiet small copy-path",
      "aria-label": t("path.copyOf", { name }),
      onclick: () => put(path),
    },
    icon("copies"),
    t("path.copy"),
  );
  return h("p", { class: "path-line muted small-text" }, h("span", { class: "path-text", title: path }, path), copy);
}

async function put(path) {
  try {
    await navigator.clipboard.writeText(path);
    announce(t("path.copied"));
    toast(t("path.copied.short"));
  } catch {
    toast(t("path.byHand"), { kind: "error" });
  }
}
