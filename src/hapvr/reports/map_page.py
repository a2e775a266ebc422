"""A map of a library as one self-contained page: points to click on, with pictures and nearest neighbours."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hapvr.library.library_map import LibraryMap
from hapvr.library.results import display_path
from hapvr.reports.frame_strips import read_thumbnails
from hapvr.reports.html_page import format_time, write_page
from hapvr.storage import StrPath

MAX_PICTURES = 300  # of a map, if nothing else is said

# Colours of groups that people with colour blindness tell apart, and grey for points of no group.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#7b4ea3", "#8c564b")
NO_GROUP = "#888888"

_STYLE = """<style>
.map { display: grid; grid-template-columns: minmax(0, 1fr) 20rem; gap: 1rem; }
.map svg { width: 100%; border: 1px solid #8884; border-radius: .4rem; touch-action: manipulation; }
.map circle { cursor: pointer; stroke: Canvas; stroke-width: 1; } .map image { cursor: pointer; }
.map circle.chosen { stroke: CanvasText; stroke-width: 3; } .map line { stroke: CanvasText; opacity: .5; }
.map aside { overflow-wrap: anywhere; } .map aside img { width: 100%; border-radius: .3rem; }
.map aside ol { padding-left: 1.2rem; } .map aside button { font: inherit; text-align: left; background: none;
  border: 0; padding: .15rem 0; color: LinkText; cursor: pointer; overflow-wrap: anywhere; }
@media (max-width: 50rem) { .map { grid-template-columns: 1fr; } }
</style>"""

_SCRIPT = """
const NS = "http://www.w3.org/2000/svg", SIZE = 1000, EDGE = 40;
const svg = document.querySelector("svg"), side = document.querySelector("aside");
const at = value => EDGE + value * (SIZE - 2 * EDGE);
const make = (name, values) => {
  const one = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(values)) one.setAttribute(key, value);
  return one;
};
const lines = svg.appendChild(make("g", {})), dots = [];
POINTS.forEach((point, number) => {
  const dot = make("circle", {cx: at(point.x), cy: at(point.y), r: 7, fill: point.colour, tabindex: -1});
  dot.appendChild(make("title", {})).textContent = point.name;
  dot.addEventListener("click", () => choose(number));
  dots.push(svg.appendChild(dot));
});
// Pictures where they do not cover one another.
const taken = [];
POINTS.forEach((point, number) => {
  if (!point.picture) return;
  const x = at(point.x) - 40, y = at(point.y) - 26;
  if (taken.some(([a, b]) => Math.abs(a - x) < 84 && Math.abs(b - y) < 56)) return;
  taken.push([x, y]);
  const image = make("image", {href: point.picture, x, y, width: 80, height: 52,
    preserveAspectRatio: "xMidYMid meet"});
  image.addEventListener("click", () => choose(number));
  svg.appendChild(image);
});
let current = -1;
function choose(number) {
  const point = POINTS[number];
  current = number;
  lines.replaceChildren(...point.neighbours.map(([other]) => make("line", {x1: at(point.x), y1: at(point.y),
    x2: at(POINTS[other].x), y2: at(POINTS[other].y)})));
  dots.forEach((dot, place) => dot.classList.toggle("chosen", place === number));
  svg.appendChild(dots[number]);
  const parts = [];
  const add = (name, text) => {
    const one = document.createElement(name);
    one.textContent = text;
    parts.push(one);
    return one;
  };
  if (point.picture) Object.assign(add("img", ""), {src: point.picture, alt: ""});
  add("h2", point.name);
  add("p", point.facts);
  if (point.neighbours.length) add("h3", "Most alike");
  const list = add("ol", "");
  for (const [other, similarity] of point.neighbours) {
    const button = document.createElement("button");
    button.textContent = `${POINTS[other].name} (${similarity.toFixed(2)})`;
    button.addEventListener("click", () => choose(other));
    list.appendChild(document.createElement("li")).appendChild(button);
  }
  side.replaceChildren(...parts);
}
// Arrow keys go to the nearest point in that direction.
svg.addEventListener("keydown", event => {
  const way = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
  if (!way || !POINTS.length) return;
  event.preventDefault();
  if (current < 0) return choose(0);
  let best = -1, least = Infinity;
  POINTS.forEach((point, number) => {
    const dx = point.x - POINTS[current].x, dy = point.y - POINTS[current].y;
    const ahead = dx * way[0] + dy * way[1], aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
    if (number !== current && ahead > 0 && ahead + 2 * aside < least) [best, least] = [number, ahead + 2 * aside];
  });
  if (best >= 0) choose(best);
});
"""


def save_page(
    found: LibraryMap,
    path: StrPath,
    library: StrPath,
    *,
    max_pictures: int = MAX_PICTURES,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write the page. Pictures are read from the middle of the files; a file that is gone has none."""
    pictures = read_pictures(found, max_pictures, progress)
    points = json.dumps([_describe(found, number, pictures) for number in range(len(found.points))])
    name = html.escape(display_path(library))
    body = f"""{_STYLE}<h1>Map of {name}</h1>
<p class="lead">{html.escape(summarise(found))}</p>
<p class="note">Videos that look alike lie close together; distances across the map mean little. Click on a video,
or move with the arrow keys.</p>
<div class="map"><svg viewBox="0 0 1000 1000" tabindex="0" role="application"
aria-label="Map of the videos; arrow keys move from video to video"></svg>
<aside aria-live="polite"><p class="note">No video is chosen.</p></aside></div>
<script>const POINTS = {points.replace("<", chr(92) + "u003c")};{_SCRIPT}</script>"""
    return write_page(Path(path), title="Map of a library", body=body)


def summarise(found: LibraryMap) -> str:
    """What a map shows, in one sentence or two."""
    videos, groups = len(found.points), found.groups
    text = f"{videos:,} {'video' if videos == 1 else 'videos'}, {groups:,} {'group' if groups == 1 else 'groups'}."
    return text + (f" {found.left_out:,} more are not shown: --max-videos says how many are." if found.left_out else "")


def read_pictures(
    found: LibraryMap, max_pictures: int, progress: Callable[[int, int], None] | None = None
) -> dict[int, str]:
    """Frames from the middle of up to `max_pictures` videos, spread over all, as data addresses by point."""
    count = min(max_pictures, len(found.points))
    numbers = np.unique(np.linspace(0, len(found.points) - 1, count).round().astype(int)).tolist()
    pictures = {}
    for done, number in enumerate(numbers):
        video = found.points[number].video
        for _, image in read_thumbnails(video, [video.duration / 2]):
            pictures[number] = image
        if progress is not None:
            progress(done + 1, count)
    return pictures


def choose_colour(group: int | None) -> str:
    """The colour of a group's points; colours repeat."""
    return NO_GROUP if group is None else COLOURS[group % len(COLOURS)]


def _describe(found: LibraryMap, number: int, pictures: Mapping[int, str]) -> dict[str, Any]:
    point = found.points[number]
    video = point.video
    facts = [format_time(video.duration), f"{video.width} x {video.height}"]
    facts += ["in no group" if point.group is None else f"group {point.group + 1}"]
    return {
        "x": round(point.x, 4),
        "y": round(point.y, 4),
        "colour": choose_colour(point.group),
        "name": Path(display_path(video.path)).name,
        "facts": ", ".join(facts),
        "picture": pictures.get(number),
        "neighbours": [[other, round(value, 4)] for other, value in point.neighbours],
    }
