// What is said in place of content: nothing here yet, still loading, something went wrong; and short messages.

import { h } from "../dom.js";
import { t } from "../i18n.js";
import { icon } from "../icons.js";

/** Nothing to show, and what one may do about it. */
export function emptyState({ picture = "info", title, text, actions = [] }) {
  return h(
    "div",
    { class: "state" },
    h("div", { class: "state-icon" }, icon(picture)),
    h("h2", {}, title),
    text && h("p", {}, text),
    actions.length > 0 && h("div", { class: "row centred" }, actions),
  );
}

/** An error as it came from the server: what happened, and what to do. */
export function errorState(error, { title = t("wentWrong"), retry = null, actions = [] } = {}) {
  return h(
    "div",
    { class: "state state-error", role: "alert" },
    h("div", { class: "state-icon" }, icon("warning")),
    h("h2", {}, title),
    h("p", {}, error.message),
    error.hint && h("p", { class: "muted" }, error.hint),
    h(
      "div",
      { class: "row centred" },
      retry && h("button", { type: "button", class: "button", onclick: retry }, t("tryAgain")),
      actions,
    ),
  );
}

/** Grey bars in the shape of what is to come. */
export function skeleton(rows = 3, kind = "card") {
  const bars = Array.from({ length: rows }, () => h("div", { class: `skeleton skeleton-${kind}` }));
  return h(
    "div",
    { class: "skeletons", "aria-busy": "true" },
    h("p", { class: "visually-hidden" }, t("loading")),
    bars,
  );
}

/** A line of warning or information within a view. */
export function note(text, { kind = "info", children = [] } = {}) {
  return h(
    "p",
    { class: `note note-${kind}` },
    icon(kind === "info" ? "info" : "warning"),
    h("span", {}, text, children),
  );
}

/** A message at the edge of the page that goes by itself; `action` is { label, run }. */
export function toast(text, { action = null, kind = "info" } = {}) {
  const close = () => box.remove();
  const box = h(
    "div",
    { class: `toast toast-${kind}` },
    h("span", {}, text),
    action &&
      h(
        "button",
        { type: "button", class: "button quiet small", onclick: () => (close(), action.run()) },
        action.label,
      ),
    h(
      "button",
      { type: "button", class: "icon-button small", "aria-label": t("dismiss"), onclick: close },
      icon("cross"),
    ),
  );
  document.getElementById("toasts").append(box);
  setTimeout(close, action ? 12_000 : 6_000);
}

/** Ask before something that changes what cannot easily come back; resolves to whether it was confirmed. */
export function confirmed({ title, text, yes, no = t("keepIt") }) {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { class: "dialog", "aria-label": title },
      h("h2", {}, title),
      h("p", {}, text),
      h(
        "form",
        { method: "dialog", class: "row end" },
        h("button", { value: "no", class: "button quiet" }, no),
        h("button", { value: "yes", class: "button danger" }, yes),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
