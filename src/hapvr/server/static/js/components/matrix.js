// The frame matrix as a heat map: rows are frames of the query, columns frames of the target. A cell moves both.

import { h, unique } from "../dom.js";
import { clock, decimal } from "../format.js";
import { t } from "../i18n.js";
import { nearest, toTarget } from "../timing.js";

const LEFT = 46; // room for the query's times
const TOP = 6;
const BOTTOM = 22; // and for the target's
const MAX_HEIGHT = 460;
const MIN_HEIGHT = 160;
const MAX_CELL = 26;
const PAGE = 10; // cells of Page Up and Page Down
const SHARED_DASH = [2, 3]; // the outline of footage that many videos share

// Dark means unlike in the dark, light in the light; both ends and the middle of a ramp of one hue family each.
const RAMPS = {
  light: [
    [246, 248, 251],
    [196, 214, 238],
    [104, 155, 214],
    [31, 95, 171],
    [9, 34, 84],
  ],
  dark: [
    [18, 25, 34],
    [27, 56, 96],
    [38, 108, 158],
    [92, 180, 190],
    [240, 244, 190],
  ],
};

/** A matrix of bytes from base64, and the similarities that 0 and 255 stand for. */
export function decoded(text, { rows, columns, lowest = -0.1, highest = 1 }) {
  const raw = atob(text);
  if (raw.length !== rows * columns) throw new Error(`The matrix has ${raw.length} values, not ${rows} × ${columns}.`);
  return { rows, columns, lowest, highest, values: Uint8Array.from(raw, (letter) => letter.charCodeAt(0)) };
}

export class MatrixView {
  #matrix = null;
  #canvas = h("canvas", { class: "matrix-canvas" });
  #overlay = h("canvas", { class: "matrix-canvas matrix-overlay" });
  #readout;
  #cell = [0, 0];
  #hover = null;
  #position = null;
  #jump;
  #box = { width: 0, height: 0 };
  #painted = null;

