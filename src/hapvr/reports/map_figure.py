"""A map of a library as a picture: points by group, with frames of some videos."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from hapvr.library.library_map import LibraryMap
from hapvr.library.results import display_path
from hapvr.reports.map_page import choose_colour, read_pictures, summarise
from hapvr.reports.plotting import add_title, figure_style, new_figure, require_pictures, save_figure
from hapvr.storage import StrPath

_SIDE = 10.0  # inches
_MIN_APART = (0.085, 0.085)  # of two frames, as shares of the figure: they must not cover each other


def save_picture(
    found: LibraryMap,
    *paths: StrPath,
    library: StrPath,
    max_pictures: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Write the map as PNG, SVG or PDF. Pictures are read from the middle of the files."""
    files = require_pictures(paths)
    pictures = read_pictures(found, max_pictures, progress)
    with figure_style():
        from matplotlib.offsetbox import AnnotationBbox, OffsetImage

        figure = new_figure(_SIDE, _SIDE)
        axes = figure.add_subplot()
        places = np.array([(point.x, 1 - point.y) for point in found.points]).reshape(-1, 2)
        axes.scatter(places[:, 0], places[:, 1], s=26, c=[choose_colour(point.group) for point in found.points])
        for number in _choose_apart(places, list(pictures)):
            data = base64.b64decode(pictures[number].partition(",")[2])
            image = Image.open(io.BytesIO(data)).convert("RGB")
            frame = {"edgecolor": choose_colour(found.points[number].group), "linewidth": 1.5}
            shown = OffsetImage(np.asarray(image), zoom=56 / max(image.size))
            axes.add_artist(AnnotationBbox(shown, tuple(places[number]), pad=0.1, bboxprops=frame))
        axes.set(xlim=(-0.06, 1.06), ylim=(-0.06, 1.06), aspect="equal", xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        add_title(figure, f"{Path(display_path(library)).name}: {summarise(found)}")
        return save_figure(figure, *files, dpi=120)


def _choose_apart(places: np.ndarray[tuple[int, int], np.dtype[np.float64]], numbers: Sequence[int]) -> list[int]:
    """Those of the numbered places that lie apart from all chosen before them."""
    chosen: list[int] = []
    for number in numbers:
        apart = np.abs(places[chosen] - places[number]) > _MIN_APART
        if not chosen or bool(apart.any(axis=1).all()):
            chosen.append(number)
    return chosen
