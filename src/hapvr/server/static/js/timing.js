// Which moment of one video is which of the other. Nothing here touches the page.
//
// A segment says that `query` [from, to] is `target` [from, to]; in between, time runs evenly. A segment may be
// `backwards`: its target then runs from the end to the start. Where `fitted` has found a better line through the frame
// matrix, the segment has it as `line`: { query, target, speed }, a pair of moments and the speed through them.

/** How many seconds of the target pass in one of the query; negative for a segment that runs backwards. */
export function speed(segment) {
  if (segment.line) return segment.line.speed;
  const query = segment.query[1] - segment.query[0];
  const target = segment.target[1] - segment.target[0];
  if (!(query > 0) || !(target > 0)) return 1; // an instant says nothing about speed
  return segment.backwards ? -target / query : target / query;
}

/** The target's moment for one of the query; beyond the segment, time goes on at the same speed. */
export function toTarget(segment, time) {
  const { query, target } = anchor(segment);
  return target + (time - query) * speed(segment);
}

/** The query's moment for one of the target. */
export function toQuery(segment, time) {
  const { query, target } = anchor(segment);
  return query + (time - target) / speed(segment);
}

/** A pair of moments that match. */
function anchor(segment) {
  if (segment.line) return segment.line;
  return { query: segment.query[0], target: segment.backwards ? segment.target[1] : segment.target[0] };
}

const SPEEDS = Array.from({ length: 25 }, (_, index) => 0.82 + 0.015 * index); // times what the ends say
const SHIFTS = Array.from({ length: 17 }, (_, index) => (index - 8) / 4); // in frames of the target
const PLAIN = 0.01; // of the similarity: so much may be lost for the plain speed of 1, which is the likeliest by far

/**
 * The segment with the line along which the frames are most alike. The ends of a segment are known to a frame or two,
 * which is far enough out of step to be seen; the matrix between them knows better.
 * `matrix` is { rows, columns, values } with the `times` { query, target } of its rows and columns.
 */
export function fitted(segment, matrix, times) {
  const middle = (segment.query[0] + segment.query[1]) / 2;
  const [target, rate] = [toTarget(segment, middle), speed(segment)];
  const rows = times.query.flatMap((time, row) => (time >= segment.query[0] && time <= segment.query[1] ? [row] : []));
  if (rows.length < 4 || times.target.length < 4) return segment;
  const frame = (times.target.at(-1) - times.target[0]) / (times.target.length - 1);
  const plain = Math.sign(rate);
  const near = Math.abs(rate) > 0.8 && Math.abs(rate) < 1.25;
  let best = null;
  for (const one of near ? [...SPEEDS.map((factor) => factor * rate), plain] : SPEEDS.map((factor) => factor * rate)) {
    for (const shift of SHIFTS) {
      const line = { query: middle, target: target + shift * frame, speed: one };
      const alike = along(line, rows, matrix, times) * (one === plain ? 1 + PLAIN : 1);
      if (best === null || alike > best.alike) best = { alike, line };
    }
  }
  return { ...segment, line: best.line };
}

/** The mean of a matrix along a line, between frames as much of each as it is near. */
function along(line, rows, { columns, values }, times) {
  let sum = 0;
  for (const row of rows) {
    const place = between(times.target, line.target + (times.query[row] - line.query) * line.speed);
    if (place === null) continue; // beyond the video there is nothing alike
    const left = Math.min(columns - 2, Math.floor(place));
    const part = place - left;
    sum += values[row * columns + left] * (1 - part) + values[row * columns + left + 1] * part;
  }
  return sum / rows.length;
}

/** Where a time lies among frames: 2.5 is halfway from the third to the fourth; null beyond the first and last. */
function between(times, time) {
  if (time < times[0] || time > times.at(-1)) return null;
  const near = nearest(times, time);
  const left = times[near] <= time ? Math.min(near, times.length - 2) : near - 1;
  return left + (time - times[left]) / (times[left + 1] - times[left]);
}

/** The segment whose side ("query" or "target") holds a moment, the present one first; null if there is none. */
export function segmentAt(segments, side, time, present = null) {
  const holds = (segment) => time >= segment[side][0] && time <= segment[side][1];
  if (present && holds(present)) return present;
  return segments.find(holds) ?? null;
}

/** A pair of moments as a segment, for two videos that run side by side from there. */
export function instant(query, target, like = null) {
  const rate = like ? Math.abs(speed(like)) : 1;
  return { query: [query, query + 1], target: [target, target + rate], backwards: false, score: null };
}

/** The index of the time nearest to this one; times ascend. */
export function nearest(times, time) {
  let low = 0;
  let high = times.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low > 0 && time - times[low - 1] <= times[low] - time ? low - 1 : low;
}

/**
 * How to bring the follower back in step: a drift in seconds (positive: it is ahead) and its proper rate in,
 * "seek" or a rate out. Small drifts are played away, a little faster or slower; large ones are jumped.
 */
export function correction(drift, rate) {
  if (Math.abs(drift) > 0.4) return "seek";
  if (Math.abs(drift) < 0.03) return rate;
  return rate * (1 - Math.max(-0.12, Math.min(0.12, drift * 0.6)));
}
