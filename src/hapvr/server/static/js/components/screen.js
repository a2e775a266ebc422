// One video, however it can be shown: the file itself, a transcoded preview where the browser does not know its codec,
// or single frames where there is no preview either. A picture is a video that stands still.

import { media } from "../api.js";
import { h } from "../dom.js";
import { t } from "../i18n.js";

const FRAME_S = 1; // how far apart single frames are shown while "playing" them
const WAIT_MS = 15_000; // a file that tells nothing about itself by then is not going to
const AGAIN_MS = 3000;
const MAX_TRIES = 60; // of a preview that is being made

export class Screen extends EventTarget {
  kind = "loading"; // "file", "preview", "frames" or "picture"
  duration = 0;
  #side;
  #signal;
  #video = null;
  #picture = null;
  #time = 0;
  #rate = 1;
  #timer = null;
  #wanted = null;

  /** `side` is { kind, id, name, duration }; `still` for a picture. */
  constructor(side, { label, still = false, signal }) {
    super();
    this.#side = side;
    this.#signal = signal;
    this.duration = side.duration || 0;
    this.note = h("p", { class: "screen-note" });
    this.note.hidden = true;
    this.frame = h("div", { class: "screen-frame" });
    this.element = h("figure", { class: "screen" }, this.frame, this.note);
    this.label = label;
    this.ready = still ? this.#asPicture() : this.#open();
    signal.addEventListener("abort", () => this.close());
  }

  async #open() {
    try {
      await this.#load(media(this.#side, "file"));
      this.kind = "file";
      return;
    } catch {
      // Not a format of this browser's.
    }
    await this.#asFrames(t("screen.making"));
    this.#toPreview();
  }

  /** Single frames give way to the preview once there is one. */
  async #toPreview() {
    const url = media(this.#side, "preview");
    try {
      for (let tries = 0; tries < MAX_TRIES && !this.#signal.aborted; tries += 1) {
        const answer = await fetch(url, { headers: { Range: "bytes=0-0" }, signal: this.#signal });
        if (answer.ok) {
          const time = this.#time;
          const playing = this.#timer !== null;
          await this.#load(url);
          this.pause();
          this.kind = "preview";
          this.#say(t("screen.preview"));
          this.seek(time);
          this.setRate(this.#rate);
          if (playing) this.play();
          this.dispatchEvent(new Event("upgraded"));
          return;
        }
        if (answer.status !== 503) break; // it is not being made, and will not be
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    } catch (error) {
      if (error.name === "AbortError") return;
    }
    this.#say(t("screen.frames"));
  }

  #load(url) {
    return new Promise((resolve, reject) => {
      const video = h("video", { preload: "auto", playsinline: true, "aria-label": this.label });
      video.muted = true;
      const timer = setTimeout(() => reject(new Error("no answer")), WAIT_MS);
      video.addEventListener("error", () => (clearTimeout(timer), reject(new Error("cannot be played"))), {
        once: true,
      });
      video.addEventListener(
        "loadeddata",
        () => {
          clearTimeout(timer);
          // A file whose sound alone is understood loads as well.
          if (!video.videoWidth) {
            reject(new Error("no picture"));
            return;
          }
          if (Number.isFinite(video.duration)) this.duration = video.duration;
          this.#video = video;
          this.#fit(video.videoWidth, video.videoHeight);
          video.addEventListener("ended", () => this.dispatchEvent(new Event("ended")));
          video.addEventListener("seeked", () => this.dispatchEvent(new Event("seeked")));
          this.frame.replaceChildren(video);
          resolve();
        },
        { once: true },
      );
      video.src = url;
    });
  }

  async #asFrames(text) {
    this.kind = "frames";
    this.#say(text);
    await this.#still(media(this.#side, "thumbnail", { t: 0, width: 640 }));
  }

  async #asPicture() {
    this.kind = "picture";
    await this.#still(media(this.#side, "thumbnail", { width: 640 }));
  }

  /** Resolves once the picture is there, or will not be. */
  #still(url) {
    this.#picture = h("img", { src: url, alt: this.label });
    this.#picture.addEventListener("error", () => {
      this.frame.replaceChildren(h("p", { class: "screen-none" }, t("screen.none")));
    });
    this.#picture.addEventListener("load", () => {
      this.#fit(this.#picture.naturalWidth, this.#picture.naturalHeight);
      this.dispatchEvent(new Event("seeked"));
    });
    this.frame.replaceChildren(this.#picture);
    return this.#picture.decode().catch(() => {});
  }

  /** The box takes the shape of what it shows, as far as there is room. */
  #fit(width, height) {
    if (width && height) this.frame.style.setProperty("--ratio", `${width} / ${height}`);
  }

  #say(text) {
    this.note.textContent = text;
    this.note.hidden = false;
  }

  /** Width over height of what is shown; null while that is not known. */
  get shape() {
    const [width, height] = this.#video
      ? [this.#video.videoWidth, this.#video.videoHeight]
      : [this.#picture?.naturalWidth, this.#picture?.naturalHeight];
    return width && height ? width / height : null;
  }

  /** What is shown, to be drawn elsewhere; null while there is nothing. */
  get image() {
    if (this.#video) return this.#video;
    return this.#picture?.complete && this.#picture.naturalWidth ? this.#picture : null;
  }

  get time() {
    return this.#video ? this.#video.currentTime : this.#time;
  }

  get seeking() {
    return this.#video ? this.#video.seeking : false;
  }

  get paused() {
    return this.#video ? this.#video.paused : this.#timer === null;
  }

  seek(time) {
    const end = this.duration ? Math.max(0, this.duration - 0.04) : time; // the very end shows nothing in some browsers
    const place = Math.max(0, Math.min(end, time));
    this.#time = place;
    if (this.#video) this.#seekVideo(place);
    else if (this.kind === "frames") this.#showFrame(place);
  }

  /** While one seek is under way only the latest of the others is kept: dragging stays quick. */
  #seekVideo(place) {
    if (this.#video.seeking) {
      if (this.#wanted === null) {
        this.#video.addEventListener(
          "seeked",
          () => {
            const next = this.#wanted;
            this.#wanted = null;
            this.#video.currentTime = next;
          },
          { once: true },
        );
      }
      this.#wanted = place;
      return;
    }
    this.#video.currentTime = place;
  }

  #showFrame(place) {
    const shown = Math.round(place * 2) / 2; // a few different addresses, which the browser keeps
    this.#picture.src = media(this.#side, "thumbnail", { t: shown, width: 640 });
  }

  setRate(rate) {
    this.#rate = rate;
    if (this.#video) this.#video.playbackRate = Math.max(0.0625, Math.min(16, rate));
  }

  setMuted(muted) {
    if (this.#video) this.#video.muted = muted;
  }

  async play() {
    if (this.#video) {
      try {
        await this.#video.play();
      } catch {
        // It was paused again at once, or the browser wants a click first.
      }
    } else if (this.kind === "frames" && this.#timer === null) {
      this.#timer = setInterval(() => {
        if (this.#time + FRAME_S >= this.duration) {
          this.pause();
          this.dispatchEvent(new Event("ended"));
        } else {
          this.seek(this.#time + FRAME_S * this.#rate);
        }
      }, 1000 * FRAME_S);
    }
  }

  pause() {
    this.#video?.pause();
    clearInterval(this.#timer);
    this.#timer = null;
  }

  close() {
    this.pause();
    if (!this.#video) return;
    this.#video.removeAttribute("src"); // lets go of the connection
    this.#video.load();
  }
}
