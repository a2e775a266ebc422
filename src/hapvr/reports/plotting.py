"""Drawing with matplotlib: the style of all figures, the picture of one match, files in PNG, SVG or PDF.

The paper's own figures are in `hapvr.paper.plots`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError
from hapvr.matching import Match
from hapvr.similarity.comparator import DOWNSAMPLING
from hapvr.similarity.segments import frame_edges
from hapvr.storage import StrPath, replace_file, require_outputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
# A perceptually even ramp from near black over blue and green to light yellow, at equal distances.
RAMP = np.array([[13, 8, 35], [43, 40, 103], [38, 97, 138], [37, 146, 132], [115, 193, 88], [249, 236, 135]], float)
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "hapvr",  # the same figure is the same file
}


def map_colours(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Similarities [...] on the ramp, from -0.1 to 1: uint8 [..., 3]."""
    place = np.clip((values + 0.1) / 1.1, 0, 1) * (len(RAMP) - 1)
    low = np.minimum(place.astype(int), len(RAMP) - 2)
    share = (place - low)[..., None]
    colours: NDArray[np.uint8] = (RAMP[low] * (1 - share) + RAMP[low + 1] * share).round().astype(np.uint8)
    return colours


def save_figure(figure: Figure, *paths: StrPath, dpi: int = 200) -> list[Path]:
    """Write a figure to each path, as its suffix says: PNG, SVG or PDF. The same figure gives the same file."""
    files = require_pictures(paths)
    with figure_style():
        for file in files:
            kind = file.suffix.lower()
            undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind)
            with replace_file(file) as temporary:
                figure.savefig(temporary, format=kind[1:], dpi=dpi, metadata=undated)
    return files


def require_pictures(paths: Iterable[StrPath]) -> list[Path]:
    """The paths, if figures can be written there.

    Raises `ConfigError` if a suffix is not known, for what `require_outputs` refuses, and without matplotlib.
    """
    files = [Path(path) for path in paths]
    if not files:
        raise ConfigError("a figure needs a file to be written to, such as figure.png or figure.svg.")
    for file in files:
        if file.suffix.lower() not in SUFFIXES:
            raise ConfigError(f"'{file}' names no kind of picture: its suffix must be one of {', '.join(SUFFIXES)}.")
    require_outputs(files)
    with figure_style():
        return files


def plot_match(match: Match, pairs: Sequence[tuple[int, int]], *, title: str = "") -> Figure:
    """The frame matrix of a match with the matched paths, before and after psi, and pairs of frames beside it.

    `pairs` are (query frame, target frame), see `hapvr.reports.match_page.choose_pairs`.
    """
    panels = ["frame similarities"] + ["after psi"] * (match.psi is not None)
    with figure_style():
        figure = new_figure(4.6 * len(panels) + 3.6, 4.8)
        grid = figure.add_gridspec(len(pairs), 2 * len(panels) + 2)
        for number, words in enumerate(panels):
            axes = figure.add_subplot(grid[:, 2 * number : 2 * number + 2])
            drawn = draw_matrix(axes, match, psi=number == 1)
            for segment in match.segments:
                times = np.array([(match.target.times[j], match.query.times[i]) for i, j in segment.path])
                axes.plot(times[:, 0], times[:, 1], color="white", linewidth=3.5)
                axes.plot(times[:, 0], times[:, 1], color="#d1495b", linewidth=1.8)
            axes.set(title=words, xlabel="target, s", ylabel="query, s" if number == 0 else "")
            if drawn is not None:
                figure.colorbar(drawn, ax=axes, shrink=0.7)
        for column, (name, side) in enumerate((("query", match.query), ("target", match.target))):
            frames = [pair[column] for pair in pairs]
            for row, (frame, picture) in enumerate(zip(frames, side.pictures(frames), strict=True)):
                axes = figure.add_subplot(grid[row, 2 * len(panels) + column])
                axes.imshow(picture)
                axes.set_title(f"{name} {side.times[frame]:.1f} s", fontsize=8)
                axes.axis("off")
        add_title(figure, title)
    return figure


def draw_matrix(axes: Axes, match: Match, *, psi: bool = False) -> ScalarMappable | None:
    """Draw a frame matrix, or psi's output, over the seconds of both videos; None where the model has no psi."""
    from matplotlib.colors import LinearSegmentedColormap

    values, step, (low, high) = (match.psi, DOWNSAMPLING, (-1.0, 1.0)) if psi else (match.matrix, 1, (-0.1, 1.0))
    if values is None:
        return None
    ramp = LinearSegmentedColormap.from_list("hapvr", (RAMP / 255).tolist())
    across, down = (
        frame_edges(side.times)[::step][: length + 1]
        for side, length in ((match.target, values.shape[1]), (match.query, values.shape[0]))
    )
    drawn = axes.pcolormesh(across, down, values, cmap=ramp, vmin=low, vmax=high, rasterized=True)
    axes.invert_yaxis()
    return drawn


def new_figure(width: float, height: float) -> Figure:
    """An empty figure; sizes in inches."""
    from matplotlib.figure import Figure  # not pyplot: no window system, no figures that stay open

    return Figure(figsize=(width, height), layout="constrained")


@contextmanager
def figure_style() -> Iterator[None]:
    """Within, matplotlib draws in the style of all figures; `ConfigError` where it is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError("Drawing needs matplotlib: pip install 'hapvr[plots]'.") from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # matplotlib takes settings from a file in the current folder, whoever put it there
        matplotlib.rcParams.update(_STYLE)
        yield


def add_title(figure: Figure, title: str) -> None:
    """Write a title above a figure, if there is one."""
    if title:
        figure.suptitle(title, fontsize=11)
