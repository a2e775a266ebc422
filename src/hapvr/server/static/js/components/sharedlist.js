// Footage that many videos of the library share: how long it is, in how many videos, and frames of some of them.

import { media } from "../api.js";
import { h } from "../dom.js";
import { decimal, span } from "../format.js";
import { t } from "../i18n.js";

const FIRST = 4; // clips that are shown at once
const EXAMPLES = 3; // videos of a clip that are shown

/** `clips` and `complete` as the server gives them; null where there is nothing to say. */
export function sharedList({ clips, complete }) {
  if (!clips.length && complete) return null;
  const list = h("ul", { class: "shared-clips" }, clips.slice(0, FIRST).map(clipRow));
  const showRest = () => {
    list.append(...clips.slice(FIRST).map(clipRow));
    more.remove();
  };
  const more =
    clips.length > FIRST &&
    h(
      "button",
      { type: "button", class: "button quiet small", onclick: showRest },
      t("n.more", { n: clips.length - FIRST }),
    );
  return h(
    "section",
    { class: "card stack", id: "shared" },
    h("h2", {}, t("shared.title")),
    h("p", { class: "muted small-text" }, complete ? t("shared.text") : t("shared.tooLarge")),
    clips.length > 0 && list,
    more,
  );
}

function clipRow({ seconds, videos, occurrences }) {
  return h(
    "li",
    { class: "shared-clip" },
    h("h3", {}, t("shared.clip", { seconds: decimal(seconds, 1), videos: t("n.videos", { n: videos }) })),
    h("ul", { class: "shared-places" }, occurrences.slice(0, EXAMPLES).map(placeItem)),
  );
}

/** A frame of one video that shows the clip, and where that is. */
function placeItem({ id, name, start_s: start, end_s: end }) {
  const picture = h("img", {
    class: "thumb",
    src: media({ kind: "videos", id }, "thumbnail", { t: ((start + end) / 2).toFixed(1), width: 320 }),
    alt: "",
    loading: "lazy",
    width: 320,
    height: 180,
  });
  picture.addEventListener("error", () => picture.classList.add("thumb-none"));
  return h(
    "li",
    { class: "shared-place" },
    picture,
    h("p", { class: "shared-name small-text", title: name }, name),
    h("p", { class: "muted small-text" }, span([start, end])),
  );
}
