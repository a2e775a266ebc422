// A video that was found: its matching frame, how sure it is, and which part matches which.

import { media } from "../api.js";
import { h } from "../dom.js";
import { clock } from "../format.js";
import { t } from "../i18n.js";
import { address } from "../router.js";
import { verdictBadge, verdictReason } from "./badge.js";
import { pathLine } from "./pathline.js";
import { sentence, timeline } from "./timeline.js";

const SOUND = { same: "hit.sound.same", other: "hit.sound.other", silent: "hit.sound.silent" };

/** `query` is the side that was searched for: { kind, id, duration }. */
export function hitCard(hit, query, rank) {
  const best = strongest(hit.segments);
  const time = best ? (best.target[0] + best.target[1]) / 2 : hit.best.target;
  const link = h("a", { class: "hit-link", href: matchAddress(query, hit.id) }, hit.name);
  const more = hit.segments.length > 1 ? ` · ${t("hit.more", { n: hit.segments.length - 1 })}` : "";
  return h(
    "li",
    { class: "card hit", dataset: { id: hit.id } },
    hitPicture(hit, time),
    h(
      "div",
      { class: "hit-body" },
      h(
        "div",
        { class: "hit-head" },
        h("h3", {}, h("span", { class: "hit-rank" }, `${rank}.`), " ", link),
        verdictBadge(hit),
      ),
      hit.segments.length > 0
        ? timeline(
            hit.segments,
            { label: t("query"), duration: query.duration },
            { label: t("hit.video"), duration: hit.duration },
          )
        : h("p", { class: "muted" }, instant(hit)),
      best && h("p", { class: "hit-where muted", "aria-hidden": "true" }, sentence(best), more),
      verdictReason(hit),
      soundLine(hit.sound),
      hit.warnings?.length > 0 && h("p", { class: "hit-warning small-text" }, hit.warnings.join(" ")),
      pathLine(hit),
    ),
  );
}

/** The frame of a video at a time, and how long the video is, where that is known. */
export function hitPicture({ id, duration }, time) {
  const thumbnail = h("img", {
    class: "thumb",
    src: media({ kind: "videos", id }, "thumbnail", { t: time.toFixed(1), width: 320 }),
    alt: "",
    loading: "lazy",
    width: 320,
    height: 180,
  });
  thumbnail.addEventListener("error", () => thumbnail.classList.add("thumb-none"));
  const length = duration !== undefined && h("span", { class: "hit-length" }, clock(duration));
  return h("div", { class: "hit-picture" }, thumbnail, length);
}

/** A video that was found by its sound alone. */
export function soundCard(hit, query) {
  return h(
    "li",
    { class: "card hit", dataset: { id: hit.id } },
    hitPicture(hit, hit.stretches[0].target[0]),
    h(
      "div",
      { class: "hit-body" },
      h("h3", {}, h("a", { class: "hit-link", href: matchAddress(query, hit.id) }, hit.name)),
      soundLine({ kind: "same", stretches: hit.stretches }),
      pathLine(hit),
    ),
  );
}

/** What the sound says; nothing where it says nothing: it was not compared, or neither has any. */
function soundLine(sound) {
  if (!(sound?.kind in SOUND) || (sound.kind === "silent" && !sound.audible)) return null;
  const where = sound.stretches.map(sentence).join("; ");
  return h("p", { class: "hit-sound muted small-text" }, t(SOUND[sound.kind], { where }));
}

/** A picture matches at an instant; of two videos that share no footage, it is where they are most alike. */
function instant({ match, best }) {
  return t(match ? "hit.at" : "hit.alike", { time: clock(best.target) });
}

/** Where both are shown side by side. */
export function matchAddress(query, id) {
  return address(["match", `${query.kind === "queries" ? "q" : "v"}:${query.id}`, id]);
}

/** The segment with the most similar frames, weighed by its length; shared footage only where there is nothing else. */
export function strongest(segments) {
  const weight = (one) => one.score * Math.max(0.1, one.query[1] - one.query[0]);
  const own = segments.filter((one) => !one.shared);
  const choice = own.length ? own : segments;
  return choice.reduce((best, one) => (best === null || weight(one) > weight(best) ? one : best), null);
}
