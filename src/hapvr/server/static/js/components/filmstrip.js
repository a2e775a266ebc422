// A video's frames side by side as a bar to seek on, with its matching stretches marked.

import { media } from "../api.js";
import { h } from "../dom.js";
import { clock } from "../format.js";

const MAX_FRAMES = 40; // in a strip that the server draws

export class Filmstrip {
  #marks = h("div", { class: "strip-marks", "aria-hidden": "true" });
  #head = h("div", { class: "strip-head", "aria-hidden": "true" });
  #time = h("output", { class: "strip-time" });
  #duration = 1;
  #side;
  #bar;

  /** `side` as for a screen; `seek(time)` is called when a person moves. */
  constructor(side, { label, name, seek }) {
    this.input = h("input", {
      type: "range",
      class: "strip-range",
      min: 0,
      max: 1,
      step: 0.1,
      value: 0,
      "aria-label": label,
      oninput: () => seek(Number(this.input.value)),
    });
    this.#side = side;
    this.#bar = h("div", { class: "strip-bar" }, this.#marks, this.#head, this.input);
    this.element = h(
      "div",
      { class: "strip" },
      this.#bar,
      h("p", { class: "strip-row" }, h("span", { class: "strip-name", title: name }, name), this.#time),
    );
  }

  /**
   * `marks` are stretches: { span, shared }. `shape` is the width of a frame divided by its height: as many frames are
   * shown as fit without stretching.
   */
  setUp(duration, marks, shape) {
    this.#duration = duration || 1;
    const { width, height } = this.#bar.getBoundingClientRect();
    const image = h("img", {
      class: "strip-image",
      src: media(this.#side, "strip", { count: countFrames(width / height, shape), height: 54 }),
      alt: "",
    });
    image.addEventListener("error", () => image.remove());
    this.#bar.prepend(image);
    this.input.max = this.#duration;
    this.#marks.replaceChildren(
      ...marks.map(({ span: [start, end], shared }) => {
        const mark = h("span", { class: `strip-mark ${shared ? "strip-mark-shared" : ""}` });
        mark.style.left = `${(100 * start) / this.#duration}%`;
        mark.style.width = `${Math.max(0.5, (100 * (end - start)) / this.#duration)}%`;
        return mark;
      }),
    );
    this.show(0);
  }

  show(time) {
    this.input.value = time;
    const text = clock(time, { tenths: true });
    this.input.setAttribute("aria-valuetext", text);
    this.#head.style.left = `${Math.min(100, (100 * time) / this.#duration)}%`;
    this.#time.textContent = `${text} / ${clock(this.#duration)}`;
  }
}

/** How many frames of a shape fill a bar; both are width divided by height. */
export function countFrames(bar, shape) {
  const count = Math.round(bar / (shape || 16 / 9)) || 1;
  return Math.max(1, Math.min(MAX_FRAMES, count));
}
