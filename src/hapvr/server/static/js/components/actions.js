// What may be done with files of duplicates: a choice of files, a preview, doing it, and taking it back.

import { get, part, post } from "../api.js";
import { announce, h, show } from "../dom.js";
import { bytes, plural } from "../format.js";
import { icon } from "../icons.js";
import { resultOf } from "../jobs.js";
import { confirmed, note, toast } from "./notice.js";

const WORDS = {
  trash: { offer: "Move to the trash", done: "moved to the trash" },
  move: { offer: "Move away", done: "moved away" },
  hardlink: { offer: "Replace by hard links", done: "replaced by hard links" },
  symlink: { offer: "Replace by symbolic links", done: "replaced by symbolic links" },
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
    const input = h("input", { type: "checkbox", "aria-label": `Choose ${video.name}` });
    input.checked = this.chosen.has(video.id);
    input.addEventListener("change", () => {
      if (input.checked) this.chosen.add(video.id);
      else this.chosen.delete(video.id);
      this.update();
    });
    return h("label", { class: "choice small-text" }, input, video.copy_kind ? KINDS[video.copy_kind] : "Choose");
  }

  update() {
    const size = [...this.chosen].reduce((sum, id) => sum + this.sizes.get(id), 0);
    const chosen = `${plural(this.chosen.size, "file")} chosen, ${bytes(size)}`;
    show(this.count, this.chosen.size ? chosen : "Nothing chosen");
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
      const files = plural(preview.files, "file");
      if (!preview.files) {
        toast(`Nothing can be done. ${leftWords(preview.left)}`, { kind: "error" });
        return;
      }
      const kept = `${plural(preview.kept, "copy", "copies")} of them will be kept. It can be taken back.`;
      const yes = await confirmed({
        title: `${WORDS[action].offer}: ${files}, ${bytes(preview.bytes)}?`,
        text: [kept, leftWords(preview.left)].filter(Boolean).join(" "),
        yes: WORDS[action].offer,
        no: "Cancel",
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

const KINDS = { identical: "The same bytes", copy: "Another encoding", edited: "Edited", unsure: "Unsure" };

function leftWords(left) {
  if (!left.length) return "";
  const named = left.slice(0, SHOWN).map((one) => `${one.name}: ${one.reason}.`);
  if (left.length > SHOWN) named.push(`And ${left.length - SHOWN} more.`);
  return `Left alone: ${named.join(" ")}`;
}

/** A line that says what was done, with a button that takes it back; `undone` is called then. */
export function doneLine(result, { signal, undone }) {
  const done = `${plural(result.files, "file")} ${WORDS[result.action].done}, ${bytes(result.bytes)}.`;
  const text = [done, leftWords(result.left)].filter(Boolean).join(" ");
  const button = h(
    "button",
    { type: "button", class: "button quiet small", "aria-label": "Undo what was done with files" },
    icon("undo"),
    "Undo",
  );
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const { job } = await post(`actions/${part(result.id)}/undo`, undefined, { signal });
      const back = await resultOf(job.id, () => {}, { signal });
      const words = [`${plural(back.files, "file")} taken back.`, leftWords(back.left)].filter(Boolean).join(" ");
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
