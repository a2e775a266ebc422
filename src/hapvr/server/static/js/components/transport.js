// Play, pause, step, speed, repeat and sound, for two videos at once. Space and the letter k play and pause.

import { h, show, unique } from "../dom.js";
import { t } from "../i18n.js";
import { icon } from "../icons.js";

const PACES = [0.25, 0.5, 1, 1.5, 2];
const STEP_S = 1;

export function transport(duet, { signal }) {
  const play = h("button", { type: "button", class: "button primary play", onclick: () => duet.toggle() });
  const loop = h(
    "button",
    {
      type: "button",
      class: "icon-button",
      "aria-pressed": "false",
      "aria-label": t("transport.loop"),
      title: t("transport.loop"),
    },
    icon("loop"),
  );
  loop.addEventListener("click", () => {
    duet.loop = !duet.loop;
    loop.setAttribute("aria-pressed", String(duet.loop));
  });
  const step = (by) => duet.seek(duet.leads, duet[duet.leads].time + by);
  const stepper = (name, label, by) =>
    h(
      "button",
      { type: "button", class: "icon-button", "aria-label": label, title: label, onclick: () => step(by) },
      icon(name),
    );

  const refresh = () => {
    if (play.dataset.playing === String(duet.playing)) return;
    play.dataset.playing = String(duet.playing);
    show(play, icon(duet.playing ? "pause" : "play"), duet.playing ? t("transport.pause") : t("transport.play"));
  };
  duet.addEventListener("change", refresh);
  refresh();
  document.addEventListener("keydown", (event) => keys(event, duet), { signal });

  return h(
    "div",
    { class: "transport", role: "group", "aria-label": t("transport.both") },
    play,
    stepper("back", t("transport.back"), -STEP_S),
    stepper("forward", t("transport.on"), STEP_S),
    loop,
    choice(
      t("transport.speed"),
      PACES.map((pace) => [pace, `${pace}×`]),
      duet.pace,
      (value) => (duet.pace = Number(value)),
    ),
    choice(
      t("transport.sound"),
      [
        ["none", t("transport.off")],
        ["query", t("transport.ofQuery")],
        ["target", t("transport.ofMatch")],
      ],
      "none",
      (value) => (duet.sound = value),
    ),
  );
}

function choice(label, options, present, change) {
  const id = unique("choice");
  const select = h(
    "select",
    { id, onchange: () => change(select.value) },
    options.map(([value, text]) => h("option", { value, selected: value === present }, text)),
  );
  return h("span", { class: "transport-choice" }, h("label", { for: id }, label), select);
}

function keys(event, duet) {
  if (event.key !== " " && event.key !== "k") return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // Buttons, fields and links have a use of their own for the space bar.
  if (event.target.closest("button, a, select, textarea, input:not([type=range])")) return;
  event.preventDefault();
  duet.toggle();
}
