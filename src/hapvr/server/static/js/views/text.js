// What fits a description: the words are in the address, and each view of it is a search.

import { get, post } from "../api.js";
import { filterLine } from "../components/filterpanel.js";
import { emptyState, errorState, skeleton } from "../components/notice.js";
import { jobProgress, ProgressCard } from "../components/progress.js";
import { textCard } from "../components/textcard.js";
import { textForm } from "../components/textform.js";
import { announce, h, show } from "../dom.js";
import { decimal } from "../format.js";
import { t } from "../i18n.js";
import { cancel, resultOf } from "../jobs.js";
import { settings } from "../settings.js";

const TITLES = { queued: t("queued"), running: t("results.running") };

export async function textView(place, { query, signal, title }) {
  const { q: text = "", ...limits } = Object.fromEntries(query);
  title(t("text.title", { text }));
  const body = h("div", {});
  const form = h("div", {});
  show(place, h("h1", {}, t("text.title", { text })), form, body);
  const card = new ProgressCard({ title: TITLES.running });
  card.update({ total: 0, message: "" });
  show(body, card.element, skeleton(3, "hit"));
  try {
    const { roots, text_search: hasText } = await get("library", { signal });
    if (hasText) show(form, textForm(roots, text));
    const { job } = await post("searches/text", { text, k: settings().k, ...limits }, { signal });
    signal.addEventListener("abort", () => cancel(job.id).catch(() => {})); // it may have ended, which is as good
    const result = await resultOf(job.id, (now) => card.update(jobProgress(now, TITLES)), { signal });
    showResult(body, result, roots, signal);
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    const again = h("a", { class: "button", href: "#/" }, t("newSearch"));
    show(body, errorState(error, { title: t("results.failed"), actions: [again] }));
  }
}

function showResult(body, { hits, database, seconds, note, filter }, roots, signal) {
  const took = Object.values(seconds).reduce((sum, one) => sum + one, 0);
  const facts = [
    t("text.described", { videos: t("n.videos", { n: database }) }),
    `${decimal(took, took < 10 ? 1 : 0)} s`,
    hits.length > 0 && t("text.order"),
  ];
  announce(t("text.found", { videos: t("n.videos", { n: hits.length }) }));
  show(
    body,
    h("p", { class: "muted small-text text-facts" }, facts.filter(Boolean).join(" · ")),
    filterLine(filter, roots),
    hits.length > 0
      ? h(
          "ol",
          { class: "hits" },
          hits.map((hit, index) => textCard(hit, index + 1, { signal })),
        )
      : emptyState({ picture: "search", title: t("text.none"), text: note ?? t("text.noneMeant") }),
  );
}
