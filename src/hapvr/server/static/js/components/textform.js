// Words in place of a file: what is to be seen. They go into the address of the results, which can be kept or sent.

import { h, unique } from "../dom.js";
import { t } from "../i18n.js";
import { icon } from "../icons.js";
import { go } from "../router.js";
import { FilterPanel } from "./filterpanel.js";

/** For a library with a text model. `roots` are those of the library; `text` is what was last looked for. */
export function textForm(roots, text = "") {
  const [id, hint] = [unique("text"), unique("hint")];
  const words = h("input", {
    id,
    type: "search",
    value: text,
    maxlength: 500,
    required: true,
    autocomplete: "off",
    placeholder: t("text.example"),
    "aria-describedby": hint,
  });
  const filter = new FilterPanel(roots);
  return h(
    "form",
    {
      class: "card text-form",
      role: "search",
      onsubmit: (event) => {
        event.preventDefault();
        const limits = filter.value();
        if (words.value.trim() && limits !== null) go(["text"], { q: words.value.trim(), ...limits });
      },
    },
    h("label", { for: id, class: "text-label" }, t("text.label")),
    h(
      "div",
      { class: "text-row" },
      words,
      h("button", { type: "submit", class: "button" }, icon("search"), t("text.search")),
    ),
    h("p", { id: hint, class: "muted small-text" }, t("text.hint")),
    filter.element,
  );
}
