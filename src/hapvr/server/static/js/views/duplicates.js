// Groups of videos that show the same: which to keep, why, and a way to say that two are not the same after all.

import { get, media, post } from "../api.js";
import { Choice, doneLine, lastAction } from "../components/actions.js";
import { FilterPanel, filterLine } from "../components/filterpanel.js";
import { linkRow } from "../components/linkrow.js";
import { emptyState, errorState, skeleton } from "../components/notice.js";
import { pathLine } from "../components/pathline.js";
import { jobProgress, ProgressCard } from "../components/progress.js";
import { announce, h, show } from "../dom.js";
import { bitrate, bytes, clock } from "../format.js";
import { t } from "../i18n.js";
import { icon } from "../icons.js";
import { cancel, ended, resultOf } from "../jobs.js";
import { settings, sharedFields } from "../settings.js";

const TITLES = { queued: t("queued"), running: t("dup.running") };

export async function duplicatesView(place, { signal, title }) {
  title(t("duplicates"));
  const body = h("div", {});
  const tools = h("div", { class: "row" });
  const lead = h("p", { class: "lead" }, t("dup.lead"));
  const done = h("div", { class: "actions-done" });
  const limits = h("div", { class: "limits" });
  show(
    place,
    h("div", { class: "row between view-head" }, h("h1", {}, t("duplicates")), tools),
    lead,
    sharedLine(),
    limits,
    done,
    body,
  );
  show(body, skeleton(2, "group"));
  const view = { body, tools, done, signal, actions: [], roots: [], filter: null };
  try {
    const library = await get("library", { signal });
    view.actions = library.actions ?? [];
    view.roots = library.roots ?? [];
    view.filter = new FilterPanel(view.roots);
    show(limits, view.filter.element);
    if (!view.actions.length) lead.append(t("dup.untouched"));
    const all = await get("jobs", { signal });
    const last = view.actions.length ? await lastAction(all, { signal }) : null;
    if (last) showDone(view, last);
    const jobs = all.filter((job) => job.kind === "duplicates");
    const running = jobs.find((job) => !ended(job));
    const found = jobs.filter((job) => job.state === "done").sort((a, b) => (a.finished < b.finished ? 1 : -1))[0];
    if (running) await watch(view, running.id);
    else if (found) await showResult(view, found.result ?? (await get(`jobs/${found.id}`, { signal })).result);
    else await offer(view);
  } catch (error) {
    if (error.name !== "AbortError" && error.status !== 401)
      show(body, errorState(error, { retry: () => duplicatesView(place, { signal, title }) }));
  }
}

/** What the next search for duplicates does with footage that many videos share. */
function sharedLine() {
  const words = settings().ignoreShared ? t("dup.sharedIgnored") : t("dup.sharedCounts");
  return h("p", { class: "muted small-text below-lead" }, words, h("a", { href: "#/settings" }, t("change")));
}

/** Nothing was looked for yet. */
async function offer(view) {
  const library = await get("library", { signal: view.signal });
  show(view.tools);
  if (library.videos < 2) {
    const add = h("a", { class: "button primary", href: "#/library" }, t("dup.addVideos"));
    show(
      view.body,
      emptyState({
        picture: "copies",
        title: t("dup.tooFew"),
        text: t("dup.needsTwo"),
        actions: [add],
      }),
    );
    return;
  }
  const all = t("n.videos", { n: library.videos });
  const text = t("dup.all", { videos: all });
  show(
    view.body,
    emptyState({
      picture: "copies",
      title: t("dup.see"),
      text,
      actions: [lookButton(view, t("dup.look"))],
    }),
  );
}

/** The same after files were moved or are back: what was found before is no longer so. */
async function offerAgain(view) {
  try {
    await offer(view);
  } catch (error) {
    if (error.name !== "AbortError") show(view.body, errorState(error, { retry: () => offerAgain(view) }));
  }
}

function lookButton(view, label, kind = "primary") {
  return h("button", { type: "button", class: `button ${kind}`, onclick: () => look(view) }, label);
}

async function look(view) {
  const only = view.filter.value();
  if (only === null) return;
  try {
    const request = { since: null, ...sharedFields(), ...only };
    const { job } = await post("duplicates", request, { signal: view.signal });
    await watch(view, job.id);
  } catch (error) {
    if (error.name === "AbortError") return;
    show(view.body, errorState(error, { title: t("dup.failed"), retry: () => look(view) }));
  }
}

async function watch(view, id) {
  show(view.tools);
  const card = new ProgressCard({ title: TITLES.running, stop: () => cancel(id) });
  card.update({ total: 0 });
  show(view.body, card.element, skeleton(2, "group"));
  try {
    const result = await resultOf(id, (job) => card.update(jobProgress(job, TITLES)), { signal: view.signal });
    showResult(view, result);
  } catch (error) {
    if (error.type !== "Cancelled") throw error;
    announce(t("dup.cancelled"));
    await offer(view);
  }
}

