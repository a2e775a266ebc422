"""Matches to look at: a figure for print (matplotlib), and self-contained HTML pages (Pillow and SVG)."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hapvr.matching import Match, VideoDescription
from hapvr.reports.html_page import format_interval, make_png, make_thumbnail, write_page
from hapvr.reports.plotting import map_colours, plot_match, require_pictures, save_figure
from hapvr.storage import StrPath

_PAIRS = 4  # thumbnail pairs shown
_STRIP = 6  # frames of a strip in a report
_PLACES = 2  # matches of a pair listed in a report; all are drawn
_COLOURS = ("#d1495b", "#2e86ab", "#e08e1b", "#5b8e3e", "#8e5bb5")  # of the first match, the second, ...


@dataclass(frozen=True, eq=False)
class Entry:
    """One line of a report: a query, the target it was matched with, and what is known about it."""

    name: str  # of the query
    note: str  # what it is
    match: Match  # with the best target
    verdict: str  # a word or two
    mark: Literal["good", "fair", "bad"]  # the colour of the verdict
    truth: tuple[tuple[float, float, float, float], ...] = ()  # (query from, to, target from, to) in seconds


def choose_pairs(match: Match, count: int = _PAIRS) -> list[tuple[int, int]]:
    """Frame pairs (query frame, target frame) to show: spread over the matches, or the most alike if there is none."""
    cells = [cell for segment in match.segments for cell in segment.path]
    if not cells:
        return [match.best_pair]
    chosen = np.unique(np.linspace(0, len(cells) - 1, min(count, len(cells))).round().astype(int))
    return [cells[place] for place in chosen]


def save_plot(match: Match, path: StrPath) -> Path:
    """Draw the frame matrix with the matched path, before and after psi, and frame pairs beside it: PNG, SVG or PDF."""
    require_pictures([path])
    title = f"{match.meaning}\nscore {match.score:.3f}, {_count_stretches(match)}"
    (file,) = save_figure(plot_match(match, choose_pairs(match), title=title), path, dpi=160)
    return file


def save_html(match: Match, path: StrPath) -> Path:
    """Write the explanation of a match as one self-contained page."""
    title = " and ".join(Path(side.path).name for side in (match.query, match.target))
    return write_page(Path(path), title=title, body=_render_match(match))


def save_matches(
    matches: Sequence[Match], path: StrPath, *, title: str, summary: str, notes: Sequence[str] = ()
) -> Path:
    """Write the explanations of several matches, such as the hits of a search, as one self-contained page.

    `summary` is a few sentences below the title, `notes` a list of further ones.
    """
    said = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    listed = "".join(
        f"<li><a href='#match-{number}'>{html.escape(Path(match.target.path).name)}</a>: "
        f"{html.escape(match.meaning)}, {_count_stretches(match)}</li>"
        for number, match in enumerate(matches, 1)
    )
    sections = "".join(
        f"<section class='match' id='match-{number}'><p class='note'>{number}. {html.escape(match.target.path)}</p>"
        f"{_render_match(match)}</section>"
        for number, match in enumerate(matches, 1)
    )
    body = f"""<h1>{html.escape(title)}</h1>
<p class="lead">{html.escape(summary)}</p>
<ol>{listed}</ol>{f"<ul>{said}</ul>" if said else ""}
{sections}"""
    return write_page(Path(path), title=title, body=body)


def save_report(
    entries: Sequence[Entry],
    path: StrPath,
    *,
    title: str,
    summary: str,
    targets: Sequence[VideoDescription],
    scores: NDArray[np.float64],
) -> Path:
    """Write many queries and their matches as one self-contained page; `scores` is [entries, targets]."""
    body = f"""<h1>{html.escape(title)}</h1>
<p class="lead">{html.escape(summary)}</p>
<h2>The matches</h2>
<p class="note">Upper frames: the query. Lower frames: what was found. In the picture at the right each row is a frame
of the query, each column a frame of the target; bright cells look alike, solid lines are the matches that were found,
dashed ones the truth.</p>
{"".join(_render_entry(entry) for entry in entries)}
<h2>All scores</h2>
<p class="note">Each row is a query, each column a target; the best of a row is framed.</p>
{_render_scores(entries, targets, scores)}"""
    return write_page(Path(path), title=title, body=body)


def _render_entry(entry: Entry) -> str:
    match = entry.match
    target = html.escape(Path(match.target.path).stem)
    columns = "".join(f"<figure>{images}</figure>" for images in _render_pairs(match, _choose_strip(match), 72))
    where = f"<p>{_write_headline(match, target)}.</p>"
    if match.segments:
        where = _render_segments(match, "in the query", f"in {target}", limit=_PLACES)
    return f"""<section class="entry">
