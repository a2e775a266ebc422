"""Matches as something to look at: a figure for print (matplotlib), pages to share (one HTML file each, on its own).

The pages are drawn with Pillow and SVG, so that they need nothing beyond what hapvr needs to run.
"""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hapvr.comparing import NO_STRETCH, Match, Side
from hapvr.plotting import RAMP, plot_match, require_pictures, save_figure
from hapvr.storage import require_outputs, write_text

_PAIRS = 4  # thumbnail pairs shown
_STRIP = 6  # frames of a strip in a report
_PLACES = 2  # matches of a pair listed in a report; all are drawn
_COLOURS = ("#d1495b", "#2e86ab", "#e08e1b", "#5b8e3e", "#8e5bb5")  # of matches, in turn


@dataclass(frozen=True, eq=False)
class Entry:
    """One line of a report: a query, the target it was matched with, and what is known about it."""

    name: str  # of the query
    note: str  # what it is
    match: Match  # with the best target
    verdict: str  # a word or two
    mark: Literal["good", "fair", "bad"]  # the colour of the verdict
    truth: tuple[tuple[float, float, float, float], ...] = ()  # (query from, to, target from, to) in seconds


def best_pairs(match: Match, count: int = _PAIRS) -> list[tuple[int, int]]:
    """Frame pairs (query frame, target frame) to show: spread over the matches, or the most alike if there is none."""
    cells = [cell for segment in match.segments for cell in segment.path]
    if not cells:
        return [match.best_pair]
    chosen = np.unique(np.linspace(0, len(cells) - 1, min(count, len(cells))).round().astype(int))
    return [cells[place] for place in chosen]


def save_plot(match: Match, path: str | os.PathLike[str]) -> Path:
    """Draw the frame matrix with the matched path, before and after psi, and frame pairs beside it: PNG, SVG or PDF."""
    require_pictures([path])
    meaning = f"\n{match.meaning}" if match.meaning else ""
    title = f"score {match.score:.3f}, {_in_words(match)}{meaning}"
    (file,) = save_figure(plot_match(match, best_pairs(match), title=title), path, dpi=160)
    return file


def save_html(match: Match, path: str | os.PathLike[str]) -> Path:
    """Write the explanation of a match as one self-contained page."""
    return written(_page(match), Path(path))


def save_matches(
    matches: Sequence[Match], path: str | os.PathLike[str], *, title: str, summary: str, notes: Sequence[str] = ()
) -> Path:
    """Write the explanations of several matches, such as the hits of a search, as one self-contained page.

    Args:
        matches: best first.
        path: the page to write.
        title: of the page.
        summary: a few sentences below it.
        notes: what else there is to say, one sentence each.
    """
    said = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    listed = "".join(
        f"<li><a href='#match-{number}'>{html.escape(Path(match.target.path).name)}</a>: score {match.score:.3f}, "
        f"{_in_words(match)}</li>"
        for number, match in enumerate(matches, 1)
    )
    sections = "".join(
        f"<section class='match' id='match-{number}'><p class='note'>{number}. {html.escape(match.target.path)}</p>"
        f"{_explained(match)}</section>"
        for number, match in enumerate(matches, 1)
    )
    body = f"""<h1>{html.escape(title)}</h1>
<p class="lead">{html.escape(summary)}</p>
<ol>{listed}</ol>{f"<ul>{said}</ul>" if said else ""}
{sections}"""
    return written(document(title, body), Path(path))


def save_report(
    entries: Sequence[Entry],
    path: str | os.PathLike[str],
    *,
    title: str,
    summary: str,
    targets: Sequence[Side],
    scores: NDArray[np.float64],
) -> Path:
    """Write many queries and their matches as one self-contained page.

    Args:
        entries: the queries, in order.
        path: the page to write.
        title: of the page.
        summary: a few sentences below it.
        targets: what the queries were compared with.
        scores: [entries, targets].
    """
    body = f"""<h1>{html.escape(title)}</h1>
<p class="lead">{html.escape(summary)}</p>
<h2>The matches</h2>
<p class="note">Upper frames: the query. Lower frames: what was found. In the picture at the right each row is a frame
of the query, each column a frame of the target; bright cells look alike, solid lines are the matches that were found,
dashed ones the truth.</p>
{"".join(_entry(entry) for entry in entries)}
<h2>All scores</h2>
<p class="note">Each row is a query, each column a target; the best of a row is framed.</p>
{_score_table(entries, targets, scores)}"""
    return written(document(title, body), Path(path))


def written(page: str, path: Path) -> Path:
    """Write a page; `ConfigError` where the path cannot be written, `StorageError` where writing failed."""
    require_outputs([path])
    write_text(path, page)
    return path


