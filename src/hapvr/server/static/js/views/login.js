// The server asks for a token: enter it, and go on where one was.

import { login } from "../api.js";
import { h, show, unique } from "../dom.js";
import { icon } from "../icons.js";

export function loginView(place, { done }) {
  document.title = "Sign in – hapvr";
  const id = unique("token");
  const problem = h("p", { class: "field-problem", role: "alert" });
  const input = h("input", { id, type: "password", autocomplete: "current-password", required: true });
  const button = h("button", { type: "submit", class: "button primary" }, "Continue");
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
      h("h1", {}, "This library asks for a token"),
      h("p", { class: "muted" }, "The person who started the server has it."),
      h("div", { class: "field" }, h("label", { for: id }, "Token"), input),
      problem,
      button,
    ),
  );
  input.focus();
}
