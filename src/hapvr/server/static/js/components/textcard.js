// A video that fits a description: the frame that fits best, and the moments to play it from.

import { h } from "../dom.js";
import { clock, decimal } from "../format.js";
import { t } from "../i18n.js";
import { searchById } from "../views/results.js";
import { hitPicture } from "./hitcard.js";
import { pathLine } from "./pathline.js";
import { Screen } from "./screen.js";

export function textCard(hit, rank, { signal }) {
  const player = h("div", { class: "hit-player" });
  player.hidden = true;
  const [best] = hit.instants;
  const play = playerIn(player, hit, signal);
  const name = h("button", { type: "button", class: "hit-link", onclick: () => play(best.time_s) }, hit.name);
  const moments = hit.instants.map(({ time_s: time }) =>
    h(
      "button",
      {
        type: "button",
        class: "chip",
        "aria-label": t("text.play", { name: hit.name, time: clock(time) }),
        onclick: () => play(time),
      },
      clock(time),
    ),
  );
  const similar = h(
    "button",
    {
      type: "button",
      class: "button quiet small",
      "aria-label": t("list.similarTo", { name: hit.name }),
      onclick: () => searchById(hit),
    },
    t("list.similar"),
  );
  return h(
    "li",
    { class: "card hit", dataset: { id: hit.id } },
    hitPicture(hit, best.time_s),
    h(
      "div",
      { class: "hit-body" },
      h("div", { class: "hit-head" }, h("h3", {}, h("span", { class: "hit-rank" }, `${rank}.`), " ", name)),
      h("div", { class: "text-moments" }, h("span", { class: "muted" }, t("text.moments")), moments, similar),
      h("p", { class: "muted small-text" }, t("text.similarity", { value: decimal(best.similarity, 3) })),
      pathLine(hit),
    ),
    player,
  );
}

/** A function that plays a video from a moment, in a place that is hidden until then. */
function playerIn(place, { id, name, duration }, signal) {
  let screen = null;
  return async (time) => {
    if (screen === null) {
      screen = new Screen({ kind: "videos", id, name, duration }, { label: name, still: !duration, signal });
      const control = () => screen.image instanceof HTMLVideoElement && (screen.image.controls = true);
      screen.addEventListener("upgraded", control);
      place.replaceChildren(screen.element);
      place.hidden = false;
      await screen.ready;
      if (signal.aborted) return;
      control();
    } else {
      await screen.ready;
    }
    screen.seek(time);
    screen.play();
    place.scrollIntoView({ block: "center" });
  };
}
