// The first page: choose what to search for, and send it.

import { get, searchByFile } from "../api.js";
import { dropzone } from "../components/dropzone.js";
import { FilterPanel } from "../components/filterpanel.js";
import { errorState, note, toast } from "../components/notice.js";
import { PartPicker } from "../components/partpicker.js";
import { ProgressCard } from "../components/progress.js";
import { announce, h, show } from "../dom.js";
import { bytes, percent, plural } from "../format.js";
import { icon } from "../icons.js";
import { remember } from "../memory.js";
import { go } from "../router.js";
import { searchFields, settings } from "../settings.js";

export function searchView(place, { signal, title }) {
  title("Search");
  const stage = h("div", { class: "stage" });
  const about = h("div", { class: "search-about" });
  show(
    place,
    h(
      "header",
      { class: "hero" },
      h("h1", {}, "Find a video by what it shows"),
      h(
        "p",
        { class: "lead" },
        "Copies, cut and edited versions, clips inside longer films: see what matches, and where.",
      ),
    ),
    stage,
    about,
  );
  begin(stage, signal);
  describe(about, signal);
}

/** Nothing chosen yet. */
function begin(stage, signal) {
  const choosing = new AbortController();
  const chosen = (file) => {
    choosing.abort();
    prepare(stage, file, signal);
  };
  signal.addEventListener("abort", () => choosing.abort());
  show(stage, dropzone({ choose: chosen, signal: choosing.signal }));
}

/** A file is chosen: look at it, perhaps take a part, and go. */
function prepare(stage, file, signal) {
  if (file.size === 0) {
    toast("That file is empty. Choose another.", { kind: "error" });
    begin(stage, signal);
    return;
  }
  const here = new AbortController();
  signal.addEventListener("abort", () => here.abort());
  const leave = () => {
    here.abort();
    begin(stage, signal);
    stage.querySelector("input")?.focus();
  };
  const picker = new PartPicker(file, { signal: here.signal });
  const limits = h("div", {});
  let filter = null;
  get("library", { signal: here.signal }).then(
    ({ roots }) => show(limits, (filter = new FilterPanel(roots)).element),
    () => {}, // the upload will say what is wrong
  );
  const send = h("button", { type: "submit", class: "button primary large" }, icon("search"), "Search");
  const form = h(
    "form",
    {
      class: "card chosen",
      onsubmit: (event) => {
        event.preventDefault();
        const part = picker.value();
        const only = filter ? filter.value() : {};
        if (part === null || only === null) return;
        here.abort();
        upload(stage, file, { ...part, ...only }, signal);
      },
    },
    h(
      "div",
      { class: "row between chosen-head" },
      h("div", { class: "chosen-name" }, h("h2", {}, file.name), h("p", { class: "muted" }, bytes(file.size))),
      h("button", { type: "button", class: "button quiet small", onclick: leave }, "Choose another"),
    ),
    picker.element,
    limits,
    h("div", { class: "row between chosen-foot" }, settingsLine(), send),
  );
  show(stage, form);
  send.focus({ preventScroll: true });
  announce(`${file.name} is chosen.`);
}

function settingsLine() {
  const { k, least, exact, ignoreShared } = settings();
  const words = [
    `Best ${k}`,
    least > 0 ? `from ${percent(least)} on` : "however unlikely",
    exact ? "compared with every video" : "fast search",
    ignoreShared ? "shared footage ignored" : "shared footage counts",
  ].join(", ");
  return h("p", { class: "muted small-text" }, `${words}. `, h("a", { href: "#/settings" }, "Change"));
}

async function upload(stage, file, part, signal) {
  const stopping = new AbortController();
  signal.addEventListener("abort", () => stopping.abort());
  const card = new ProgressCard({ title: "Uploading", stop: () => stopping.abort() });
  card.update({ done: 0, total: 1, message: file.name });
  show(stage, card.element);
  try {
    const fields = { ...searchFields(), ...part };
    const { job, query } = await searchByFile(file, fields, {
      signal: stopping.signal,
      progress: (share) =>
        card.update({
          title: share < 1 ? "Uploading" : "Handing over",
          done: share,
          total: 1,
          message: `${bytes(share * file.size)} of ${bytes(file.size)}`,
        }),
    });
    remember(query, { kind: "queries", id: query, name: file.name, still: file.type.startsWith("image/") });
    go(["results", job.id]);
  } catch (error) {
    if (signal.aborted) return;
    if (error.name === "AbortError") {
      begin(stage, signal);
      announce("The upload was stopped.");
      return;
    }
    show(
      stage,
      errorState(error, {
        title: "The search could not start",
        retry: error.type === "Offline" || error.type === "Busy" ? () => upload(stage, file, part, signal) : null,
        actions: [
          h("button", { type: "button", class: "button", onclick: () => begin(stage, signal) }, "Choose another file"),
        ],
      }),
    );
  }
}

/** What is searched: how much there is, and what to do when there is nothing. */
async function describe(about, signal) {
  let library;
  try {
    library = await get("library", { signal });
  } catch (error) {
    if (error.name !== "AbortError" && error.status !== 401) show(about, note(error.message, { kind: "warning" }));
    return;
  }
  if (library.videos === 0) {
    show(
      about,
      note("The library is empty, so nothing can be found yet. ", {
        children: [h("a", { href: "#/library" }, "Add a folder of videos")],
      }),
    );
    return;
  }
  show(
    about,
    h(
      "p",
      { class: "muted centred-text" },
      `Searches ${plural(library.videos, "video")} in ${library.path}. `,
      h("a", { href: "#/library" }, "Search for one of them instead"),
    ),
  );
}