<header><h3>{html.escape(entry.name)}</h3><span class="badge {entry.mark}">{html.escape(entry.verdict)}</span>
<p class="note">{html.escape(entry.note)}</p></header>
<div class="strip">{columns}</div>
<div class="facts"><p>best: <strong>{target}</strong>, score <strong>{match.score:.3f}</strong></p>
{_render_verdict(match)}
{where}
<p class="note">{html.escape(entry.name)}</p>{_draw_timeline(match, "query")}
<p class="note">{target}</p>{_draw_timeline(match, "target")}</div>
<div class="matrix small">{_draw_matrix(match, entry.truth)}</div>
</section>
"""


def _render_segments(match: Match, query: str, target: str, *, limit: int | None = None) -> str:
    """A table of the matches, the first `limit` of them, with their similarities if all are listed."""
    rows = []
    for segment in match.segments[:limit]:
        cells = [format_interval(segment.query), format_interval(segment.target)]
        cells += [f"{segment.score:.3f}"] if limit is None else []
        notes = {"backwards": segment.backwards, "shared by many videos": segment.shared}
        cells.append(", ".join(note for note, holds in notes.items() if holds))
        rows.append("".join(f"<td>{cell}</td>" for cell in cells))
    if limit is not None and len(match.segments) > limit:
        rows.append(f"<td colspan=3>and {len(match.segments) - limit} more</td>")
    head = "".join(f"<th>{name}</th>" for name in (query, target, *(["similarity"] if limit is None else []), ""))
    return f"<table class='where'>{''.join(f'<tr>{row}</tr>' for row in (head, *rows))}</table>"


def _choose_strip(match: Match) -> list[tuple[int, int]]:
    """Frame pairs along the best match; without one, frames of the query with those most like them."""
    if match.segments:
        return choose_pairs(dataclasses.replace(match, segments=match.segments[:1]), _STRIP)
    rows = np.unique(np.linspace(0, len(match.matrix) - 1, min(_STRIP, len(match.matrix))).round().astype(int))
    return [(int(row), int(match.matrix[row].argmax())) for row in rows]


def _render_scores(entries: Sequence[Entry], targets: Sequence[VideoDescription], scores: NDArray[np.float64]) -> str:
    middles = [side.pictures([len(side.times) // 2])[0] for side in targets]
    heads = "".join(
        f"<th><img src='{make_thumbnail(picture, 48)}' alt=''>{html.escape(Path(side.path).stem)}</th>"
        for side, picture in zip(targets, middles, strict=True)
    )
    shades = map_colours(scores)
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


def _render_match(match: Match) -> str:
    names = [html.escape(Path(side.path).name) for side in (match.query, match.target)]
    table = f"<p>{_explain_no_segment(match, *names)}</p>"
    if match.segments:
        table = _render_segments(match, f"in {names[0]}", f"in {names[1]}")
    chosen = choose_pairs(match)
    pairs = "".join(
        f"<figure>{images}<figcaption>{match.query.times[i]:.1f} s and {match.target.times[j]:.1f} s: "
        f"{match.matrix[i, j]:.2f}</figcaption></figure>"
        for (i, j), images in zip(chosen, _render_pairs(match, chosen, 128), strict=True)
    )
    notes = [
        f"{name}: {html.escape(text)}"
        for name, side in zip(names, (match.query, match.target), strict=True)
        for text in side.warnings
    ]
    warnings = f"<ul>{''.join(f'<li>{note}</li>' for note in notes)}</ul>" if notes else ""
    line = ", a line is a match" if match.segments else ""
    return f"""<h1>{_write_headline(match, names[1])}</h1>
