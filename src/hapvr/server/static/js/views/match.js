// Two videos side by side, in step, with the matrix of their frames.

import { get, part, post } from "../api.js";
import { verdictBadge, verdictReason } from "../components/badge.js";
import { Duet } from "../components/duet.js";
import { Filmstrip } from "../components/filmstrip.js";
import { strongest } from "../components/hitcard.js";
import { linkButton } from "../components/linkbutton.js";
import { LookCloser } from "../components/lookcloser.js";
import { decoded, MatrixView } from "../components/matrix.js";
import { errorState, note } from "../components/notice.js";
import { jobProgress, ProgressCard } from "../components/progress.js";
import { Screen } from "../components/screen.js";
import { describeSegment, sharedNote } from "../components/timeline.js";
import { transport } from "../components/transport.js";
import { announce, h, show } from "../dom.js";
import { clock, percent, span } from "../format.js";
import { t } from "../i18n.js";
import { cancel, resultOf } from "../jobs.js";
import { sharedFields } from "../settings.js";
import { fitted } from "../timing.js";
import { sideFromAddress } from "./results.js";

const TITLES = { queued: t("queued"), running: t("match.running") };

export async function matchView(place, { parameters, signal, title }) {
  title(t("sideBySide"));
  const head = h("div", { class: "match-head" });
  const body = h("div", { class: "match" });
  const back = h("button", { type: "button", class: "button quiet small", onclick: () => history.back() }, t("back"));
  const tools = h("div", { class: "row" }, back);
  show(place, h("div", { class: "row between" }, h("h1", {}, t("sideBySide")), tools), head, body);
  const card = new ProgressCard({ title: TITLES.running });
  card.update({ total: 0 });
  show(body, card.element);
  try {
    const [query, video] = await Promise.all([
      sideFromAddress(parameters.a, signal),
      get(`videos/${part(parameters.b)}`, { signal }),
    ]);
    const target = { kind: "videos", id: video.id, name: video.name, duration: video.duration, still: !video.duration };
    title(t("match.pair", { a: query.name, b: target.name }));
    const { job } = await post("compare", { a: query.id, b: target.id, ...sharedFields() }, { signal });
    signal.addEventListener("abort", () => cancel(job.id).catch(() => {})); // it may have ended, which is as good
    const result = await resultOf(job.id, (now) => card.update(jobProgress(now, TITLES)), { signal });
    show(
      head,
      verdictBadge(result),
      verdictReason(result),
      result.prior !== null &&
        h("p", { class: "muted small-text" }, t("match.prior", { prior: percent(result.prior) })),
      warned(t("match.query"), result.warnings.query),
      warned(t("match.match"), result.warnings.target),
    );
    show(tools, linkButton(query), back);
    await play(body, query, target, result, signal);
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    show(
      body,
      errorState(error, {
        title: t("match.failed"),
        actions: [h("a", { class: "button", href: "#/" }, t("newSearch"))],
      }),
    );
  }
}

const warned = (name, texts) => texts.length > 0 && note(`${name}: ${texts.join(" ")}`, { kind: "warning" });

async function play(body, query, target, result, signal) {
  const segments = inStep(result);
  const screens = {
    query: new Screen(query, { label: `${t("query")}: ${query.name}`, still: query.still, signal }),
    target: new Screen(target, { label: `${t("match")}: ${target.name}`, still: target.still, signal }),
  };
  let duet = null;
  const strips = {
    query: new Filmstrip(query, {
      label: t("match.positionQuery"),
      name: query.name,
      seek: (time) => duet?.seek("query", time),
    }),
    target: new Filmstrip(target, {
      label: t("match.positionMatch"),
      name: target.name,
      seek: (time) => duet?.seek("target", time),
    }),
  };
  const controls = h("div", { class: "match-controls" });
  const matrix = h("section", { class: "card match-matrix", "aria-labelledby": "matrix-title" });
  show(
    body,
    h(
      "div",
      { class: "screens" },
      side(t("query"), screens.query, strips.query),
      side(t("match"), screens.target, strips.target),
    ),
    controls,
    matrix,
  );
  await Promise.all([screens.query.ready, screens.target.ready]);
  if (signal.aborted) return;
  duet = new Duet(screens.query, screens.target, segments, { signal });
  strips.query.setUp(
    screens.query.duration,
    segments.map(({ query: span, shared }) => ({ span, shared })),
    screens.query.shape,
  );
  strips.target.setUp(
    screens.target.duration,
    segments.map(({ target: span, shared }) => ({ span, shared })),
    screens.target.shape,
  );
  const closer = new LookCloser(screens, { signal });
  show(controls, transport(duet, { signal }), closer.element, places(segments, duet, result));
  const view = heatMap(matrix, result.matrix, segments, duet, signal);
  duet.addEventListener("change", () => {
    strips.query.show(screens.query.time);
    strips.target.show(screens.target.time);
    view?.position(screens.query.time, screens.target.time);
    closer.draw();
  });
  for (const screen of Object.values(screens)) {
    screen.addEventListener("seeked", () => duet.dispatchEvent(new Event("change")));
  }
  start(duet, segments, result.matrix, view);
  announce(t("match.ready"));
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) duet.play();
}