def _entry(entry: Entry) -> str:
    match = entry.match
    target = html.escape(Path(match.target.path).stem)
    columns = "".join(f"<figure>{images}</figure>" for images in _image_pairs(match, _strip(match), 72))
    heat = f'<img src="{_heat_map(match.matrix)}" alt="frame similarities">{_paths(match, entry.truth)}'
    return f"""<section class="entry">
<header><h3>{html.escape(entry.name)}</h3><span class="badge {entry.mark}">{html.escape(entry.verdict)}</span>
<p class="note">{html.escape(entry.note)}</p></header>
<div class="strip">{columns}</div>
<div class="facts"><p>best: <strong>{target}</strong>, score <strong>{match.score:.3f}</strong></p>{_meaning(match)}
{_where(match, target)}
<p class="note">{html.escape(entry.name)}</p>{_timeline(match, "query")}
<p class="note">{target}</p>{_timeline(match, "target")}</div>
<div class="matrix small">{heat}</div>
</section>
"""


def _where(match: Match, target: str) -> str:
    segments = match.segments
    if not segments:
        return f"<p>{_headline(match, target)}.</p>"
    rows = [
        f"<tr><td>{stretch(s.query)}</td><td>{stretch(s.target)}</td><td>{'backwards' if s.backwards else ''}</td></tr>"
        for s in segments[:_PLACES]
    ]
    if len(segments) > _PLACES:
        rows.append(f"<tr><td colspan=3>and {len(segments) - _PLACES} more</td></tr>")
    head = f"<tr><th>in the query</th><th>in {target}</th><th></th></tr>"
    return f"<table class='where'>{head}{''.join(rows)}</table>"


def _strip(match: Match) -> list[tuple[int, int]]:
    """Frame pairs along the best match; without one, frames of the query with those most like them."""
    if match.segments:
        return best_pairs(dataclasses.replace(match, segments=match.segments[:1]), _STRIP)
    rows = np.unique(np.linspace(0, len(match.matrix) - 1, min(_STRIP, len(match.matrix))).round().astype(int))
    return [(int(row), int(match.matrix[row].argmax())) for row in rows]


