// All keys of the page in a dialog, which the question mark opens.

import { h } from "../dom.js";
import { t } from "../i18n.js";

const KEYS = [
  [
    "keys.everywhere",
    [
      [["?"], "keys.help"],
      [["Tab"], "keys.next"],
      [["Esc"], "keys.close"],
    ],
  ],
  [
    "keys.match",
    [
      [["Space", "K"], "keys.play"],
      [["S"], "closer.side"],
      [["O"], "closer.overlay"],
      [["B"], "keys.blink"],
      [["D"], "closer.difference"],
    ],
  ],
  [
    "keys.matrix",
    [
      [["←", "→"], "keys.column"],
      [["↑", "↓"], "keys.row"],
      [["Home", "End"], "keys.ends"],
    ],
  ],
  ["keys.bars", [[["←", "→"], "keys.seek"]]],
];

/** Listen for the question mark, and to a button that does the same. */
export function setUpKeyHelp(button) {
  button.addEventListener("click", () => showKeyHelp());
  document.addEventListener("keydown", (event) => {
    if (event.key !== "?" || event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = "select, textarea, dialog, input:not([type=range], [type=radio], [type=checkbox])";
    if (event.target.closest(typing)) return;
    event.preventDefault();
    showKeyHelp();
  });
}

function showKeyHelp() {
  const before = document.activeElement;
  const close = h("button", { class: "button primary", autofocus: true }, t("keys.done"));
  const dialog = h(
    "dialog",
    { class: "dialog keys", "aria-labelledby": "keys-title" },
    h("h2", { id: "keys-title" }, t("keys.title")),
    KEYS.map(([title, rows]) => [h("h3", {}, t(title)), h("dl", {}, rows.map(row))]),
    h("form", { method: "dialog", class: "row end" }, close),
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected) before.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  dialog.scrollTop = 0; // the button has the focus, but one reads from the top
}

function row([keys, what]) {
  const names = keys.map((key, index) => [index > 0 && " / ", h("kbd", {}, key)]);
  return h("div", {}, h("dt", {}, names), h("dd", {}, t(what)));
}
