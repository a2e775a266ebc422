"""A match as something to look at: a figure for print (matplotlib), a page to share (one HTML file on its own)."""

from __future__ import annotations

import base64
import html
import io
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hapvr.comparing import Match, Side
from hapvr.errors import ConfigError
from hapvr.similarity import Segment
from hapvr.similarity.comparator import DOWNSAMPLING
from hapvr.similarity.segments import frame_edges

_PAIRS = 4  # thumbnail pairs shown
# A perceptually even ramp from near black over blue and green to light yellow, at equal distances.
_RAMP = np.array([[13, 8, 35], [43, 40, 103], [38, 97, 138], [37, 146, 132], [115, 193, 88], [249, 236, 135]], float)


def best_pairs(match: Match, count: int = _PAIRS) -> list[tuple[int, int]]:
    """Frame pairs (query frame, target frame) to show: spread over the matches, or the most alike if there is none."""
    cells = [cell for segment in match.segments for cell in segment.path]
    if not cells:
        order = np.argsort(match.matrix, axis=None)[::-1][:1]
        cells = [tuple(int(x) for x in np.unravel_index(place, match.matrix.shape)) for place in order]  # type: ignore[misc]
    chosen = np.unique(np.linspace(0, len(cells) - 1, min(count, len(cells))).round().astype(int))
    return [cells[place] for place in chosen]


def save_plot(match: Match, path: str | os.PathLike[str]) -> Path:
    """Draw the frame matrix with the matched path, before and after psi, and frame pairs beside it: PNG, SVG or PDF."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
        from matplotlib.colors import LinearSegmentedColormap
    except ImportError as error:
        raise ConfigError("Drawing needs matplotlib: pip install 'hapvr[plots]'.") from error

    ramp = LinearSegmentedColormap.from_list("hapvr", (_RAMP / 255).tolist())
    pairs = best_pairs(match)
    panels = [("frame similarities", match.matrix, (-0.1, 1.0))]
    if match.compared is not None:
        panels.append(("after psi", match.compared, (-1.0, 1.0)))
    figure = pyplot.figure(figsize=(4.6 * len(panels) + 3.6, 4.8), layout="constrained")
    grid = figure.add_gridspec(len(pairs), 2 * len(panels) + 2)
    down, across = frame_edges(match.query.times), frame_edges(match.target.times)
    for number, (title, values, (low, high)) in enumerate(panels):
        axes = figure.add_subplot(grid[:, 2 * number : 2 * number + 2])
        step = 1 if values is match.matrix else DOWNSAMPLING
        borders = across[::step][: values.shape[1] + 1], down[::step][: values.shape[0] + 1]
        drawn = axes.pcolormesh(*borders, values, cmap=ramp, vmin=low, vmax=high, rasterized=True)
        axes.invert_yaxis()
        for segment in match.segments:
            times = np.array([(match.target.times[j], match.query.times[i]) for i, j in segment.path])
            axes.plot(times[:, 0], times[:, 1], color="white", linewidth=3.5)
            axes.plot(times[:, 0], times[:, 1], color="#d1495b", linewidth=1.8)
        axes.set(title=title, xlabel="target, s", ylabel="query, s" if number == 0 else "")
        figure.colorbar(drawn, ax=axes, shrink=0.7)
    for row, (i, j) in enumerate(pairs):
        for column, (side, frame) in enumerate(((match.query, i), (match.target, j))):
            axes = figure.add_subplot(grid[row, 2 * len(panels) + column])
            axes.imshow(side.frames.images[side.used[frame]])
            axes.set_title(f"{'query' if column == 0 else 'target'} {side.times[frame]:.1f} s", fontsize=8)
            axes.axis("off")
    figure.suptitle(f"score {match.score:.3f}, {_in_words(match.segments)}", fontsize=11)
    figure.savefig(path, dpi=160)
    pyplot.close(figure)
    return Path(path)


def save_html(match: Match, path: str | os.PathLike[str]) -> Path:
    """Write the explanation of a match as one self-contained page."""
    Path(path).write_text(_page(match), encoding="utf-8")
    return Path(path)


def _page(match: Match) -> str:
    names = [html.escape(Path(side.path).name) for side in (match.query, match.target)]
    rows = "".join(
        f"<tr><td>{_stretch(s.query)}</td><td>{_stretch(s.target)}</td>"
        f"<td>{s.score:.3f}</td><td>{'backwards' if s.backwards else ''}</td></tr>"
        for s in match.segments
    )
    table = (
        f"<table><tr><th>in {names[0]}</th><th>in {names[1]}</th><th>similarity</th><th></th></tr>{rows}</table>"
        if match.segments
        else "<p>No stretch of the two videos matches.</p>"
    )
    pairs = "".join(
        f"<figure><img src='{_thumbnail(match.query, i)}' alt='query at {match.query.times[i]:.1f} s'>"
        f"<img src='{_thumbnail(match.target, j)}' alt='target at {match.target.times[j]:.1f} s'>"
        f"<figcaption>{match.query.times[i]:.1f} s and {match.target.times[j]:.1f} s: "
        f"{match.matrix[i, j]:.2f}</figcaption></figure>"
        for i, j in best_pairs(match)
    )
    notes = [
        f"{name}: {html.escape(text)}"
        for name, side in zip(names, (match.query, match.target), strict=True)
        for text in side.warnings
    ]
    warnings = f"<ul>{''.join(f'<li>{note}</li>' for note in notes)}</ul>" if notes else ""
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{names[0]} and {names[1]}</title>
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; }} th, td {{ text-align: left; padding: .25rem 1.2rem .25rem 0; }}
.matrix {{ position: relative; width: min(100%, 36rem); }} .matrix > * {{ width: 100%; display: block; }}
.matrix img {{ image-rendering: pixelated; height: 22rem; }}
.matrix svg {{ position: absolute; inset: 0; height: 22rem; }}
figure {{ display: inline-block; margin: .5rem 1rem .5rem 0; }} figure img {{ height: 7rem; margin-right: .25rem; }}
figcaption, .note {{ font-size: .85rem; opacity: .75; }} .bar {{ height: 14px; width: 100%; }}
</style>
<h1>{_verdict(match)}</h1>
<p>Score <strong>{match.score:.3f}</strong> (from -1 to 1) for how much of <em>{names[0]}</em> is found in
<em>{names[1]}</em>.</p>
{table}
<h2>Where</h2>
<p class="note">{names[0]}</p>{_timeline(match, "query")}<p class="note">{names[1]}</p>{_timeline(match, "target")}
<h2>Frame by frame</h2>
<p class="note">Down: {names[0]}. Across: {names[1]}. Bright cells are frames that look alike, the line is
the match.</p>
<div class="matrix"><img src="{_heat_map(match.matrix)}" alt="frame similarities">{_paths(match)}</div>
<h2>Frames that match</h2>{pairs}{warnings}
</html>
"""


