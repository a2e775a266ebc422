// How far something has come: a bar, numbers, and a way to stop it. Read out now and then, not at every step.

import { announce, h } from "../dom.js";
import { count, decimal, lasting } from "../format.js";
import { t } from "../i18n.js";

const SPOKEN_MS = 4000;

/** A card with a bar; `update(...)` moves it and says more. */
export class ProgressCard {
  #title = h("h2", { class: "progress-title" });
  #bar = h("progress", { max: 1 });
  #message = h("span", { class: "progress-message" });
  #numbers = h("span", { class: "progress-numbers" });
  #spoken = 0;

  constructor({ title, stop = null, stopLabel = t("cancel") }) {
    this.#title.textContent = title;
    this.#bar.setAttribute("aria-label", title);
    this.button =
      stop && h("button", { type: "button", class: "button quiet small", onclick: () => this.#stop(stop) }, stopLabel);
    this.element = h(
      "section",
      { class: "card progress-card" },
      h("div", { class: "row between" }, this.#title, this.button),
      this.#bar,
      h("p", { class: "row between muted small-text" }, this.#message, this.#numbers),
    );
  }

  update({ title, done, total, message, rate, eta_s, unit = "", rateUnit = "" }) {
    if (title) {
      this.#title.textContent = title;
      this.#bar.setAttribute("aria-label", title);
    }
    if (total > 0) {
      this.#bar.max = total;
      this.#bar.value = Math.min(done, total);
    } else {
      this.#bar.removeAttribute("value");
    }
    this.#message.textContent = message ?? "";
    const numbers = [
      total > 0 && unit && t("progress.of", { done: count(done), total: count(total), unit }),
      total > 0 && !unit && `${Math.round((100 * Math.min(done, total)) / total)}%`,
      rate > 0 && rateUnit && `${rate >= 10 ? count(rate) : decimal(rate, 1)} ${rateUnit}`,
      eta_s > 0 && t("progress.left", { time: lasting(eta_s) }),
    ].filter(Boolean);
    this.#numbers.textContent = numbers.join(" · ");
    const now = Date.now();
    if (now - this.#spoken > SPOKEN_MS) {
      this.#spoken = now;
      announce([this.#title.textContent, ...numbers].join(", "));
    }
  }

  async #stop(stop) {
    this.button.disabled = true;
    try {
      await stop();
    } catch {
      this.button.disabled = false; // it may have ended by itself meanwhile
    }
  }
}

/** What a job says about itself, for a card. */
export function jobProgress(job, titles, units = {}) {
  const { done, total, message, rate, eta_s } = job.progress ?? {};
  const title = job.state === "queued" ? titles.queued : titles.running;
  return { title, done: done ?? 0, total: total ?? 0, message, rate, eta_s, ...units };
}
