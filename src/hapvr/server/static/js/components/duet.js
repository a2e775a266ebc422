// Two screens in step: what one does, the other does at the place that matches.
//
// One side leads and plays at its own pace; the other follows at the segment's speed, nudged faster or slower when it
// drifts and moved when it is far off. What runs backwards, or is shown as single frames, is followed by seeking.

import { correction, instant, segmentAt, speed, toQuery, toTarget } from "../timing.js";

const CHECK_MS = 200;

export class Duet extends EventTarget {
  segment;
  playing = false;
  loop = false;
  #segments;
  #pace = 1;
  #timer = null;
  #sound = "none";

  /** `query` and `target` are screens that are ready. */
  constructor(query, target, segments, { signal }) {
    super();
    this.query = query;
    this.target = target;
    this.#segments = segments;
    this.segment = segments[0] ?? instant(0, 0);
    for (const screen of [query, target]) {
      screen.addEventListener("ended", () => this.#ended());
      screen.addEventListener("upgraded", () => this.#upgraded());
    }
    signal.addEventListener("abort", () => this.pause());
  }

  /** The side that plays by itself: a picture cannot. */
  get leads() {
    return this.query.kind === "picture" ? "target" : "query";
  }

  /** Show a segment from its start. */
  choose(segment) {
    this.segment = segment;
    this.#place(segment.query[0]);
  }

  /** Move both, given a moment of one of them ("query" or "target"). */
  seek(side, time) {
    const found = segmentAt(this.#segments, side, time, this.segment);
    if (found) this.segment = found;
    if (side === "query") this.#place(time);
    else this.#place(toQuery(this.segment, time), time);
  }

  /** Move both to a pair of moments, which need not lie on a segment: they run on from there. */
  jump(query, target) {
    const found = this.#segments.find(
      (one) =>
        segmentAt([one], "query", query) &&
        segmentAt([one], "target", target) &&
        Math.abs(toTarget(one, query) - target) < 1,
    );
    this.segment = found ?? instant(query, target, this.segment);
    this.query.seek(query);
    this.target.seek(target);
    this.#rates();
    this.#changed();
  }

  #place(query, target = toTarget(this.segment, query)) {
    this.query.seek(query);
    this.target.seek(target);
    this.#rates();
    this.#changed();
  }

  get pace() {
    return this.#pace;
  }

  set pace(value) {
    this.#pace = value;
    this.#rates();
  }

  /** Which side is heard: "none", "query" or "target". */
  set sound(value) {
    this.#sound = value;
    this.query.setMuted(value !== "query");
    this.target.setMuted(value !== "target");
  }

  get sound() {
    return this.#sound;
  }

  /** Whether the target must be moved by hand, as it cannot play at the segment's speed. */
  get #byHand() {
    return speed(this.segment) <= 0 || this.target.kind === "frames" || this.query.kind === "frames";
  }

  #rates() {
    this.query.setRate(this.#pace);
    this.target.setRate(this.leads === "target" ? this.#pace : this.#pace * Math.abs(speed(this.segment)));
  }

  async play() {
    if (this.playing) return;
    this.playing = true;
    this.#rates();
    this.#changed();
    this.#timer = setInterval(() => this.#step(), CHECK_MS);
    if (this.leads === "target") await this.target.play();
    else await Promise.all([this.query.play(), this.#byHand ? null : this.target.play()]);
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    clearInterval(this.#timer);
    this.query.pause();
    this.target.pause();
    this.#changed();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  #step() {
    const time = this.query.time;
    if (this.loop && this.#past()) {
      this.choose(this.segment);
      if (this.query.paused && this.leads === "query") this.query.play();
      return;
    }
    if (this.leads === "query") {
      const next = segmentAt(this.#segments, "query", time, this.segment);
      if (next && next !== this.segment && this.#segments.includes(this.segment)) {
        this.segment = next; // the query has come to another stretch that matches
        this.#rates();
      }
      this.#keepStep(toTarget(this.segment, time));
    }
    this.#changed();
  }

  #past() {
    if (this.leads === "target") return this.target.time >= this.segment.target[1];
    return this.query.time >= this.segment.query[1];
  }

  #keepStep(due) {
    if (this.target.seeking || this.query.seeking) return;
    const outside = due < 0 || (this.target.duration && due > this.target.duration);
    if (this.#byHand || outside) {
      this.target.pause();
      if (!outside && Math.abs(this.target.time - due) > 0.1) this.target.seek(due);
      return;
    }
    if (this.target.paused) this.target.play();
    const rate = this.#pace * speed(this.segment);
    const answer = correction(this.target.time - due, rate);
    if (answer === "seek")
      this.target.seek(due + CHECK_MS / 2000); // it takes a moment, which has passed by then
    else this.target.setRate(answer);
  }

  #ended() {
    if (!this.playing) return;
    if (this.loop) (this.choose(this.segment), this.query.play());
    else if (this[this.leads].paused || this[this.leads].time >= this[this.leads].duration - 0.1) this.pause();
  }

  /** A side that showed single frames can now play. */
  #upgraded() {
    this.#rates();
    this.sound = this.#sound;
    if (this.playing) this[this.leads].play();
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}
