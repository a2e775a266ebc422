// Which part of one video is which part of another: two bars, and a ribbon from each stretch to its match.

import { h, s } from "../dom.js";
import { clock, span } from "../format.js";
import { t } from "../i18n.js";

const WIDTH = 1000;
const BAR = 10;
const GAP = 26;
const HEIGHT = 2 * BAR + GAP;

/**
 * A drawing of the segments with the names of both sides; the same is said in words to a screen reader.
 * `query` and `target` are { label, duration }.
 */
export function timeline(segments, query, target) {
  const lengths = [lengthOf(query, segments, "query"), lengthOf(target, segments, "target")];
  const drawing = s(
    "svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      class: "timeline-drawing",
      "aria-hidden": "true",
    },
    s("rect", { class: "timeline-bar", x: 0, y: 0, width: WIDTH, height: BAR, rx: 3 }),
    s("rect", { class: "timeline-bar", x: 0, y: BAR + GAP, width: WIDTH, height: BAR, rx: 3 }),
    segments.map((segment, index) => shapes(segment, lengths, index)),
  );
  return h(
    "div",
    { class: "timeline" },
    h("p", { class: "timeline-row" }, h("span", {}, query.label), h("span", {}, clock(lengths[0]))),
    drawing,
    h("p", { class: "timeline-row" }, h("span", {}, target.label), h("span", {}, clock(lengths[1]))),
    h(
      "ul",
      { class: "visually-hidden" },
      segments.map((segment) => h("li", {}, sentence(segment))),
    ),
    sharedNote(segments),
  );
}

/** One segment in words: "0:03–0:09 of the query is 0:12–0:18 of this video". */
export function sentence(segment) {
  return t("hit.sentence", { query: span(segment.query), target: span(segment.target) }) + describeSegment(segment);
}

/** What is special about a segment, after a comma each; nothing for most. */
export function describeSegment({ backwards, shared }) {
  return `${backwards ? t("hit.backwards") : ""}${shared ? t("hit.shared") : ""}`;
}

/** What shared footage is, where a drawing shows some; null where it shows none. */
export function sharedNote(segments) {
  if (!segments.some((one) => one.shared)) return null;
  return h("p", { class: "shared-note" }, t("hit.dashed"));
}

function shapes(segment, [queryLength, targetLength], index) {
  const place = (time, length) => Math.max(0, Math.min(WIDTH, (time / length) * WIDTH));
  const [a, b] = segment.query.map((time) => place(time, queryLength));
  let [c, d] = segment.target.map((time) => place(time, targetLength));
  const least = 4; // a short match in a long video is still seen
  const block = (from, to, y) =>
    s("rect", { x: Math.min(from, WIDTH - least), y, width: Math.max(least, to - from), height: BAR, rx: 2 });
  const blocks = [block(a, b, 0), block(Math.min(c, d), Math.max(c, d), BAR + GAP)];
  if (segment.backwards) [c, d] = [d, c]; // the ribbon is twisted
  const top = BAR + 1;
  const bottom = BAR + GAP - 1;
  const middle = (top + bottom) / 2;
  const curve =
    `M${a} ${top} C${a} ${middle} ${c} ${middle} ${c} ${bottom} L${d} ${bottom} ` +
    `C${d} ${middle} ${Math.max(b, a + least)} ${middle} ${Math.max(b, a + least)} ${top} Z`;
  const tone = segment.shared ? "timeline-shared" : `tone-${index % 4}`;
  return s("g", { class: `timeline-match ${tone}` }, s("path", { d: curve }), blocks);
}

/** A duration that is not known is at least as long as what matched. */
function lengthOf(side, segments, name) {
  const last = Math.max(0, ...segments.flatMap((segment) => segment[name]));
  return Math.max(side.duration || 0, last) || 1;
}
