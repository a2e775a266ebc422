// The server asks for a token: enter it, and go on where one was.

import { login } from "../api.js";
import { h, show, unique } from "../dom.js";
import { t } from "../i18n.js";
import { icon } from "../icons.js";

export function loginView(place, { done }) {
  document.title = `${t("login.title")} – hapvr`;
  const id = unique("token");
  const problem = h("p", { class: "field-problem", role: "alert" });
  const input = h("input", { id, type: "password", autocomplete: "current-password", required: true });
  const button = h("button", { type: "submit", class: "button primary" }, t("login.go"));
  const submit = async (event) => {
    event.preventDefault();
    problem.textContent = "";
    button.disabled = true;
    try {
      await login(input.value.trim());
      done();
    } catch (error) {
      problem.textContent = [error.message, error.hint].filter(Boolean).join(" ");
      button.disabled = false;
      input.select();
      input.focus();
    }
  };
  show(
    place,
    h(
      "form",
      { class: "card login stack", onsubmit: submit },
      h("div", { class: "state-icon" }, icon("lock")),
      h("h1", {}, t("login.heading")),
      h("p", { class: "muted" }, t("login.who")),
      h("div", { class: "field" }, h("label", { for: id }, t("login.token")), input),
      problem,
      button,
    ),
  );
  input.focus();
}