def _score_table(entries: Sequence[Entry], targets: Sequence[Side], scores: NDArray[np.float64]) -> str:
    middles = [side.pictures([len(side.times) // 2])[0] for side in targets]
    heads = "".join(
        f"<th><img src='{_thumbnail(picture, 48)}' alt=''>{html.escape(Path(side.path).stem)}</th>"
        for side, picture in zip(targets, middles, strict=True)
    )
    shades = _coloured(scores)
    rows = "".join(
        f"<tr><th>{html.escape(entry.name)}</th>"
        + "".join(
            f"<td{' class=best' if place == row.argmax() else ''} style='background:rgb({r},{g},{b});"
            f"color:{'#111' if int(r) + 2 * int(g) + int(b) > 420 else '#eee'}'>{score:.2f}</td>"
            for place, (score, (r, g, b)) in enumerate(zip(row, colours, strict=True))
        )
        + "</tr>"
        for entry, row, colours in zip(entries, scores, shades, strict=True)
    )
    return f"<div class='wide'><table class='scores'><tr><th></th>{heads}</tr>{rows}</table></div>"


def _page(match: Match) -> str:
    return document(" and ".join(Path(side.path).name for side in (match.query, match.target)), _explained(match))


def _explained(match: Match) -> str:
    names = [html.escape(Path(side.path).name) for side in (match.query, match.target)]
    rows = "".join(
        f"<tr><td>{stretch(s.query)}</td><td>{stretch(s.target)}</td>"
        f"<td>{s.score:.3f}</td><td>{'backwards' if s.backwards else ''}</td></tr>"
        for s in match.segments
    )
    table = (
        f"<table><tr><th>in {names[0]}</th><th>in {names[1]}</th><th>similarity</th><th></th></tr>{rows}</table>"
        if match.segments
        else f"<p>{_why_none(match, *names)}</p>"
    )
    chosen = best_pairs(match)
    pairs = "".join(
        f"<figure>{images}<figcaption>{match.query.times[i]:.1f} s and {match.target.times[j]:.1f} s: "
        f"{match.matrix[i, j]:.2f}</figcaption></figure>"
        for (i, j), images in zip(chosen, _image_pairs(match, chosen, 128), strict=True)
    )
    notes = [
        f"{name}: {html.escape(text)}"
        for name, side in zip(names, (match.query, match.target), strict=True)
        for text in side.warnings
    ]
    warnings = f"<ul>{''.join(f'<li>{note}</li>' for note in notes)}</ul>" if notes else ""
    line = ", a line is a match" if match.segments else ""
    return f"""<h1>{_headline(match, names[1])}</h1>
<p>Score <strong>{match.score:.3f}</strong> (from -1 to 1) for how much of <em>{names[0]}</em> is found in
<em>{names[1]}</em>.</p>{_meaning(match)}
{table}
<h2>Where</h2>
<p class="note">{names[0]}</p>{_timeline(match, "query")}<p class="note">{names[1]}</p>{_timeline(match, "target")}
<h2>Frame by frame</h2>
<p class="note">Down: {names[0]}. Across: {names[1]}. Bright cells are frames that look alike{line}.</p>
<div class="matrix"><img src="{_heat_map(match.matrix)}" alt="frame similarities">{_paths(match)}</div>
<h2>{"Frames that match" if match.segments else "Most similar frames"}</h2>{pairs}{warnings}"""


_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 76rem; margin: 2rem auto; padding: 0 1rem; } h1 { line-height: 1.2; } .lead { font-size: 1.15rem; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .25rem 1.2rem .25rem 0; }
.matrix { position: relative; width: min(100%, 36rem); } .matrix > * { width: 100%; display: block; }
.matrix img { image-rendering: pixelated; height: 22rem; } .matrix svg { position: absolute; inset: 0; height: 22rem; }
figure { display: inline-block; margin: .5rem 1rem .5rem 0; } figure img { height: 7rem; margin-right: .25rem; }
figcaption, .note { font-size: .85rem; opacity: .75; } .note { margin: .2rem 0; } .bar { height: 14px; width: 100%; }
.entry { display: grid; grid-template-columns: minmax(0, 34rem) minmax(15rem, 1fr) 13rem; gap: .2rem 1.5rem;
  padding: 1rem 0; border-top: 1px solid #8884; break-inside: avoid; }
.entry header { grid-column: 1 / -1; display: flex; gap: .8rem; align-items: baseline; flex-wrap: wrap; }
.entry h3, .entry p { margin: 0; } .match { border-top: 1px solid #8884; margin-top: 2rem; padding-top: 1rem; }
.badge { padding: .05rem .6rem; border-radius: 1rem; color: white; font-size: .85rem; }
.good { background: #2c7a4b; } .fair { background: #9a6a12; } .bad { background: #b3363f; }
.strip { display: flex; gap: 2px; align-self: start; } .strip figure { margin: 0; flex: 1 1 0; min-width: 0; }
.strip img { display: block; width: 100%; height: 4.4rem; object-fit: cover; margin: 0 0 2px; }
.facts { font-size: .9rem; } .where { font-variant-numeric: tabular-nums; } .where th { font-weight: 600; }
.where th, .where td { padding: 0 1rem .1rem 0; }
.matrix.small img, .matrix.small svg { height: 9.2rem; }
.wide { overflow-x: auto; } .scores { font-size: .8rem; font-variant-numeric: tabular-nums; }
.scores td, .scores th { padding: .3rem .4rem; text-align: center; }
.scores th { font-weight: 500; white-space: nowrap; } .scores tr > th:first-child { text-align: right; }
.scores th img { display: block; width: 3.6rem; height: 2.7rem; object-fit: cover; margin: auto; }
.scores td.best { outline: 3px solid #d1495b; outline-offset: -3px; font-weight: 700; }
@media (max-width: 62rem) { .entry { grid-template-columns: 1fr; } }
"""


def document(title: str, body: str) -> str:
    """A whole page, with its style, that needs nothing from elsewhere."""
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title>
<style>{_STYLE}</style>
{body}
</html>
"""


def _headline(match: Match, target: str) -> str:
    """The answer in a few words; `target` is HTML."""
    if not match.segments:
        if not match.too_short:
            return f"{NO_STRETCH[:1].upper()}{NO_STRETCH[1:]}"
        return f"Most alike at {match.best.target:.1f} s of {target} (similarity {match.best.similarity:.2f})"
    covered = sum(segment.query[1] - segment.query[0] for segment in match.segments)
    low, high = _ends(match.query)
    share = f"{min(1.0, covered / max(high - low, 1e-9)):.0%} of the query"
    return f"They match over {share}" if match.verdict.match else f"No match, though {share} is somewhat alike"


def _meaning(match: Match) -> str:
    """The verdict, as a paragraph, unless the headline has said all there is."""
    if not match.meaning or match.meaning == NO_STRETCH:
        return ""
    return f"\n<p>{match.meaning[:1].upper()}{match.meaning[1:]}.</p>"


def _why_none(match: Match, query: str, target: str) -> str:
    if not match.too_short:
        return f"The most similar frames are those at {match.best.query:.1f} s and {match.best.target:.1f} s."
    count = min(match.matrix.shape)
    name = query if count == len(match.matrix) else target
    frames = "1 frame" if count == 1 else f"{count} frames"
    return f"{name} has {frames} to compare: a stretch takes {match.least_frames}, so only an instant can be told."


def _in_words(match: Match) -> str:
    if not match.segments:
        return f"most alike at {match.best.target:.1f} s of the target" if match.too_short else "no match"
    return "1 match" if len(match.segments) == 1 else f"{len(match.segments)} matches"


def stretch(seconds: tuple[float, float]) -> str:
    """A stretch of time as minutes and seconds."""
    clock = [f"{int(time // 60)}:{time % 60:04.1f}" for time in seconds]
    return f"{clock[0]} to {clock[1]}"


def _ends(side: Side) -> tuple[float, float]:
    last = float(side.times[-1])
    return 0.0, max(side.duration_s or 0.0, last, 1e-3)


def _timeline(match: Match, which: str) -> str:
    side: Side = getattr(match, which)
    low, high = _ends(side)
    bars = "".join(
        f"<rect x='{100 * (start - low) / (high - low):.2f}%' y='0' width='{100 * (end - start) / (high - low):.2f}%' "
        f"height='14' fill='{_COLOURS[number % len(_COLOURS)]}'/>"
        for number, (start, end) in reversed(list(enumerate(getattr(segment, which) for segment in match.segments)))
    )
    ground = "<rect width='100%' height='14' fill='#8884'/>"
    return f"<svg class='bar' role='img' aria-label='matching parts'>{ground}{bars}</svg>"


def _paths(match: Match, truth: Sequence[tuple[float, float, float, float]] = ()) -> str:
    """The matches as lines over the matrix, the truth as dashed ones."""
    height, width = match.matrix.shape
    rows, columns = (np.arange(len(side.times)) + 0.5 for side in (match.query, match.target))
    lines = [
        (" ".join(f"{j + 0.5:g},{i + 0.5:g}" for i, j in segment.path), colour, size, "")
        for segment in match.segments
        for colour, size in (("white", 5.0), ("#d1495b", 2.5))
    ]
    for top, bottom, left, right in truth:
        across = np.interp([left, right], match.target.times, columns)
        down = np.interp([top, bottom], match.query.times, rows)
        points = " ".join(f"{x:.2f},{y:.2f}" for x, y in zip(across, down, strict=True))
        lines += [(points, "black", 2.0, ""), (points, "white", 1.5, "stroke-dasharray='5 4'")]
    drawn = "".join(
        f"<polyline fill='none' stroke='{colour}' stroke-width='{size:g}' {more} vector-effect='non-scaling-stroke' "
        f"points='{points}'/>"
        for points, colour, size, more in lines
    )
    return f"<svg viewBox='0 0 {width} {height}' preserveAspectRatio='none' aria-hidden='true'>{drawn}</svg>"


def _heat_map(matrix: NDArray[np.float32]) -> str:
    return png(_coloured(matrix))


def _coloured(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Similarities [...] on the ramp, from -0.1 to 1: uint8 [..., 3]."""
    place = np.clip((values + 0.1) / 1.1, 0, 1) * (len(RAMP) - 1)
    low = np.minimum(place.astype(int), len(RAMP) - 2)
    share = (place - low)[..., None]
    colours: NDArray[np.uint8] = (RAMP[low] * (1 - share) + RAMP[low + 1] * share).round().astype(np.uint8)
    return colours


def _image_pairs(match: Match, pairs: Sequence[tuple[int, int]], height: int) -> list[str]:
    """The pictures of each pair of frames as two elements."""
    columns = []
    for column, (name, side) in enumerate((("query", match.query), ("target", match.target))):
        frames = [pair[column] for pair in pairs]
        columns.append(
            [
                f"<img src='{_thumbnail(picture, height)}' alt='{name} at {side.times[frame]:.1f} s'>"
                for frame, picture in zip(frames, side.pictures(frames), strict=True)
            ]
        )
    return [query + target for query, target in zip(*columns, strict=True)]


def _thumbnail(picture: NDArray[np.uint8], height: int) -> str:
    """A picture at a height in pixels at most, at twice as many for fine screens where it has them."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(picture))
    tall = min(2 * height, image.height)
    image = image.resize((max(1, round(image.width * tall / image.height)), tall), Image.Resampling.BILINEAR)
    return png(np.asarray(image), quality=80)


def png(image: NDArray[np.uint8], quality: int | None = None) -> str:
    """An image as a data address: PNG, or JPEG of a quality."""
    from PIL import Image

    stream = io.BytesIO()
    kind = "PNG" if quality is None else "JPEG"
    Image.fromarray(np.ascontiguousarray(image)).save(stream, kind, **({} if quality is None else {"quality": quality}))
    return f"data:image/{kind.lower()};base64,{base64.b64encode(stream.getvalue()).decode()}"
