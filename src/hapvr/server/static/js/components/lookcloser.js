// Two frames that match as one picture: one over the other, in turn, or what differs. It follows the two players.

import { announce, h, show } from "../dom.js";
import { t } from "../i18n.js";

const BLINK_MS = 700;
const WIDTH = 960; // of the drawing at most

/** The views by the key that shows each. */
export const VIEWS = Object.freeze({ s: "side", o: "overlay", b: "blink", d: "difference" });

export class LookCloser {
  #screens;
  #canvas = h("canvas", { role: "img" });
  #share = h("input", { type: "range", min: 0, max: 100, value: 50, "aria-label": t("closer.share") });
  #said = h("p", { class: "muted small-text" });
  #box;
  #radios;
  #view = "side";
  #second = false; // which of the two is shown while blinking
  #timer = null;

  /** `screens` are { query, target }, which are ready. */
  constructor(screens, { signal }) {
    this.#screens = screens;
    this.#radios = Object.entries(VIEWS).map(([key, view]) =>
      h("input", {
        type: "radio",
        name: "closer",
        value: view,
        checked: view === "side",
        "aria-keyshortcuts": key,
        onchange: () => this.choose(view),
      }),
    );
    const items = this.#radios.map((radio) =>
      h("label", { class: "segmented-item" }, radio, h("span", {}, t(`closer.${radio.value}`))),
    );
    this.#box = h("div", { class: "closer-box", hidden: true }, this.#canvas, this.#share, this.#said);
    this.element = h(
      "div",
      { class: "closer" },
      h("fieldset", { class: "segmented" }, h("legend", { class: "visually-hidden" }, t("closer.title")), items),
      this.#box,
    );
    this.#share.addEventListener("input", () => this.draw());
    document.addEventListener("keydown", (event) => this.#key(event), { signal });
    signal.addEventListener("abort", () => clearInterval(this.#timer));
  }

  /** "side", "overlay", "blink" or "difference". */
  choose(view) {
    this.#view = view;
    for (const radio of this.#radios) radio.checked = radio.value === view;
    clearInterval(this.#timer);
    this.#second = false;
    this.#box.hidden = view === "side";
    this.#share.hidden = view !== "overlay";
    if (view !== "side") show(this.#said, t(`closer.${view}.said`));
    this.#canvas.setAttribute("aria-label", t(`closer.${view}`));
    announce(t(`closer.${view}`));
    // Somebody who wants no motion blinks by hand, with the key.
    if (view === "blink" && !matchMedia("(prefers-reduced-motion: reduce)").matches)
      this.#timer = setInterval(() => this.#turn(), BLINK_MS);
    this.draw();
  }

  #turn() {
    this.#second = !this.#second;
    this.draw();
  }

  #key(event) {
    const view = VIEWS[event.key];
    if (!view || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("select, textarea, dialog, input:not([type=range]):not([type=radio])")) return;
    if (view === "blink" && this.#view === "blink") this.#turn();
    else this.choose(view);
  }

  /** Draw what both players show now. */
  draw() {
    if (this.#view === "side") return;
    const [query, target] = [this.#screens.query.image, this.#screens.target.image];
    const ratio = this.#screens.query.shape ?? this.#screens.target.shape;
    if (!query || !target || !ratio) return;
    const pen = this.#canvas.getContext("2d");
    this.#canvas.width = WIDTH;
    this.#canvas.height = Math.round(WIDTH / ratio);
    const { width, height } = this.#canvas;
    const paint = (image) => pen.drawImage(image, 0, 0, width, height);
    if (this.#view === "blink") {
      paint(this.#second ? target : query);
      this.#canvas.dataset.shown = this.#second ? "target" : "query";
      return;
    }
    paint(query);
    if (this.#view === "overlay") pen.globalAlpha = this.#share.value / 100;
    else pen.globalCompositeOperation = "difference";
    paint(target);
    pen.globalAlpha = 1;
    pen.globalCompositeOperation = "source-over";
  }
}