function showResult(view, result) {
  const { groups, links = [] } = result;
  const some = groups.length + links.length > 0;
  show(view.tools, some && exports(), lookButton(view, t("dup.again"), "quiet"));
  const only = filterLine(result.filter, view.roots);
  if (!some) {
    show(view.body, only, emptyState({ picture: "check", title: t("dup.none"), text: t("dup.noneText") }));
    announce(t("dup.none"));
    return;
  }
  const changed = (done) => (showDone(view, done), offerAgain(view));
  const choice = view.actions.length && groups.length ? new Choice(groups, view.actions, { ...view, changed }) : null;
  const spare = groups.flatMap((group) => group.videos).filter((video) => !video.keep);
  const size = spare.reduce((sum, video) => sum + (video.size || 0), 0);
  const [found, left] = [t("n.groups", { n: groups.length }), t("n.videos", { n: spare.length })];
  const summary = groups.length
    ? t("dup.summary", { groups: found, videos: left, size: bytes(size) })
    : t("dup.onlyParts");
  show(
    view.body,
    only,
    h("p", { class: "summary" }, summary),
    choice?.element,
    h(
      "ol",
      { class: "groups" },
      groups.map((group, index) => groupCard(group, index + 1, choice)),
    ),
    links.length > 0 && parts(links, result),
  );
  announce(summary);
}

/** Videos that are part of others or share a stretch with them: evidence, but nothing to spare. */
function parts(links, { videos = [] }) {
  const byId = new Map(Object.values(videos).map((video) => [video.id, video]));
  return h(
    "section",
    { class: "card group parts" },
    h("h2", {}, t("dup.parts")),
    h(
      "ul",
      { class: "links" },
      links.map((link) => linkRow(link, byId)),
    ),
  );
}

/** The report as the command writes it. */
function exports() {
  return ["csv", "json"].map((form) =>
    h(
      "a",
      { class: "button quiet small", href: `api/duplicates.${form}`, download: `duplicates.${form}` },
      icon("download"),
      form.toUpperCase(),
    ),
  );
}

/** What was done with files, above everything else. */
function showDone(view, result) {
  const undone = () => {
    show(view.done);
    offerAgain(view);
  };
  show(view.done, doneLine(result, { signal: view.signal, undone }));
}

function groupCard(group, number, choice) {
  const byId = new Map(group.videos.map((video) => [video.id, video]));
  const ordered = [...group.videos].sort((a, b) => Number(b.keep) - Number(a.keep));
  return h(
    "li",
    { class: "card group" },
    h(
      "h2",
      {},
      t("dup.group", { number }),
      h("span", { class: "muted" }, ` · ${t("n.videos", { n: group.videos.length })}`),
    ),
    h(
      "ul",
      { class: "group-videos" },
      ordered.map((video) => videoTile(video, group.reason, choice?.box(video))),
    ),
    h("h3", {}, t("dup.evidence")),
    h(
      "ul",
      { class: "links" },
      group.links.map((link) => linkRow(link, byId)),
    ),
  );
}

/** What the tile of the suggested copy says; where the reason is doubtful, it suggests nothing. */
function keepBadge(why) {
  if ((why || "").startsWith("unsure")) return h("span", { class: "keep keep-unsure" }, t("unsure"));
  return h("span", { class: "keep" }, icon("check"), t("dup.keep"));
}

function videoTile(video, reason = null, box = null) {
  const why = video.why || (video.keep ? reason : null);
  const picture = h("img", {
    class: "thumb",
    src: media({ kind: "videos", id: video.id }, "thumbnail", {
      t: ((video.duration || 0) / 2).toFixed(1),
      width: 320,
    }),
    alt: "",
    loading: "lazy",
  });
  picture.addEventListener("error", () => picture.classList.add("thumb-none"));
  const facts = [
    video.width && `${video.width} × ${video.height}`,
    video.duration ? clock(video.duration) : t("picture"),
    video.bitrate && bitrate(video.bitrate),
    bytes(video.size),
  ].filter(Boolean);
  return h(
    "li",
    { class: `tile ${video.keep ? "tile-keep" : ""}`, dataset: { id: video.id } },
    h("div", { class: "tile-picture" }, picture, video.keep && keepBadge(why)),
    h("p", { class: "tile-name", title: video.name }, video.name),
    h("p", { class: "muted small-text" }, facts.join(" · ")),
    why && h("p", { class: "tile-why small-text" }, why),
    pathLine(video),
    box,
  );
}
