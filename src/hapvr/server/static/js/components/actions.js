// What may be done with files of duplicates: a choice of files, a preview, doing it, and taking it back.

import { get, part, post } from "../api.js";
import { announce, h, show } from "../dom.js";
import { bytes } from "../format.js";
import { t } from "../i18n.js";
import { icon } from "../icons.js";
import { resultOf } from "../jobs.js";
import { confirmed, note, toast } from "./notice.js";

const WORDS = {
  trash: { offer: t("act.trash"), done: t("act.trash.done") },
  move: { offer: t("act.move"), done: t("act.move.done") },
  hardlink: { offer: t("act.hardlink"), done: t("act.hardlink.done") },
  symlink: { offer: t("act.symlink"), done: t("act.symlink.done") },
};
const CHOSEN = new Set(["identical", "copy"]); // kinds that are chosen at first: whole copies
const SHOWN = 5; // files that are left alone and named

/** Files of groups that are chosen, with a box for each and a bar of what can be done with them. */
export class Choice {
  /** `actions` are those that the server allows; `changed` is called when files have been moved or are back. */
  constructor(groups, actions, { signal, changed }) {
    this.groups = groups;
    this.signal = signal;
    this.changed = changed;
    const spare = groups.flatMap((group) => group.videos).filter((video) => !video.keep && video.state === "ready");
    this.sizes = new Map(spare.map((video) => [video.id, video.size || 0]));
    // What the filter does not mean is listed beside what it means, and is not chosen.
    const meant = spare.filter((video) => CHOSEN.has(video.copy_kind) && video.meant !== false);
    this.chosen = new Set(meant.map((video) => video.id));
    this.count = h("span", { class: "actions-count", role: "status" });
    this.buttons = actions.map((action) =>
      h(
        "button",
        { type: "button", class: "button small", onclick: () => this.ask(action) },
        `${WORDS[action].offer}…`,
      ),
    );
    this.element = h("div", { class: "card actions" }, this.count, h("div", { class: "row" }, this.buttons));
    this.update();
  }

  /** The box of a video; nothing for one that is kept or not there. */
  box(video) {
    if (!this.sizes.has(video.id)) return null;
    const input = h("input", { type: "checkbox", "aria-label": t("act.chooseName", { name: video.name }) });
    input.checked = this.chosen.has(video.id);
    input.addEventListener("change", () => {
      if (input.checked) this.chosen.add(video.id);
      else this.chosen.delete(video.id);
      this.update();
    });
    return h(
      "label",
      { class: "choice small-text" },
      input,
      video.copy_kind ? KINDS[video.copy_kind] : t("act.choose"),
    );
  }

  update() {
    const size = [...this.chosen].reduce((sum, id) => sum + this.sizes.get(id), 0);
    const chosen = t("act.chosen", { files: t("n.files", { n: this.chosen.size }), size: bytes(size) });
    show(this.count, this.chosen.size ? chosen : t("act.nothing"));
    for (const button of this.buttons) button.disabled = this.chosen.size === 0;
  }

  request(action) {
    const groups = this.groups
      .map((group) => ({
        keep: group.videos.find((video) => video.keep).id,
        videos: group.videos.map((video) => video.id).filter((id) => this.chosen.has(id)),
      }))
      .filter((group) => group.videos.length > 0);
    return { action, groups };
  }

  /** Show what would be done, and do it if that is confirmed. */
  async ask(action) {
    const request = this.request(action);
    const { signal } = this;
    for (const button of this.buttons) button.disabled = true;
    try {
      const preview = await post("actions/preview", request, { signal });
      const files = t("n.files", { n: preview.files });
      if (!preview.files) {
        toast(t("act.impossible", { left: leftWords(preview.left) }), { kind: "error" });
        return;
      }
      const kept = t("act.kept", { n: preview.kept });
      const yes = await confirmed({
        title: `${WORDS[action].offer}: ${files}, ${bytes(preview.bytes)}?`,
        text: [kept, leftWords(preview.left)].filter(Boolean).join(" "),
        yes: WORDS[action].offer,
        no: t("cancel"),
      });
      if (!yes) return;
      const { job } = await post("actions", request, { signal });
      const result = await resultOf(job.id, () => {}, { signal });
      this.changed(result);
    } catch (error) {
      if (error.name !== "AbortError") toast([error.message, error.hint].filter(Boolean).join(" "), { kind: "error" });
    } finally {
      this.update();
    }
  }
}

const KINDS = { identical: t("sameBytes"), copy: t("act.encoding"), edited: t("act.edited"), unsure: t("unsure") };

function leftWords(left) {
  if (!left.length) return "";
  const named = left.slice(0, SHOWN).map((one) => `${one.name}: ${one.reason}.`);
  if (left.length > SHOWN) named.push(t("act.andMore", { n: left.length - SHOWN }));
  return t("act.left", { named: named.join(" ") });
}

/** A line that says what was done, with a button that takes it back; `undone` is called then. */
export function doneLine(result, { signal, undone }) {
  const done = `${t("n.files", { n: result.files })} ${WORDS[result.action].done}, ${bytes(result.bytes)}.`;
  const text = [done, leftWords(result.left)].filter(Boolean).join(" ");
  const button = h(
    "button",
    { type: "button", class: "button quiet small", "aria-label": t("act.undo") },
    icon("undo"),
    t("undo"),
  );
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const { job } = await post(`actions/${part(result.id)}/undo`, undefined, { signal });
      const back = await resultOf(job.id, () => {}, { signal });
      const words = [t("act.back", { files: t("n.files", { n: back.files }) }), leftWords(back.left)]
        .filter(Boolean)
        .join(" ");
      toast(words, { kind: back.left.length ? "error" : "info" });
      announce(words);
      undone();
    } catch (error) {
      button.disabled = false;
      if (error.name !== "AbortError") toast([error.message, error.hint].filter(Boolean).join(" "), { kind: "error" });
    }
  });
  announce(text);
  return note(text, { children: [" ", button] });
}

/** What was done last and not taken back, of the jobs that the server remembers; null if there is none. */
export async function lastAction(jobs, { signal }) {
  const done = jobs
    .filter((job) => ["actions", "undo"].includes(job.kind) && job.state === "done")
    .sort((a, b) => (a.finished < b.finished ? 1 : -1));
  if (!done.length || done[0].kind === "undo") return null;
  const { result } = await get(`jobs/${part(done[0].id)}`, { signal });
  return result?.files ? result : null;
}
