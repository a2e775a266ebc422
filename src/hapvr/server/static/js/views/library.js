// The library: how much there is, adding folders, what failed and why, and every video by name.

import { get } from "../api.js";
import { addFolder, failure } from "../components/addfolder.js";
import { errorState, note, skeleton } from "../components/notice.js";
import { sharedList } from "../components/sharedlist.js";
import { VideoList } from "../components/videolist.js";
import { h, show } from "../dom.js";
import { bytes, count, lasting, plural } from "../format.js";
import { icon } from "../icons.js";

const CALIBRATIONS = {
  judge: "verdicts by the model's judge",
  library: "calibrated on its own videos",
  model: "probabilities by the model's calibration",
};
const FIRST = 5; // failures that are shown at once

export async function libraryView(place, { query, signal, title }) {
  title("Library");
  const body = h("div", { class: "stack" });
  show(place, h("h1", {}, "Library"), body);
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
    `model ${library.model}`,
    `${library.codec} descriptors`,
    `${library.fps} ${library.fps === 1 ? "frame" : "frames"} a second`,
    CALIBRATIONS[library.calibration] ?? "no probabilities",
  ];
  return h(
    "section",
    { "aria-label": "Counts" },
    h(
      "dl",
      { class: "figures" },
      figure(count(library.videos), library.videos === 1 ? "video" : "videos"),
      figure(lasting(library.duration_s), "of footage"),
      figure(bytes(library.bytes), "on disk"),
      figure(count(library.failed), "failed", library.failed ? "figure-bad" : ""),
      figure(count(library.missing), "missing", library.missing ? "figure-warn" : ""),
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
    show(place, note(`Shared footage cannot be shown: ${error.message}`, { kind: "warning" }));
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
      `Show ${plural(failures.length - FIRST, "more", "more")}`,
    );
  show(
    place,
    h(
      "section",
      { class: "card card-bad", id: "failures" },
      h(
        "div",
        { class: "row between" },
        h("h2", {}, icon("warning"), `${plural(failures.length, "file")} could not be read`),
        roots?.length > 0 &&
          h("button", { type: "button", class: "button quiet small", onclick: retry }, "Try these again"),
      ),
      list,
      more,
    ),
  );
}
