// The library: how much there is, adding folders, what failed and why, and every video by name.

import { get } from "../api.js";
import { addFolder, failure } from "../components/addfolder.js";
import { errorState, note, skeleton } from "../components/notice.js";
import { sharedList } from "../components/sharedlist.js";
import { VideoList } from "../components/videolist.js";
import { h, show } from "../dom.js";
import { bytes, count, lasting } from "../format.js";
import { t } from "../i18n.js";
import { icon } from "../icons.js";

const CALIBRATIONS = {
  judge: t("lib.judge"),
  library: t("lib.own"),
  model: t("lib.model"),
};
const FIRST = 5; // failures that are shown at once

export async function libraryView(place, { query, signal, title }) {
  title(t("library"));
  const body = h("div", { class: "stack" });
  show(place, h("h1", {}, t("library")), body);
  show(body, skeleton(3));
  try {
    const library = await get("library", { signal });
    const numbers = h("div", {});
    const failures = h("div", {});
    const shared = h("div", {});
    const refresh = async () => {
      await Promise.all([
        showNumbers(numbers, signal),
        showFailures(failures, library.roots, signal, () => add.retry()),
        showShared(shared, signal),
      ]).catch(() => {});
    };
    const list = new VideoList(query, { signal, changed: refresh });
    const changed = () => {
      refresh();
      list.refresh();
    };
    const add = addFolder(library.roots ?? [], { signal, changed });
    show(numbers, figures(library));
    show(body, numbers, add.element, failures, shared, list.element);
    showShared(shared, signal);
    await showFailures(failures, library.roots, signal, () => add.retry());
  } catch (error) {
    if (error.name === "AbortError" || error.status === 401) return;
    show(body, errorState(error, { retry: () => libraryView(place, { query, signal, title }) }));
  }
}

async function showNumbers(place, signal) {
  show(place, figures(await get("library", { signal })));
}

function figures(library) {
  const figure = (number, label, kind = "") =>
    h("div", { class: `figure ${kind}` }, h("dd", {}, number), h("dt", {}, label));
  const facts = [
    t("lib.modelName", { model: library.model }),
    t("lib.codec", { codec: library.codec }),
    t("lib.fps", { n: library.fps, fps: library.fps }),
    CALIBRATIONS[library.calibration] ?? t("lib.noProbability"),
  ];
  return h(
    "section",
    { "aria-label": t("lib.counts") },
    h(
      "dl",
      { class: "figures" },
      figure(count(library.videos), t("lib.videos", { n: library.videos })),
      figure(lasting(library.duration_s), t("lib.footage")),
      figure(bytes(library.bytes), t("lib.disk")),
      figure(count(library.failed), t("lib.failed"), library.failed ? "figure-bad" : ""),
      figure(count(library.missing), t("lib.missing"), library.missing ? "figure-warn" : ""),
    ),
    h("p", { class: "muted small-text figures-facts" }, `${library.path}: ${facts.join(", ")}.`),
  );
}

/** Footage that many videos share; the rest of the page does not wait for it. */
async function showShared(place, signal) {
  try {
    show(place, sharedList(await get("shared", { signal })));
  } catch (error) {
    if (error.name === "AbortError" || error.status === 401) return;
    show(place, note(t("lib.sharedFailed", { why: error.message }), { kind: "warning" }));
  }
}

async function showFailures(place, roots, signal, retry) {
  const failures = await get("failures", { signal });
  if (!failures.length) {
    show(place);
    return;
  }
  const row = (one) => failure(one.name, one.error);
  const list = h("ul", { class: "failures" }, failures.slice(0, FIRST).map(row));
  const more =
    failures.length > FIRST &&
    h(
      "button",
      {
        type: "button",
        class: "button quiet small",
        onclick: () => {
          list.append(...failures.slice(FIRST).map(row));
          more.remove();
        },
      },
      t("n.more", { n: failures.length - FIRST }),
    );
  show(
    place,
    h(
      "section",
      { class: "card card-bad", id: "failures" },
      h(
        "div",
        { class: "row between" },
        h("h2", {}, icon("warning"), t("lib.unreadable", { files: t("n.files", { n: failures.length }) })),
        roots?.length > 0 &&
          h("button", { type: "button", class: "button quiet small", onclick: retry }, t("lib.retry")),
      ),
      list,
      more,
    ),
  );
}
