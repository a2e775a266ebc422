// Two videos of a library that show the same: how that is known, and a way to say that it is not so.

import { post, remove } from "../api.js";
import { announce, h, show } from "../dom.js";
import { icon } from "../icons.js";
import { verdictBadge, verdictReason } from "./badge.js";
import { matchAddress } from "./hitcard.js";
import { toast } from "./notice.js";
import { timeline } from "./timeline.js";

const KINDS = {
  identical: "is the same file as",
  duplicate: "is the same as",
  contained: "is part of",
  contains: "contains a part of",
  shared: "shares a stretch with",
};

/** `byId` are the videos that the link may name. */
export function linkRow(link, byId) {
  const [a, b] = [link.a, link.b].map((id) => byId.get(id) ?? { id, name: id });
  const pair = `${a.name} and ${b.name}`;
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
      h("a", { class: "button quiet small", href: address, "aria-label": `Compare ${pair}` }, "Side by side"),
      small("Not a duplicate", "Not a duplicate", mark),
    );
  };
  const marked = () => {
    row.classList.add("link-distinct");
    show(
      state,
      h("span", { class: "muted" }, "Marked as not a duplicate"),
      small("Undo", "Undo", unmark, icon("undo")),
    );
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
  const mark = () => tell(post, marked, `Marked ${pair} as not a duplicate.`);
  const unmark = () => tell(remove, offered, "The mark was removed.");

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
      h("span", { class: "muted" }, ` ${KINDS[link.kind] ?? "shows the same as"} `),
      h("strong", {}, b.name),
    ),
    link.kind === "identical"
      ? h("p", { class: "sure sure-4" }, "The same bytes")
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
