// Two videos of a library that show the same: how that is known, and a way to say that it is not so.

import { post, remove } from "../api.js";
import { announce, h, show } from "../dom.js";
import { t } from "../i18n.js";
import { icon } from "../icons.js";
import { verdictBadge, verdictReason } from "./badge.js";
import { matchAddress } from "./hitcard.js";
import { toast } from "./notice.js";
import { timeline } from "./timeline.js";

const KINDS = {
  identical: t("link.identical"),
  duplicate: t("link.duplicate"),
  contained: t("link.contained"),
  contains: t("link.contains"),
  shared: t("link.shared"),
};

/** `byId` are the videos that the link may name. */
export function linkRow(link, byId) {
  const [a, b] = [link.a, link.b].map((id) => byId.get(id) ?? { id, name: id });
  const pair = t("match.pair", { a: a.name, b: b.name });
  const row = h("li", { class: "link" });
  const state = h("div", { class: "row link-actions" });
  const small = (label, text, onclick, ...before) =>
    h(
      "button",
      { type: "button", class: "button quiet small", "aria-label": `${label}: ${pair}`, onclick },
      before,
      text,
    );

  const offered = () => {
    row.classList.remove("link-distinct");
    const address = matchAddress({ kind: "videos", id: a.id }, b.id);
    show(
      state,
      h(
        "a",
        { class: "button quiet small", href: address, "aria-label": t("link.compare", { pair }) },
        t("sideBySide"),
      ),
      small(t("link.distinct"), t("link.distinct"), mark),
    );
  };
  const marked = () => {
    row.classList.add("link-distinct");
    show(state, h("span", { class: "muted" }, t("link.marked")), small(t("undo"), t("undo"), unmark, icon("undo")));
  };
  const tell = async (send, then, text) => {
    try {
      await send("duplicates/distinct", { a: a.id, b: b.id });
      then();
      state.querySelector("button").focus();
      announce(text);
    } catch (error) {
      toast([error.message, error.hint].filter(Boolean).join(" "), { kind: "error" });
    }
  };
  const mark = () => tell(post, marked, t("link.markedPair", { pair }));
  const unmark = () => tell(remove, offered, t("link.unmarked"));

  offered();
  show(row, facts(link, a, b), drawing(link, a, b), state);
  return row;
}

function facts(link, a, b) {
  return h(
    "div",
    { class: "link-facts" },
    h(
      "p",
      { class: "link-names" },
      h("strong", {}, a.name),
      h("span", { class: "muted" }, ` ${KINDS[link.kind] ?? t("link.same")} `),
      h("strong", {}, b.name),
    ),
    link.kind === "identical"
      ? h("p", { class: "sure sure-4" }, t("sameBytes"))
      : [verdictBadge(link), verdictReason(link)],
  );
}

function drawing(link, a, b) {
  const segments = segmentsOf(link);
  if (!segments.length) return null;
  return timeline(segments, { label: a.name, duration: a.duration }, { label: b.name, duration: b.duration });
}

/** The stretches of a link; a picture has none, but the seconds of the other that show it. */
function segmentsOf({ segments = [], intervals = null, speed = 1 }) {
  if (segments.length || !intervals) return segments;
  return [{ query: intervals[0], target: intervals[1], backwards: speed < 0 }];
}