def _verdict(match: Match) -> str:
    if not match.segments:
        return "No match found"
    covered = sum(segment.query[1] - segment.query[0] for segment in match.segments)
    low, high = _ends(match.query)
    return f"They match over {min(1.0, covered / max(high - low, 1e-9)):.0%} of the query"


def _in_words(segments: tuple[Segment, ...]) -> str:
    return "no match" if not segments else "1 match" if len(segments) == 1 else f"{len(segments)} matches"


def _stretch(seconds: tuple[float, float]) -> str:
    clock = [f"{int(time // 60)}:{time % 60:04.1f}" for time in seconds]
    return f"{clock[0]} to {clock[1]}"


def _ends(side: Side) -> tuple[float, float]:
    last = float(side.times[-1])
    return 0.0, max(side.frames.duration_s or 0.0, last, 1e-3)


def _timeline(match: Match, which: str) -> str:
    side: Side = getattr(match, which)
    low, high = _ends(side)
    colours = ["#d1495b", "#2e86ab", "#e08e1b", "#5b8e3e", "#8e5bb5"]
    bars = "".join(
        f"<rect x='{100 * (start - low) / (high - low):.2f}%' y='0' width='{100 * (end - start) / (high - low):.2f}%' "
        f"height='14' fill='{colours[number % len(colours)]}'/>"
        for number, (start, end) in enumerate(getattr(segment, which) for segment in match.segments)
    )
    ground = "<rect width='100%' height='14' fill='#8884'/>"
    return f"<svg class='bar' role='img' aria-label='matching parts'>{ground}{bars}</svg>"


def _paths(match: Match) -> str:
    height, width = match.matrix.shape
    lines = "".join(
        "<polyline fill='none' stroke='{}' stroke-width='{}' vector-effect='non-scaling-stroke' points='{}'/>".format(
            colour, size, " ".join(f"{j + 0.5:g},{i + 0.5:g}" for i, j in segment.path)
        )
        for segment in match.segments
        for colour, size in (("white", 5), ("#d1495b", 2.5))
    )
    return f"<svg viewBox='0 0 {width} {height}' preserveAspectRatio='none' aria-hidden='true'>{lines}</svg>"


def _heat_map(matrix: NDArray[np.float32]) -> str:
    place = np.clip((matrix + 0.1) / 1.1, 0, 1) * (len(_RAMP) - 1)
    low = np.minimum(place.astype(int), len(_RAMP) - 2)
    share = (place - low)[..., None]
    return _png((_RAMP[low] * (1 - share) + _RAMP[low + 1] * share).round().astype(np.uint8))


def _thumbnail(side: Side, frame: int) -> str:
    image = side.frames.images[side.used[frame]]
    step = max(1, min(image.shape[:2]) // 128)
    return _png(image[::step, ::step], quality=85)


def _png(image: NDArray[np.uint8], quality: int | None = None) -> str:
    """An image as a data address: PNG, or JPEG of a quality."""
    from PIL import Image

    stream = io.BytesIO()
    kind = "PNG" if quality is None else "JPEG"
    Image.fromarray(np.ascontiguousarray(image)).save(stream, kind, **({} if quality is None else {"quality": quality}))
    return f"data:image/{kind.lower()};base64,{base64.b64encode(stream.getvalue()).decode()}"