  /** `times` is { query, target }; `segments` are outlined; `jump(query, target)` is called with two moments. */
  constructor({ times, segments, jump, signal }) {
    this.times = times;
    this.segments = segments;
    this.#jump = jump;
    const id = unique("matrix");
    this.#readout = h("p", { class: "matrix-readout muted", id, role: "status" });
    this.surface = h(
      "div",
      {
        class: "matrix",
        tabindex: 0,
        role: "application",
        "aria-roledescription": t("matrix.role"),
        "aria-label": t("matrix.label"),
        "aria-describedby": id,
      },
      this.#canvas,
      this.#overlay,
    );
    this.element = h("div", { class: "matrix-box" }, this.surface, this.#readout);
    this.surface.addEventListener("keydown", (event) => this.#key(event));
    this.surface.addEventListener("pointerdown", (event) => this.#down(event));
    this.surface.addEventListener("pointermove", (event) => this.#move(event));
    this.surface.addEventListener("pointerleave", () => this.#point(null));
    this.surface.addEventListener("focus", () => this.#tell(this.#cell));
    const observer = new ResizeObserver(() => this.#resize());
    observer.observe(this.element);
    const repaint = () => this.#paint();
    document.addEventListener("themechange", repaint, { signal });
    signal.addEventListener("abort", () => observer.disconnect());
  }

  /** Show a matrix that `decoded` gave. */
  show(matrix) {
    this.#matrix = matrix;
    this.#cell = [Math.min(this.#cell[0], matrix.rows - 1), Math.min(this.#cell[1], matrix.columns - 1)];
    this.#resize();
  }

  /** Where the players are, in seconds. */
  position(query, target) {
    this.#position = [query, target];
    this.#draw();
  }

  /** Where cells lie on the page, to point at one: the middle of a row and column. */
  middle(row, column) {
    const { left, top } = this.surface.getBoundingClientRect();
    const [x, y] = [this.#x((column + 0.5) / this.#matrix.columns), this.#y((row + 0.5) / this.#matrix.rows)];
    return { x: left + x, y: top + y };
  }

  #resize() {
    if (!this.#matrix) return;
    const room = this.element.clientWidth - LEFT - 8;
    if (room < 40) return;
    const [rows, columns] = [this.times.query.length, this.times.target.length];
    const width = Math.min(room, Math.max(columns * MAX_CELL, 160));
    const height = Math.max(Math.min(rows * MAX_CELL, MIN_HEIGHT), Math.min(MAX_HEIGHT, (width * rows) / columns));
    this.#box = { width, height };
    for (const canvas of [this.#canvas, this.#overlay]) {
      canvas.width = Math.round((width + LEFT + 8) * devicePixelRatio);
      canvas.height = Math.round((height + TOP + BOTTOM) * devicePixelRatio);
      canvas.style.width = `${width + LEFT + 8}px`;
      canvas.style.height = `${height + TOP + BOTTOM}px`;
    }
    this.#paint();
  }

  #x = (share) => LEFT + share * this.#box.width;
  #y = (share) => TOP + share * this.#box.height;

  /** The heat map itself, its axes and the outlines: drawn once, not at every step of the players. */
  #paint() {
    if (!this.#matrix || !this.#box.width) return;
    const { rows, columns, values } = this.#matrix;
    const image = new ImageData(columns, rows);
    const ramp = colours(RAMPS[window.hapvrTheme.shown()], values);
    for (let index = 0; index < values.length; index += 1) image.data.set(ramp[values[index]], 4 * index);
    this.#painted = new OffscreenCanvas(columns, rows);
    this.#painted.getContext("2d").putImageData(image, 0, 0);
    const context = started(this.#canvas);
    context.imageSmoothingEnabled = false;
    const { width, height } = this.#box;
    context.drawImage(this.#painted, LEFT, TOP, width, height);
    const style = getComputedStyle(this.surface);
    context.strokeStyle = style.borderTopColor;
    context.strokeRect(LEFT - 0.5, TOP - 0.5, width + 1, height + 1);
    this.#axes(context, style);
    this.#outlines(context);
    this.#draw();
  }

  #axes(context, style) {
    const { width, height } = this.#box;
    context.font = `11px ${style.fontFamily}`;
    context.fillStyle = style.color;
    context.textBaseline = "top";
    for (const [share, text] of ticks(this.times.target, Math.max(2, Math.floor(width / 70)))) {
      context.textAlign = share < 0.02 ? "left" : share > 0.97 ? "right" : "center";
      context.fillText(text, this.#x(share), TOP + height + 6);
    }
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const [share, text] of ticks(this.times.query, Math.max(2, Math.floor(height / 36)))) {
      context.fillText(text, LEFT - 6, Math.max(TOP + 6, Math.min(TOP + height - 6, this.#y(share))));
    }
  }

  #outlines(context) {
    for (const segment of this.segments) {
      const [left, right] = segment.target.map((time) => this.#x(shareOf(this.times.target, time)));
      const [top, bottom] = segment.query.map((time) => this.#y(shareOf(this.times.query, time)));
      for (const [colour, wide] of [
        ["rgb(0 0 0 / 55%)", 3.5],
        ["#ffa94d", 1.75],
      ]) {
        context.strokeStyle = colour;
        context.lineWidth = wide;
        context.setLineDash(segment.shared ? SHARED_DASH : []);
        context.strokeRect(left, top, Math.max(3, right - left), Math.max(3, bottom - top));
        context.setLineDash([5, 5]);
        context.beginPath();
        for (const time of segment.query) {
          const x = this.#x(shareOf(this.times.target, toTarget(segment, time)));
          context.lineTo(x, this.#y(shareOf(this.times.query, time)));
        }
        context.stroke();
        context.setLineDash([]);
      }
    }
  }

  /** What moves: the players' place, the cell with the keyboard's focus, the cell under the pointer. */
  #draw() {
    if (!this.#matrix || !this.#box.width) return;
    const context = started(this.#overlay);
    const { width, height } = this.#box;
    if (this.#position) {
      const [query, target] = this.#position;
      const [x, y] = [this.#x(shareOf(this.times.target, target)), this.#y(shareOf(this.times.query, query))];
      for (const [colour, wide] of [
        ["rgb(0 0 0 / 45%)", 3],
        ["rgb(255 255 255 / 90%)", 1],
      ]) {
        context.strokeStyle = colour;
        context.lineWidth = wide;
        context.beginPath();
        context.moveTo(x, TOP);
        context.lineTo(x, TOP + height);
        context.moveTo(LEFT, y);
        context.lineTo(LEFT + width, y);
        context.stroke();
      }
      context.fillStyle = "#ff6b35";
      context.strokeStyle = "#fff";
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, 5, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
    }
    const cell = this.#hover ?? (document.activeElement === this.surface ? this.#cell : null);
    if (cell) {
      const { rows, columns } = this.#matrix;
      const size = [Math.max(4, width / columns), Math.max(4, height / rows)];
      context.lineWidth = 2;
      context.strokeStyle = "#fff";
      context.strokeRect(this.#x(cell[1] / columns), this.#y(cell[0] / rows), ...size);
    }
  }

  #at(event) {
    const { left, top } = this.#canvas.getBoundingClientRect();
    const { rows, columns } = this.#matrix;
    const column = Math.floor(((event.clientX - left - LEFT) / this.#box.width) * columns);
    const row = Math.floor(((event.clientY - top - TOP) / this.#box.height) * rows);
    const inside = row >= 0 && row < rows && column >= 0 && column < columns;
    return inside ? [row, column] : null;
  }

  #down(event) {
    const cell = this.#matrix && this.#at(event);
    if (!cell || event.button !== 0) return;
    this.surface.focus({ preventScroll: true });
    this.#go(cell);
  }

  #move(event) {
    if (!this.#matrix) return;
    const cell = this.#at(event);
    if (event.buttons === 1 && event.pointerType === "mouse" && cell) this.#go(cell);
    this.#point(cell);
  }

  #point(cell) {
    this.#hover = cell;
    if (cell) this.#tell(cell);
    this.#draw();
  }

  #key(event) {
    const { rows, columns } = this.#matrix ?? { rows: 0, columns: 0 };
    const [row, column] = this.#cell;
    const moves = {
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      PageUp: [row - PAGE, column],
      PageDown: [row + PAGE, column],
      Home: [row, 0],
      End: [row, columns - 1],
    };
    const cell = moves[event.key];
    if (!cell || !rows || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.#hover = null;
    this.#go([Math.max(0, Math.min(rows - 1, cell[0])), Math.max(0, Math.min(columns - 1, cell[1]))]);
  }

  #go(cell) {
    this.#cell = cell;
    this.#tell(cell);
    this.#jump(...this.#moments(cell));
    this.#draw();
  }

  /** Begin at the cell of these moments, without a jump: where the keyboard starts from. */
  start(query, target) {
    const { rows, columns } = this.#matrix;
    const row = Math.floor((nearest(this.times.query, query) / this.times.query.length) * rows);
    const column = Math.floor((nearest(this.times.target, target) / this.times.target.length) * columns);
    this.#cell = [row, column];
  }

  #moments([row, column]) {
    const time = (times, index, cells) =>
      times[Math.min(times.length - 1, Math.floor(((index + 0.5) / cells) * times.length))];
    return [time(this.times.query, row, this.#matrix.rows), time(this.times.target, column, this.#matrix.columns)];
  }

  #tell([row, column]) {
    const [query, target] = this.#moments([row, column]);
    const { columns, values, lowest, highest } = this.#matrix;
    const value = lowest + (values[row * columns + column] / 255) * (highest - lowest);
    this.#readout.textContent = t("matrix.readout", {
      query: clock(query, { tenths: true }),
      target: clock(target, { tenths: true }),
      value: decimal(value, 2).replace("-", "−"),
    });
  }
}

/** A context that is clear and measured in CSS pixels. */
function started(canvas) {
  const context = canvas.getContext("2d");
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.lineWidth = 1;
  return context;
}

/** Where a moment lies along frames at these times, 0 to 1: frames are as wide as each other, whatever lies between. */
export function shareOf(times, time) {
  if (times.length < 2) return 0.5;
  const right = times.findIndex((one) => one > time);
  if (right === 0) return 0.5 / times.length;
  if (right < 0) return (times.length - 0.5) / times.length;
  const part = (time - times[right - 1]) / (times[right] - times[right - 1]);
  return (right - 0.5 + part) / times.length;
}

/** A few [share, text] along an axis, first and last included. */
function ticks(times, most) {
  const number = Math.min(most, times.length);
  return Array.from({ length: number }, (_, index) => {
    const frame = number === 1 ? 0 : Math.round((index * (times.length - 1)) / (number - 1));
    return [(frame + 0.5) / times.length, clock(times[frame])];
  });
}

/** A colour for each byte; the ramp spans what the matrix holds, so that a weak one shows its pattern too. */
function colours(stops, values) {
  let low = 255;
  let high = 0;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const reach = Math.max(high - low, 32);
  return Array.from({ length: 256 }, (_, byte) => {
    const share = Math.max(0, Math.min(1, (byte - low) / reach)) * (stops.length - 1);
    const at = Math.min(stops.length - 2, Math.floor(share));
    const mixed = stops[at].map((from, channel) => from + (stops[at + 1][channel] - from) * (share - at));
    return [...mixed.map(Math.round), 255];
  });
}