/** The segments, each with the line along which its frames are most alike. */
function inStep({ segments = [], matrix }) {
  if (!matrix?.rows || !matrix?.columns) return segments;
  const values = decoded(matrix.before ?? matrix.values, matrix);
  return segments.map((segment) => fitted(segment, values, { query: matrix.query_times, target: matrix.target_times }));
}

function side(name, screen, strip) {
  return h(
    "section",
    { class: "card side", "aria-label": name },
    h("h2", { class: "side-title" }, name),
    screen.element,
    strip.element,
  );
}

/** At the best match, or else at the most similar frames. */
function start(duet, segments, matrix, view) {
  const best = strongest(segments);
  if (best) duet.choose(best);
  else if (matrix) duet.jump(...mostSimilar(matrix));
  view?.start(duet.query.time, duet.target.time);
}

function mostSimilar(matrix) {
  const { values } = decoded(matrix.before ?? matrix.values, matrix);
  const at = values.reduce((best, value, index) => (value > values[best] ? index : best), 0);
  return [matrix.query_times[Math.floor(at / matrix.columns)], matrix.target_times[at % matrix.columns]];
}

/** The matching stretches, to jump to. */
function places(segments, duet, { match, best }) {
  if (!segments.length) {
    const where = t("match.pair", { a: clock(best.query), b: clock(best.target) });
    return note(match ? t("match.instant", { where }) : t("match.noStretch", { where }));
  }
  const items = segments.map((segment) =>
    h(
      "li",
      {},
      h(
        "button",
        {
          type: "button",
          class: `chip ${segment.shared ? "chip-shared" : ""}`,
          onclick: () => duet.choose(segment),
        },
        `${span(segment.query)} → ${span(segment.target)}${describeSegment(segment)}`,
      ),
    ),
  );
  return h(
    "div",
    { class: "places" },
    h("h2", { class: "places-title" }, t("match.stretches")),
    h("ul", { class: "chips" }, items),
    sharedNote(segments),
  );
}

function heatMap(place, matrix, segments, duet, signal) {
  const heading = h("h2", { id: "matrix-title" }, t("matrix"));
  if (!matrix?.rows || !matrix?.columns) {
    show(place, heading, h("p", { class: "muted" }, t("matrix.none")));
    return null;
  }
  const times = { query: matrix.query_times, target: matrix.target_times };
  const stages = {
    after: decoded(matrix.values, matrix),
    before: matrix.before ? decoded(matrix.before, matrix) : null,
  };
  const view = new MatrixView({ times, segments, signal, jump: (query, target) => duet.jump(query, target) });
  const toggle = (name, label) =>
    h(
      "label",
      { class: "segmented-item" },
      h("input", {
        type: "radio",
        name: "stage",
        value: name,
        checked: name === "after",
        onchange: () => view.show(stages[name]),
      }),
      h("span", {}, label),
    );
  show(
    place,
    h(
      "div",
      { class: "row between" },
      heading,
      stages.before &&
        h(
          "fieldset",
          { class: "segmented" },
          h("legend", { class: "visually-hidden" }, t("matrix.stage")),
          toggle("before", t("matrix.before")),
          toggle("after", t("matrix.after")),
        ),
    ),
    h(
      "p",
      { class: "muted small-text" },
      t("matrix.axes"),
      segments.some((one) => one.shared) ? t("matrix.outlinedShared") : t("matrix.outlined"),
      t("matrix.use"),
    ),
    view.element,
  );
  view.show(stages.after);
  return view;
}
