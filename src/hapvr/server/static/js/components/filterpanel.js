// Which videos are searched or listed: by folder, length and day of the last change. Kept until the tab is closed.

import { h, show, unique } from "../dom.js";
import { bytes, clock, day, parseClock } from "../format.js";
import { t } from "../i18n.js";
import { folderButton } from "./folderpicker.js";

const KEY = "hapvr.filter";
const EMPTY = Object.freeze({ root: "", folder: "", min: "", max: "", from: "", to: "" });

export class FilterPanel {
  #roots;
  #fields;
  #choose;
  #words = h("span", { class: "muted" });
  #problem = h("p", { class: "field-problem", role: "alert" });

  /** `roots` are those of the library: [{ id, name }]. */
  constructor(roots) {
    this.#roots = roots;
    const known = read();
    if (!roots.some((root) => root.id === known.root)) Object.assign(known, { root: "", folder: "" });
    const option = (value, text) => h("option", { value, selected: value === known.root }, text);
    const choices = [option("", t("filter.allFolders")), roots.map((root) => option(root.id, root.name))];
    const text = { type: "text", autocomplete: "off", spellcheck: "false" };
    this.#fields = {
      root: h("select", {}, choices),
      folder: h("input", { ...text, placeholder: t("filter.allOfIt"), value: known.folder }),
      min: h("input", { ...text, inputmode: "decimal", placeholder: "0:00", value: known.min }),
      max: h("input", { ...text, inputmode: "decimal", placeholder: "–", value: known.max }),
      from: h("input", { type: "date", value: known.from }),
      to: h("input", { type: "date", value: known.to }),
    };
    const labels = { root: "root", folder: "folder", min: "minLength", max: "maxLength", from: "after", to: "before" };
    const rows = Object.entries(this.#fields).map(([name, input]) => {
      input.id = unique("filter");
      input.addEventListener("input", () => this.#changed());
      const label = h("label", { for: input.id }, t(`filter.${labels[name]}`));
      return h("div", { class: "field", dataset: { field: name } }, label, input);
    });
    const reset = h("button", { type: "button", class: "button quiet small" }, t("filter.reset"));
    reset.addEventListener("click", () => this.#reset());
    this.#choose = folderButton({
      root: () => roots.find((root) => root.id === this.#fields.root.value),
      path: () => this.#fields.folder.value.trim(),
      chosen: (found) => ((this.#fields.folder.value = found), this.#changed()),
    });
    this.#choose.classList.add("small");
    rows[1].append(this.#choose);
    const used = roots.length ? rows : rows.slice(2); // without roots there is no folder to name
    this.element = h(
      "details",
      { class: "filter", open: Object.values(known).some(Boolean) },
      h("summary", {}, t("filter.title"), " · ", this.#words),
      h("div", { class: "filter-fields" }, used),
      this.#problem,
      reset,
    );
    this.#changed();
  }

  get #typed() {
    return Object.fromEntries(Object.entries(this.#fields).map(([name, input]) => [name, input.value.trim()]));
  }

  #changed() {
    this.#fields.folder.disabled = !this.#fields.root.value;
    this.#choose.disabled = !this.#fields.root.value;
    const typed = this.#typed;
    write(typed);
    const problem = wrong(typed);
    this.#problem.textContent = problem;
    show(this.#words, problem ? "" : filterWords(fieldsOf(typed), this.#roots) || t("filter.all"));
  }

  #reset() {
    for (const [name, input] of Object.entries(this.#fields)) input.value = EMPTY[name];
    this.#changed();
  }

  /** The fields of a request; null if what was typed makes no sense, which the panel then says. */
  value() {
    const typed = this.#typed;
    if (!wrong(typed)) return fieldsOf(typed);
    this.element.open = true;
    this.#fields[typed.min || typed.max ? "min" : "from"].focus();
    return null;
  }
}

function wrong({ min, max, from, to }) {
  const [low, high] = [parseClock(min), parseClock(max)];
  if (Number.isNaN(low) || Number.isNaN(high)) return t("filter.badLength");
  if (low !== null && high !== null && low > high) return t("filter.lengthOrder");
  return from && to && from > to ? t("filter.dateOrder") : "";
}

function fieldsOf({ root, folder, min, max, from, to }) {
  const [low, high] = [parseClock(min), parseClock(max)];
  return {
    ...(root ? { root } : {}),
    ...(root && folder ? { folder } : {}),
    ...(low === null ? {} : { min_seconds: low }),
    ...(high === null ? {} : { max_seconds: high }),
    ...(from ? { after: midnight(from, 0) } : {}),
    ...(to ? { before: midnight(to, 1) } : {}), // the last day counts whole
  };
}

/** The start of a day as the reader's clock has it, some days later. */
function midnight(text, later) {
  const [year, month, date] = text.split("-").map(Number);
  return new Date(year, month - 1, date + later).toISOString();
}

/** The limits of a request or result in words; "" for none. */
export function filterWords(limits, roots = []) {
  const name = roots.find((root) => root.id === limits.root)?.name ?? limits.root;
  const lastDay = limits.before && new Date(new Date(limits.before).getTime() - 1).toISOString();
  return [
    limits.root && t("filter.inFolder", { folder: [name, limits.folder].filter(Boolean).join("/") }),
    limits.min_seconds !== undefined && t("filter.longer", { length: clock(limits.min_seconds) }),
    limits.max_seconds !== undefined && t("filter.shorter", { length: clock(limits.max_seconds) }),
    limits.min_size !== undefined && t("filter.larger", { size: bytes(limits.min_size) }),
    limits.max_size !== undefined && t("filter.smaller", { size: bytes(limits.max_size) }),
    limits.after && t("filter.since", { day: day(limits.after) }),
    lastDay && t("filter.until", { day: day(lastDay) }),
  ]
    .filter(Boolean)
    .join(", ");
}

/** A line that says which videos were meant; null if all were. */
export function filterLine(limits = {}, roots = []) {
  const words = filterWords(limits, roots);
  return words ? h("p", { class: "filter-line small-text" }, t("filter.line", { limits: words })) : null;
}

function read() {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
    return Object.fromEntries(Object.keys(EMPTY).map((name) => [name, String(found[name] ?? "")]));
  } catch {
    return { ...EMPTY }; // no storage, or not what was written here
  }
}

function write(typed) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(typed));
  } catch {
    // Without storage the fields are empty after a reload.
  }
}
