// What a search should show, and how the page looks. Kept in this browser only.

import { get } from "../api.js";
import { note } from "../components/notice.js";
import { announce, h, show, unique } from "../dom.js";
import { percent } from "../format.js";
import { DEFAULTS, keep, settings } from "../settings.js";

export function settingsView(place, { signal, title }) {
  title("Settings");
  const form = h("div", { class: "stack" });
  show(
    place,
    h("h1", {}, "Settings"),
    h("p", { class: "lead" }, "Kept in this browser; every search from here on follows them."),
    form,
  );
  fill(form, signal);
}

function fill(form, signal) {
  const now = settings();
  const calibration = h("div", {});
  const reset = () => {
    keep(DEFAULTS);
    window.hapvrTheme.choose("system");
    fill(form, signal);
    announce("All settings have their defaults again.");
  };
  show(
    form,
    h("section", { class: "card stack" }, h("h2", {}, "Search"), threshold(now), calibration, number(now), exact(now)),
    h("section", { class: "card stack" }, h("h2", {}, "Search, comparison and duplicates"), shared(now)),
    h("section", { class: "card stack" }, h("h2", {}, "Looks"), theme()),
    h("div", {}, h("button", { type: "button", class: "button quiet", onclick: reset }, "Back to the defaults")),
  );
  get("library", { signal }).then(
    (library) =>
      library.calibration ||
      show(
        calibration,
        note("This library's model gives no probabilities: the threshold has no effect.", {
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
    const text = value > 0 ? percent(value) : "everything";
    said.textContent = value > 0 ? `${text} or more` : text;
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
    h("div", { class: "row between" }, h("label", { for: id }, "Minimum probability"), said),
    input,
    h(
      "p",
      { id: hint, class: "muted small-text" },
      "Less probable matches are not shown. At 50% a hit is as likely right as wrong.",
    ),
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
    h("div", { class: "row between" }, h("label", { for: id }, "Matches shown at most"), input),
    h("p", { id: hint, class: "muted small-text" }, "From 1 to 100."),
  );
}

function exact(now) {
  return choice("Exact search", now.exact, {
    hint: "Compare with every video in full, not only with the likeliest. Slower in a large library.",
    change: (checked) => keep({ exact: checked }),
  });
}

function shared(now) {
  return choice("Ignore shared footage", now.ignoreShared, {
    hint: "Intros, end cards and the like that many videos of the library show make no match; they are marked.",
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
    h("legend", { class: "visually-hidden" }, "Colours"),
    [
      ["system", "As the system"],
      ["light", "Light"],
      ["dark", "Dark"],
    ].map(item),
  );
}
