// The videos of the library: search by name, filter by state, page through, find similar ones, remove one.

import { get, media, part, remove } from "../api.js";
import { announce, h, show, unique } from "../dom.js";
import { bytes, clock, count, when } from "../format.js";
import { t } from "../i18n.js";
import { address } from "../router.js";
import { searchById } from "../views/results.js";
import { confirmed, emptyState, errorState, skeleton, toast } from "./notice.js";
import { pathLine } from "./pathline.js";

const PAGE = 24;
const WAIT_MS = 250;
const STATES = [
  ["", t("list.all")],
  ["ready", t("list.ready")],
  ["failed", t("list.failed")],
  ["missing", t("list.missing")],
];

export class VideoList {
  #query;
  #signal;
  #asking = null;
  #list = h("div", {});
  #changed;

  /** `query` are the parameters of the address, which this keeps up to date; `changed` is called after a removal. */
  constructor(query, { signal, changed }) {
    this.#query = { q: query.get("q") ?? "", state: query.get("state") ?? "", page: Number(query.get("page")) || 1 };
    this.#signal = signal;
    this.#changed = changed;
    const id = unique("name");
    let timer = null;
    const name = h("input", {
      id,
      type: "search",
      value: this.#query.q,
      placeholder: t("list.part"),
      oninput: () => {
        clearTimeout(timer);
        timer = setTimeout(() => this.#ask({ q: name.value.trim(), page: 1 }), WAIT_MS);
      },
    });
    const states = STATES.map(([value, label]) =>
      h(
        "label",
        { class: "segmented-item" },
        h("input", {
          type: "radio",
          name: "state",
          value,
          checked: value === this.#query.state,
          onchange: () => this.#ask({ state: value, page: 1 }),
        }),
        h("span", {}, label),
      ),
    );
    this.element = h(
      "section",
      { class: "card videos", id: "videos" },
      h("h2", {}, t("list.videos")),
      h(
        "div",
        { class: "videos-tools" },
        h("div", { class: "field grow" }, h("label", { for: id, class: "visually-hidden" }, t("list.byName")), name),
        h("fieldset", { class: "segmented" }, h("legend", { class: "visually-hidden" }, t("list.state")), states),
      ),
      this.#list,
    );
    show(this.#list, skeleton(6, "row"));
    this.refresh();
  }

  #ask(changes) {
    Object.assign(this.#query, changes);
    const { q, state, page } = this.#query;
    // The address follows without a new entry for the back button at every letter.
    history.replaceState(null, "", address(["library"], { q, state, page: page > 1 ? page : "" }));
    this.refresh();
  }

  async refresh() {
    this.#asking?.abort();
    const asking = new AbortController();
    this.#asking = asking;
    this.#signal.addEventListener("abort", () => asking.abort());
    const { q, state, page } = this.#query;
    const parameters = new URLSearchParams({ offset: (page - 1) * PAGE, limit: PAGE });
    if (q) parameters.set("q", q);
    if (state) parameters.set("state", state);
    try {
      const found = await get(`videos?${parameters}`, { signal: asking.signal });
      if (!found.videos.length && page > 1 && found.total) this.#ask({ page: Math.ceil(found.total / PAGE) });
      else this.#show(found);
    } catch (error) {
      if (error.name !== "AbortError" && error.status !== 401)
        show(this.#list, errorState(error, { retry: () => this.refresh() }));
    }
  }

  #show({ total, videos }) {
    if (!videos.length) {
      const filtered = this.#query.q || this.#query.state;
      show(
        this.#list,
        filtered
          ? emptyState({
              picture: "search",
              title: t("list.noSuch"),
              text: t("list.fewer"),
            })
          : emptyState({
              picture: "film",
              title: t("list.none"),
              text: t("list.addAbove"),
            }),
      );
      return;
    }
    show(
      this.#list,
      h(
        "ul",
        { class: "rows" },
        videos.map((video) => this.#row(video)),
      ),
      this.#pager(total),
    );
  }

  #row(video) {
    const ready = video.state !== "failed";
    const facts = [
      ready && (video.duration ? clock(video.duration) : t("picture")),
      ready && video.width > 0 && `${video.width} × ${video.height}`,
      bytes(video.size),
      t("list.added", { when: when(video.added) }),
    ].filter(Boolean);
    const state = { failed: t("list.failed"), missing: t("list.fileMissing") }[video.state];
    return h(
      "li",
      { class: "row-item", dataset: { id: video.id } },
      thumbnail(video),
      h(
        "div",
        { class: "row-text" },
        h("p", { class: "row-name" }, video.name, state && h("span", { class: `tag tag-${video.state}` }, state)),
        h("p", { class: "muted small-text" }, facts.join(" · ")),
        video.error && h("p", { class: "failure-why small-text" }, video.error),
        video.warnings.length > 0 && h("p", { class: "hit-warning small-text" }, video.warnings.join(" ")),
        pathLine(video),
      ),
      h(
        "div",
        { class: "row-actions" },
        ready &&
          h(
            "button",
            {
              type: "button",
              class: "button quiet small",
              "aria-label": t("list.similarTo", { name: video.name }),
              onclick: () => searchById(video),
            },
            t("list.similar"),
          ),
        h(
          "button",
          {
            type: "button",
            class: "button quiet small",
            "aria-label": t("list.removeName", { name: video.name }),
            onclick: () => this.#remove(video),
          },
          t("list.remove"),
        ),
      ),
    );
  }

  async #remove(video) {
    const sure = await confirmed({
      title: t("list.removeAsk", { name: video.name }),
      text: t("list.removeText"),
      yes: t("list.removeIt"),
    });
    if (!sure) return;
    try {
      await remove(`videos/${part(video.id)}`);
      toast(t("list.removed", { name: video.name }));
      this.refresh();
      this.#changed();
    } catch (error) {
      toast(error.message, { kind: "error" });
    }
  }

  #pager(total) {
    const { page } = this.#query;
    const pages = Math.max(1, Math.ceil(total / PAGE));
    const turn = (to) => {
      this.#ask({ page: to });
      announce(t("list.page", { to, pages }));
      this.element.scrollIntoView({ block: "start" });
    };
    const button = (label, to, off) =>
      h("button", { type: "button", class: "button quiet small", disabled: off, onclick: () => turn(to) }, label);
    const [first, last] = [(page - 1) * PAGE + 1, Math.min(page * PAGE, total)];
    return h(
      "nav",
      { class: "row between pager", "aria-label": t("list.pages") },
      h(
        "p",
        { class: "muted small-text" },
        t("list.range", { first: count(first), last: count(last), total: count(total) }),
      ),
      pages > 1 &&
        h(
          "div",
          { class: "row" },
          button(t("list.previous"), page - 1, page <= 1),
          button(t("list.next"), page + 1, page >= pages),
        ),
    );
  }
}

/** A frame from the middle; nothing is asked for where there is no file to show. */
function thumbnail(video) {
  if (video.state !== "ready") return h("div", { class: "thumb row-thumb thumb-none" });
  const source = media({ kind: "videos", id: video.id }, "thumbnail", {
    t: (video.duration / 2).toFixed(1),
    width: 160,
  });
  const picture = h("img", { class: "thumb row-thumb", src: source, alt: "", loading: "lazy" });
  picture.addEventListener("error", () => picture.classList.add("thumb-none"));
  return picture;
}
