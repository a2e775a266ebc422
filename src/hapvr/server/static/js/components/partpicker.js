// Which part of a video to search for: a local preview, and a start and end that may be typed or taken from it.

import { h, unique } from "../dom.js";
import { clock, lasting, parseClock } from "../format.js";
import { t } from "../i18n.js";

export class PartPicker {
  #from;
  #to;
  #problem = h("p", { class: "field-problem", role: "alert" });
  #duration = null;

  constructor(file, { signal }) {
    const url = URL.createObjectURL(file);
    signal.addEventListener("abort", () => URL.revokeObjectURL(url));
    const picture = file.type.startsWith("image/");
    const player = picture
      ? h("img", { src: url, alt: t("part.picture", { name: file.name }) })
      : h("video", { src: url, controls: true, muted: true, playsinline: true, preload: "metadata" });
    this.element = h("div", { class: "picker" }, h("div", { class: "picker-screen" }, player));
    if (picture) return;
    player.muted = true;
    player.addEventListener("loadedmetadata", () => {
      this.#duration = Number.isFinite(player.duration) ? player.duration : null;
      this.#to.placeholder = this.#duration ? clock(this.#duration, { tenths: true }) : t("part.end");
    });
    player.addEventListener("error", () => {
      player.replaceWith(h("p", { class: "picker-none muted" }, t("part.cannotShow")));
      for (const button of this.element.querySelectorAll("button")) button.remove();
    });
    this.#from = this.#field("start", "0:00.0");
    this.#to = this.#field("end", t("part.end"));
    const take = (input) => {
      input.value = clock(player.currentTime, { tenths: true });
      this.#check();
    };
    this.element.append(
      h(
        "fieldset",
        { class: "picker-part" },
        h("legend", {}, t("part.title")),
        this.#row(t("part.from"), this.#from, () => take(this.#from), t("part.startHere")),
        this.#row(t("part.to"), this.#to, () => take(this.#to), t("part.endHere")),
        this.#problem,
      ),
    );
  }

  #field(name, placeholder) {
    return h("input", {
      id: unique(name),
      type: "text",
      inputmode: "decimal",
      autocomplete: "off",
      placeholder,
      oninput: () => this.#check(),
    });
  }

  #row(label, input, take, takeLabel) {
    return h(
      "div",
      { class: "picker-field" },
      h("label", { for: input.id }, label),
      input,
      h("button", { type: "button", class: "button quiet small", onclick: take }, takeLabel),
    );
  }

  #check() {
    const problem = this.#wrong();
    this.#problem.textContent = problem;
    this.#from.setAttribute("aria-invalid", String(Boolean(problem)));
    this.#to.setAttribute("aria-invalid", String(Boolean(problem)));
    return !problem;
  }

  #wrong() {
    const from = parseClock(this.#from.value);
    const to = parseClock(this.#to.value);
    if (Number.isNaN(from) || Number.isNaN(to)) return t("part.badTime");
    if (to !== null && to <= (from ?? 0)) return t("part.order");
    if (this.#duration && (from ?? 0) >= this.#duration) return t("part.short", { length: lasting(this.#duration) });
    return "";
  }

  /** { start_s, end_s } as far as given; null if what was typed makes no sense, which the field then says. */
  value() {
    if (!this.#from) return {};
    if (!this.#check()) {
      this.#from.focus();
      return null;
    }
    const start_s = parseClock(this.#from.value);
    const end_s = parseClock(this.#to.value);
    return { ...(start_s === null ? {} : { start_s }), ...(end_s === null ? {} : { end_s }) };
  }
}
