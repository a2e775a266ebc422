// The first page: choose what to search for, and send it.

import { get, searchByFile } from "../api.js";
import { dropzone } from "../components/dropzone.js";
import { FilterPanel } from "../components/filterpanel.js";
import { errorState, note, toast } from "../components/notice.js";
import { PartPicker } from "../components/partpicker.js";
import { ProgressCard } from "../components/progress.js";
import { textForm } from "../components/textform.js";
import { announce, h, show } from "../dom.js";
import { bytes, percent } from "../format.js";
import { t } from "../i18n.js";
import { icon } from "../icons.js";
import { remember } from "../memory.js";
import { go } from "../router.js";
import { searchFields, settings } from "../settings.js";

export function searchView(place, { signal, title }) {
  title(t("search"));
  const stage = h("div", { class: "stage" });
  const about = h("div", { class: "search-about" });
  show(
    place,
    h("header", { class: "hero" }, h("h1", {}, t("search.heading")), h("p", { class: "lead" }, t("search.lead"))),
    stage,
    about,
  );
  const library = get("library", { signal });
  begin(stage, library, signal);
  describe(about, library);
}

/** Nothing chosen yet: a file, or words where the library has a text model. */
function begin(stage, library, signal) {
  const choosing = new AbortController();
  const chosen = (file) => {
    choosing.abort();
    prepare(stage, file, library, signal);
  };
  signal.addEventListener("abort", () => choosing.abort());
  show(stage, dropzone({ choose: chosen, signal: choosing.signal }));
  library.then(
    ({ text_search: hasText, roots }) => hasText && !choosing.signal.aborted && stage.append(textForm(roots)),
    () => {}, // said below
  );
}

/** A file is chosen: look at it, perhaps take a part, and go. */
function prepare(stage, file, library, signal) {
  if (file.size === 0) {
    toast(t("search.empty"), { kind: "error" });
    begin(stage, library, signal);
    return;
  }
  const here = new AbortController();
  signal.addEventListener("abort", () => here.abort());
  const leave = () => {
    here.abort();
    begin(stage, library, signal);
    stage.querySelector("input")?.focus();
  };
  const picker = new PartPicker(file, { signal: here.signal });
  const limits = h("div", {});
  let filter = null;
  library.then(
    ({ roots }) => show(limits, (filter = new FilterPanel(roots)).element),
    () => {}, // the upload will say what is wrong
  );
  const send = h("button", { type: "submit", class: "button primary large" }, icon("search"), t("search"));
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
        upload(stage, file, { ...part, ...only }, library, signal);
      },
    },
    h(
      "div",
      { class: "row between chosen-head" },
      h("div", { class: "chosen-name" }, h("h2", {}, file.name), h("p", { class: "muted" }, bytes(file.size))),
      h("button", { type: "button", class: "button quiet small", onclick: leave }, t("search.another")),
    ),
    picker.element,
    limits,
    h("div", { class: "row between chosen-foot" }, settingsLine(), send),
  );
  show(stage, form);
  send.focus({ preventScroll: true });
  announce(t("search.chosen", { name: file.name }));
}

function settingsLine() {
  const { k, least, exact, ignoreShared } = settings();
  const words = [
    t("search.best", { k }),
    least > 0 ? t("search.from", { share: percent(least) }) : t("search.any"),
    exact ? t("search.exact") : t("search.fast"),
    ignoreShared ? t("search.noShared") : t("search.shared"),
  ].join(", ");
  return h("p", { class: "muted small-text" }, `${words}. `, h("a", { href: "#/settings" }, t("change")));
}

async function upload(stage, file, part, library, signal) {
  const stopping = new AbortController();
  signal.addEventListener("abort", () => stopping.abort());
  const card = new ProgressCard({ title: t("search.uploading"), stop: () => stopping.abort() });
  card.update({ done: 0, total: 1, message: file.name });
  show(stage, card.element);
  try {
    const fields = { ...searchFields(), ...part };
    const { job, query } = await searchByFile(file, fields, {
      signal: stopping.signal,
      progress: (share) =>
        card.update({
          title: share < 1 ? t("search.uploading") : t("search.handing"),
          done: share,
          total: 1,
          message: t("search.sent", { done: bytes(share * file.size), all: bytes(file.size) }),
        }),
    });
    remember(query, { kind: "queries", id: query, name: file.name, still: file.type.startsWith("image/") });
    go(["results", job.id]);
  } catch (error) {
    if (signal.aborted) return;
    if (error.name === "AbortError") {
      begin(stage, library, signal);
      announce(t("search.stopped"));
      return;
    }
    show(
      stage,
      errorState(error, {
        title: t("search.notStarted"),
        retry: ["Offline", "Busy"].includes(error.type) ? () => upload(stage, file, part, library, signal) : null,
        actions: [
          h(
            "button",
            { type: "button", class: "button", onclick: () => begin(stage, library, signal) },
            t("search.anotherFile"),
          ),
        ],
      }),
    );
  }
}

/** What is searched: how much there is, and what to do when there is nothing. */
async function describe(about, asked) {
  let library;
  try {
    library = await asked;
  } catch (error) {
    if (error.name !== "AbortError" && error.status !== 401) show(about, note(error.message, { kind: "warning" }));
    return;
  }
  if (library.videos === 0) {
    show(
      about,
      note(t("search.libraryEmpty"), {
        children: [h("a", { href: "#/library" }, t("search.addFolder"))],
      }),
    );
    return;
  }
  show(
    about,
    h(
      "p",
      { class: "muted centred-text" },
      t("search.where", { videos: t("n.videos", { n: library.videos }), library: library.path }),
      h("a", { href: "#/library" }, t("search.byVideo")),
    ),
  );
}
