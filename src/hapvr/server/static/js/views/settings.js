// What a search should show, and how the page looks. Kept in this browser only.

import { get, post } from "../api.js";
import { note } from "../components/notice.js";
import { announce, h, show, unique } from "../dom.js";
import { percent } from "../format.js";
import { t } from "../i18n.js";
import { follow } from "../jobs.js";
import { DEFAULTS, keep, settings } from "../settings.js";

export function settingsView(place, { signal, title }) {
  title(t("settings"));
  const form = h("div", { class: "stack" });
  show(place, h("h1", {}, t("settings")), h("p", { class: "lead" }, t("set.lead")), form);
  fill(form, signal);
}

function fill(form, signal) {
  const now = settings();
  const calibration = h("div", {});
  const reset = () => {
    keep(DEFAULTS);
    window.hapvrTheme.choose("system");
    fill(form, signal);
    announce(t("set.reset.done"));
  };
  show(
    form,
    h(
      "section",
      { class: "card stack" },
      h("h2", {}, t("search")),
      threshold(now),
      calibration,
      number(now),
      exact(now),
    ),
    h("section", { class: "card stack" }, h("h2", {}, t("set.compare")), shared(now)),
    h("section", { class: "card stack" }, h("h2", {}, t("set.looks")), theme()),
    h("section", { class: "card stack" }, h("h2", {}, t("check.title")), check(signal)),
    h("div", {}, h("button", { type: "button", class: "button quiet", onclick: reset }, t("set.reset"))),
  );
  get("library", { signal }).then(
    (library) =>
      library.calibration ||
      show(
        calibration,
        note(t("set.noProbability"), {
          kind: "warning",
        }),
      ),
    () => {}, // the settings can be changed all the same
  );
}

function threshold(now) {
  const [id, hint] = [unique("least"), unique("hint")];
  const said = h("output", { for: id, class: "setting-value" });
  const input = h("input", {
    id,
    type: "range",
    min: 0,
    max: 0.99,
    step: 0.01,
    value: now.least,
    "aria-describedby": hint,
  });
  const tell = () => {
    const value = Number(input.value);
    const text = value > 0 ? percent(value) : t("set.everything");
    said.textContent = value > 0 ? t("set.orMore", { share: text }) : text;
    input.setAttribute("aria-valuetext", said.textContent);
  };
  input.addEventListener("input", () => {
    keep({ least: Number(input.value) });
    tell();
  });
  tell();
  return h(
    "div",
    { class: "setting" },
    h("div", { class: "row between" }, h("label", { for: id }, t("set.least")), said),
    input,
    h("p", { id: hint, class: "muted small-text" }, t("set.least.hint")),
  );
}

function number(now) {
  const [id, hint] = [unique("k"), unique("hint")];
  const input = h("input", {
    id,
    type: "number",
    min: 1,
    max: 100,
    step: 1,
    value: now.k,
    inputmode: "numeric",
    "aria-describedby": hint,
  });
  input.addEventListener("change", () => {
    input.value = keep({ k: Math.max(1, Math.min(100, Number(input.value) || DEFAULTS.k)) }).k;
  });
  return h(
    "div",
    { class: "setting" },
    h("div", { class: "row between" }, h("label", { for: id }, t("set.most")), input),
    h("p", { id: hint, class: "muted small-text" }, t("set.most.hint")),
  );
}

function exact(now) {
  return choice(t("set.exact"), now.exact, {
    hint: t("set.exact.hint"),
    change: (checked) => keep({ exact: checked }),
  });
}

function shared(now) {
  return choice(t("set.shared"), now.ignoreShared, {
    hint: t("set.shared.hint"),
    change: (checked) => keep({ ignoreShared: checked }),
  });
}

/** A setting that is on or off. */
function choice(label, checked, { hint, change }) {
  const [id, hintId] = [unique("choice"), unique("hint")];
  const input = h("input", { id, type: "checkbox", checked, "aria-describedby": hintId });
  input.addEventListener("change", () => change(input.checked));
  return h(
    "div",
    { class: "setting" },
    h("label", { class: "check", for: id }, input, h("span", {}, label)),
    h("p", { id: hintId, class: "muted small-text" }, hint),
  );
}

function theme() {
  const item = ([value, label]) =>
    h(
      "label",
      { class: "segmented-item" },
      h("input", {
        type: "radio",
        name: "theme",
        value,
        checked: window.hapvrTheme.chosen() === value,
        onchange: () => window.hapvrTheme.choose(value),
      }),
      h("span", {}, label),
    );
  return h(
    "fieldset",
    { class: "segmented" },
    h("legend", { class: "visually-hidden" }, t("set.colours")),
    [
      ["system", t("set.system")],
      ["light", t("set.light")],
      ["dark", t("set.dark")],
    ].map(item),
  );
}

/** A check of the library: whether everything in it is as it was written. */
function check(signal) {
  const answer = h("div", { "aria-live": "polite" });
  const button = h("button", { type: "button", class: "button" }, t("check.begin"));
  button.addEventListener("click", async () => {
    button.disabled = true;
    show(answer, h("p", { class: "muted" }, t("check.running")));
    try {
      const { job } = await post("jobs/check", {}, { signal });
      const ended = await follow(job.id, () => {}, { signal });
      const failed = () => [note(ended.error?.message ?? ended.state, { kind: "error" })];
      show(answer, ...(ended.result ? told(ended.result) : failed()));
    } catch (error) {
      if (error.name !== "AbortError") show(answer, note(error.message, { kind: "error" }));
    } finally {
      button.disabled = false;
    }
  });
  return h(
    "div",
    { class: "setting stack" },
    h("p", { class: "muted small-text" }, t("check.hint")),
    h("div", {}, button),
    answer,
  );
}

function told(result) {
  if (result.intact) return [note(t("check.sound", { videos: result.videos }))];
  const item = (one) => h("li", {}, `${one.place}: ${one.what} ${one.remedy}`);
  return [
    note(t("check.damaged", { count: result.problems.length }), { kind: "warning" }),
    h("ul", { class: "small-text" }, result.problems.slice(0, 30).map(item)),
  ];
}