<p>Score <strong>{match.score:.3f}</strong> (from -1 to 1) for how well <em>{names[0]}</em> is found in
<em>{names[1]}</em>.</p>
{_render_verdict(match)}
{table}
<h2>Where</h2>
<p class="note">{names[0]}</p>{_draw_timeline(match, "query")}
<p class="note">{names[1]}</p>{_draw_timeline(match, "target")}
<h2>Frame by frame</h2>
<p class="note">Down: {names[0]}. Across: {names[1]}. Bright cells are frames that look alike{line}.</p>
<div class="matrix">{_draw_matrix(match)}</div>
<h2>{"Frames that match" if match.segments else "Most similar frames"}</h2>{pairs}{warnings}"""


def _write_headline(match: Match, target: str) -> str:
    """The answer in a few words; `target` is HTML."""
    verdict = match.verdict
    if not verdict.match:
        scene = "The same scene or event, not the same footage" if verdict.kind == "same scene" else "No match"
        return f"{scene}; most alike at {match.best.target:.1f} s of {target}"
    if not match.segments:
        return f"A copy: it is at {match.best.target:.1f} s of {target} (similarity {match.best.similarity:.2f})"
    covered = sum(segment.query[1] - segment.query[0] for segment in match.segments)
    share = f"{min(1.0, covered / _measure_length(match.query)):.0%} of the query"
    return f"A copy: {share} is footage of {target}"


def _render_verdict(match: Match) -> str:
    """The verdict and what it rests on, as a paragraph."""
    said = f"{match.meaning[:1].upper()}{match.meaning[1:]}."
    names = (Path(side.path).name for side in (match.query, match.target))
    sound = "" if match.sound is None else f" Sound: {match.sound.describe(*names)}."
    return f"<p><strong>{html.escape(said)}</strong> {html.escape(match.verdict.reason + sound)}</p>"


def _explain_no_segment(match: Match, query: str, target: str) -> str:
    if not match.too_short:
        return f"The most similar frames are those at {match.best.query:.1f} s and {match.best.target:.1f} s."
    count = min(match.matrix.shape)
    name = query if count == len(match.matrix) else target
    frames = "1 frame" if count == 1 else f"{count} frames"
    return f"{name} has {frames} to compare: a stretch takes {match.min_frames}, so only single frames can be compared."


def _count_stretches(match: Match) -> str:
    if not match.segments:
        return f"most alike at {match.best.target:.1f} s of the target"
    return "1 stretch" if len(match.segments) == 1 else f"{len(match.segments)} stretches"


def _measure_length(side: VideoDescription) -> float:
    return max(side.duration_s or 0.0, float(side.times[-1]), 1e-3)


def _draw_timeline(match: Match, which: str) -> str:
    length = _measure_length(getattr(match, which))
    bars = "".join(
        f"<rect x='{100 * start / length:.2f}%' y='0' width='{100 * (end - start) / length:.2f}%' "
        f"height='14' fill='{_COLOURS[number % len(_COLOURS)]}'/>"
        for number, (start, end) in reversed(list(enumerate(getattr(segment, which) for segment in match.segments)))
    )
    ground = "<rect width='100%' height='14' fill='#8884'/>"
    return f"<svg class='bar' role='img' aria-label='matching parts'>{ground}{bars}</svg>"


def _draw_matrix(match: Match, truth: Sequence[tuple[float, float, float, float]] = ()) -> str:
    """The frame matrix with the matches as lines over it, the truth as dashed ones."""
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
    image = f'<img src="{make_png(map_colours(match.matrix))}" alt="frame similarities">'
    return f"{image}<svg viewBox='0 0 {width} {height}' preserveAspectRatio='none' aria-hidden='true'>{drawn}</svg>"


def _render_pairs(match: Match, pairs: Sequence[tuple[int, int]], height: int) -> list[str]:
    """The pictures of each pair of frames as two elements."""
    columns = []
    for column, (name, side) in enumerate((("query", match.query), ("target", match.target))):
        frames = [pair[column] for pair in pairs]
        columns.append(
            [
                f"<img src='{make_thumbnail(picture, height)}' alt='{name} at {side.times[frame]:.1f} s'>"
                for frame, picture in zip(frames, side.pictures(frames), strict=True)
            ]
        )
    return [query + target for query, target in zip(*columns, strict=True)]
