// Adding a folder of videos, and how far it has come. Folders lie under the roots that the server was started with.

import { get, post } from "../api.js";
import { h, unique } from "../dom.js";
import { lasting } from "../format.js";
import { t } from "../i18n.js";
import { cancel, ended, follow } from "../jobs.js";
import { folderButton } from "./folderpicker.js";
import { errorState, note, toast } from "./notice.js";
import { jobProgress, ProgressCard } from "./progress.js";

const TITLES = { queued: t("add.queued"), running: t("add.running") };

/** `changed` is called when an add has ended: counts and lists are then out of date. */
export function addFolder(roots, { signal, changed }) {
  const jobs = h("div", { class: "stack" });
  const watched = new Set();
  const watch = (job) => {
    if (watched.has(job.id)) return;
    watched.add(job.id);
    watchJob(jobs, job, { signal, changed });
  };
  resume(watch, signal);
  const start = async (body) => {
    const { job } = await post("jobs/add", { path: "", prune: false, retry: false, ...body });
    watch(job);
  };
  const element = h(
    "section",
    { class: "card", id: "add" },
    h("h2", {}, t("add.title")),
    roots.length ? form(roots, start) : note(t("add.notAllowed")),
    jobs,
  );
  /** Try again what failed, under every root. */
  const retry = async () => {
    try {
      for (const root of roots) await start({ root: root.id, retry: true });
    } catch (error) {
      toast(error.message, { kind: "error" });
    }
  };
  return { element, retry };
}

function form(roots, start) {
  const [root, path, prune] = [unique("root"), unique("path"), unique("prune")];
  const problem = h("p", { class: "field-problem", role: "alert" });
  const button = h("button", { type: "submit", class: "button primary" }, t("add.add"));
  const fields = {
    root: h(
      "select",
      { id: root, name: "root" },
      roots.map((one) => h("option", { value: one.id }, one.name)),
    ),
    path: h("input", {
      id: path,
      type: "text",
      name: "path",
      placeholder: t("filter.allOfIt"),
      autocomplete: "off",
      spellcheck: "false",
    }),
    prune: h("input", { id: prune, type: "checkbox", name: "prune" }),
  };
  const submit = async (event) => {
    event.preventDefault();
    problem.textContent = "";
    button.disabled = true;
    try {
      await start({ root: fields.root.value, path: fields.path.value.trim(), prune: fields.prune.checked });
    } catch (error) {
      problem.textContent = [error.message, error.hint].filter(Boolean).join(" ");
    }
    button.disabled = false;
  };
  return h(
    "form",
    { class: "add-form", onsubmit: submit },
    h("div", { class: "field" }, h("label", { for: root }, t("add.root")), fields.root),
    h("div", { class: "field grow" }, h("label", { for: path }, t("filter.folder")), fields.path),
    folderButton({
      root: () => roots.find((one) => one.id === fields.root.value),
      path: () => fields.path.value.trim(),
      chosen: (found) => (fields.path.value = found),
    }),
    button,
    h("label", { class: "check", for: prune }, fields.prune, h("span", {}, t("add.prune"))),
    problem,
  );
}

/** Adds that were started before this page was opened. */
async function resume(watch, signal) {
  try {
    const found = await get("jobs", { signal });
    for (const job of found) if (job.kind === "add" && !ended(job)) watch(job);
  } catch {
    // The rest of the page says what is wrong.
  }
}

async function watchJob(place, job, { signal, changed }) {
  const card = new ProgressCard({ title: TITLES.queued, stop: () => cancel(job.id) });
  const units = { unit: t("add.files"), rateUnit: t("add.rate") };
  card.update(jobProgress(job, TITLES, units));
  place.prepend(card.element);
  try {
    const last = await follow(job.id, (now) => card.update(jobProgress(now, TITLES, units)), { signal });
    card.element.replaceWith(outcome(last));
    changed();
  } catch (error) {
    if (error.name === "AbortError") return;
    card.element.replaceWith(errorState(error, { title: t("add.unknown") }));
  }
}

function outcome(job) {
  const close = h("button", { type: "button", class: "button quiet small", onclick: () => box.remove() }, t("dismiss"));
  const [title, ...lines] = describeEnd(job);
  const box = h(
    "section",
    { class: `card outcome outcome-${job.state}`, role: "status" },
    h("div", { class: "row between" }, h("h3", {}, title), close),
    lines,
  );
  return box;
}

function describeEnd(job) {
  if (job.state === "failed") return [t("add.failedTitle"), h("p", {}, job.error?.message ?? t("add.noReason"))];
  if (job.state === "cancelled" && !job.result) return [t("add.cancelled"), h("p", {}, t("add.stays"))];
  const report = job.result ?? {};
  const parts = [
    report.added && t("add.added", { videos: t("n.videos", { n: report.added }) }),
    report.updated && t("add.updated", { n: report.updated }),
    report.moved && t("add.moved", { n: report.moved }),
    report.unchanged && t("add.unchanged", { n: report.unchanged }),
    report.removed && t("add.removed", { n: report.removed }),
    report.failed?.length && t("add.failed", { n: report.failed.length }),
  ].filter(Boolean);
  const time = report.seconds ? t("add.time", { time: lasting(report.seconds) }) : "";
  const sentence = `${parts.join(", ") || t("add.nothing")}${time}.`;
  const failed = (report.failed ?? []).slice(0, 20).map((one) => failure(one.name ?? one.path, one.error));
  return [
    job.state === "cancelled" || report.stopped ? t("add.cancelled") : t("add.done"),
    h("p", {}, sentence),
    failed.length > 0 && h("ul", { class: "failures" }, failed),
  ];
}

/** A file that failed, and why. */
export function failure(name, error, extra = null) {
  return h(
    "li",
    { class: "failure" },
    h("span", { class: "failure-name" }, name),
    h("span", { class: "failure-why" }, error),
    extra,
  );
}
