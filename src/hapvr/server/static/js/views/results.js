// What a search found: its progress first, then the hits.

import { get, media, part, post } from "../api.js";
import { filterLine } from "../components/filterpanel.js";
import { hitCard, soundCard } from "../components/hitcard.js";
import { emptyState, errorState, note, skeleton, toast } from "../components/notice.js";
import { jobProgress, ProgressCard } from "../components/progress.js";
import { announce, h, show } from "../dom.js";
import { clock, decimal, percent } from "../format.js";
import { t } from "../i18n.js";
import { cancel, resultOf } from "../jobs.js";
import { recall, remember } from "../memory.js";
import { go } from "../router.js";
import { searchFields, settings } from "../settings.js";

const TITLES = { queued: t("queued"), running: t("results.running") };

export async function resultsView(place, { parameters, signal, title }) {
  title(t("results.title"));
  const body = h("div", {});
  const heading = h("h1", {}, t("results"));
  show(place, heading, body);
  const card = new ProgressCard({ title: TITLES.running, stop: () => cancel(parameters.job) });
  card.update({ total: 0, message: "" });
  show(body, card.element, skeleton(3, "hit"));
  try {
    const result = await resultOf(parameters.job, (job) => card.update(jobProgress(job, TITLES)), { signal });
    const roots = result.filter?.root ? (await get("library", { signal })).roots : [];
    showResult(body, heading, result, title, roots);
  } catch (error) {
    if (error.name === "AbortError") return;
    const again = h("a", { class: "button primary", href: "#/" }, t("results.again"));
    if (error.type === "Cancelled") {
      show(body, emptyState({ picture: "cross", title: t("results.cancelled"), actions: [again] }));
      return;
    }
    show(body, errorState(error, { title: t("results.failed"), actions: [again] }));
  }
}

function showResult(body, heading, result, title, roots) {
  const query = sideOf(result.query);
  const matches = result.hits.filter((hit) => hit.match);
  const others = result.hits.filter((hit) => !hit.match);
  heading.textContent = matches.length ? t("n.matches", { n: matches.length }) : t("results.none");
  title(t("results.for", { found: heading.textContent, name: query.name }));
  announce(t("results.for", { found: heading.textContent, name: query.name }));
  const list = (hits, from) =>
    h(
      "ol",
      { class: "hits", start: from },
      hits.map((hit, index) => hitCard(hit, query, from + index)),
    );
  show(
    body,
    about(query, result, roots),
    result.warnings.length > 0 && note(t("results.warnings", { text: result.warnings.join(" ") }), { kind: "warning" }),
    result.hits.some((hit) => hit.probability === null) && note(t("results.noProbability")),
    matches.length > 0 && [h("h2", { class: "visually-hidden" }, t("results.matches")), list(matches, 1)],
    others.length > 0 &&
      h(
        "details",
        { class: "others", open: !matches.length },
        h("summary", {}, t("results.others", { n: others.length })),
        list(others, matches.length + 1),
      ),
    result.sound_hits.length > 0 && [
      h("h2", {}, t("results.sound")),
      h(
        "ol",
        { class: "hits" },
        result.sound_hits.map((hit) => soundCard(hit, query)),
      ),
    ],
    !result.hits.length && !result.sound_hits.length && nothing(query, result.note),
  );
}

/** Uploads have ids that begin with "q"; those of videos are hexadecimal. */
const kindOf = (id) => (id.startsWith("q") ? "queries" : "videos");

/** A query as a side: one of this tab's uploads, or a video of the library. */
function sideOf({ id, name, duration }) {
  const known = recall(id) ?? { kind: kindOf(id), id };
  const side = { ...known, name: name ?? known.name, duration: duration ?? 0, still: known.still ?? !duration };
  remember(id, side);
  if (side.id !== id) remember(side.id, side);
  return side;
}

function about(query, result, roots) {
  const seconds = Object.values(result.seconds ?? {}).reduce((sum, one) => sum + one, 0);
  const strip = h("img", { class: "query-strip", alt: "", src: media(query, "strip", { count: 6, height: 72 }) });
  if (query.still) strip.src = media(query, "thumbnail", { width: 240 });
  strip.addEventListener("error", () => strip.remove());
  const facts = [
    query.still ? t("results.aPicture") : clock(query.duration),
    t("results.searched", { videos: t("n.videos", { n: result.database }) }),
    result.scored < result.database && t("results.compared", { n: result.scored }),
    result.prior !== null && t("results.prior", { prior: percent(result.prior) }),
    seconds > 0 && `${decimal(seconds, seconds < 10 ? 1 : 0)} s`,
  ].filter(Boolean);
  return h(
    "section",
    { class: "card query", "aria-label": t("results.about") },
    strip,
    h(
      "div",
      { class: "query-text" },
      h("p", { class: "query-name" }, query.name),
      h("p", { class: "muted small-text" }, facts.join(" · ")),
      filterLine(result.filter, roots),
    ),
    h("a", { class: "button quiet small", href: "#/" }, t("newSearch")),
  );
}

/** No hits: because of the query itself, if the server says so; else because nothing is like it. */
function nothing(query, why) {
  if (why) {
    const again = h("a", { class: "button primary", href: "#/" }, t("newSearch"));
    return emptyState({ picture: "search", title: t("results.nothingTo"), text: why, actions: [again] });
  }
  const { least, exact } = settings();
  const tips = [
    least > 0 && t("results.tip.least", { share: percent(least) }),
    !exact && t("results.tip.exact"),
  ].filter(Boolean);
  return emptyState({
    picture: "search",
    title: t("results.nothing"),
    text: tips.join(" ") || t("results.noVideo", { name: query.name }),
    actions: [
      h("a", { class: "button", href: "#/settings" }, t("results.settings")),
      h("a", { class: "button primary", href: "#/" }, t("newSearch")),
    ],
  });
}

/** Search for a video of the library, and go to where its results will be. */
export async function searchById(video) {
  try {
    const { job, query } = await post("searches", { id: video.id, ...searchFields() });
    const side = { kind: "videos", id: video.id, name: video.name, still: !video.duration };
    remember(query, side);
    remember(video.id, side);
    go(["results", job.id]);
  } catch (error) {
    toast(error.message, { kind: "error" });
  }
}

/** The side that an address names as "q:..." or "v:...": what is remembered of it, or what the server says. */
export async function sideFromAddress(text, signal) {
  const [kind, id] = [text.startsWith("q:") ? "queries" : "videos", text.replace(/^[qv]:/, "")];
  const known = recall(id);
  if (known && known.kind === kind && known.duration !== undefined) return known;
  if (kind === "videos") {
    const video = await get(`videos/${part(id)}`, { signal });
    return { kind, id, name: video.name, duration: video.duration, still: !video.duration };
  }
  const { name, duration } = await get(`queries/${part(id)}`, { signal });
  return { kind, id, name, duration, still: known?.still ?? !duration };
}
