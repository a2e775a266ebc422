"""The figures of `hapvr.paper.figures` from numbers: `plot_*` return a matplotlib figure.

Models differ in colours that the colour-blind can distinguish, and in line styles or markers: a figure can be read in
greyscale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hapvr.errors import ConfigError
from hapvr.matching import Match
from hapvr.paper.curves import Distribution, PrecisionRecall, QueryOrder, Surrogate, order_queries
from hapvr.reports.plotting import add_title, draw_matrix, figure_style, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator


# Okabe and Ito's colours, ordered so that neighbours also differ in lightness.
_COLOURS = ("#0072B2", "#E69F00", "#000000", "#D55E00", "#56B4E9", "#009E73", "#CC79A7")
_LINES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1.2, 1, 1.2, 1, 1.2)))
_MARKERS = ("o", "^", "s", "D", "v", "P", "X")
_INK, _STEP, _WRONG = "#1f4e79", "#8a8a8a", "#fbeee6"
_MAX_POINTS = 2000  # points of a curve that a print can show
_MAX_NAMED = 60  # queries whose names are written
_MAX_DOTS = 150  # queries that are drawn as dots
_MAX_GROUP_CHARACTERS = 70  # characters of group names that fit side by side
_MIN_PROBABILITY = 0.0002  # probability that a reliability diagram shows
_TICKS = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)


def plot_distributions(models: Mapping[str, Distribution], *, title: str = "") -> Figure:
    """Similarities of relevant and of irrelevant pairs side by side, a line for each model (the paper's Figure 5)."""
    _require_models(models)
    with figure_style():
        figure = new_figure(7.2, 3.3 + 0.18 * len(models))
        panels: Sequence[Axes] = figure.subplots(1, 2)
        for kind, axes in zip(("relevant", "irrelevant"), panels, strict=True):
            for number, (name, spread) in enumerate(models.items()):
                shares = getattr(spread, kind)
                colour = _COLOURS[number % len(_COLOURS)]
                label = f"{name} (overlap {spread.overlap:.2f})"
                axes.stairs(shares, spread.edges, fill=True, color=colour, alpha=0.10)
                axes.stairs(
                    shares, spread.edges, color=colour, linestyle=_choose_line(number), linewidth=1.6, label=label
                )
            counts = {getattr(spread, f"{kind}_pairs") for spread in models.values()}
            pairs = f", {counts.pop():,} pairs" if len(counts) == 1 else ""
            axes.set(xlim=(0, 1), xlabel="similarity, rescaled to [0, 1]", title=f"{kind}{pairs}")
            axes.set_ylim(bottom=0)
        panels[0].set_ylabel("share of pairs in a bin")
        # One legend for both panels, beneath: inside it would hide peaks, which lie left in one and right in the other.
        _add_legend(figure, panels[0])
        add_title(figure, title)
    return figure


def plot_precision_recall(models: Mapping[str, PrecisionRecall], *, title: str = "") -> Figure:
    """Precision over recall of each model; the area under its steps, in the legend, is its uAP."""
    _require_models(models)
    with figure_style():
        figure = new_figure(5.2, 4.2)
        axes = figure.add_subplot()
        for number, (name, curve) in enumerate(models.items()):
            # The height of a step is the precision of the positive at its right end.
            kept = np.unique(
                np.linspace(0, len(curve.recall) - 1, min(_MAX_POINTS, len(curve.recall))).round().astype(int)
            )
            recall, precision = np.r_[0.0, curve.recall[kept]], curve.precision[kept][np.r_[0, : len(kept)]]
            axes.plot(
                *(recall, precision),
                drawstyle="steps-pre",
                color=_COLOURS[number % len(_COLOURS)],
                linestyle=_choose_line(number),
                linewidth=1.8,
                label=f"{name}, uAP {100 * curve.area:.2f}%",
            )
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="recall", ylabel="precision")
        axes.grid(color="#dddddd", linewidth=0.6)
        # The lower left is where precision never is, unless a model fails at once.
        axes.legend(loc="lower left", frameon=True, framealpha=0.9, edgecolor="none", handlelength=3.2)
        add_title(figure, title)
    return figure


def plot_queries(
    models: Mapping[str, Mapping[str, float]], *, groups: Mapping[str, str] | None = None, title: str = ""
) -> Figure:
    """The average precision of every query, those of a group from best to worst: dots, or lines where they are many.

    `models` has the AP of each query for each model; NaN where a query has no positive. `groups` has their kinds.
    """
    _require_models(models)
    order = order_queries(models, groups=groups)
    shown, starts = order.queries, [start for _, start, _ in order.groups]
    gap = max(1.0, len(shown) / 60)
    numbers = np.arange(len(shown))
    at = numbers + gap * np.searchsorted(starts, numbers, side="right")  # a gap before each group
    with figure_style():
        words = sum(len(_shorten(name)) + 4 for name, _, _ in order.groups)
        tilted = words > _MAX_GROUP_CHARACTERS or (not groups and len(shown) <= _MAX_NAMED)
        figure = new_figure(float(np.clip(1.5 + 0.05 * len(models) * at[-1], 6.4, 11)), 4.8 if tilted else 4.2)
        axes = figure.add_subplot()
        labels = [f"{name}, mean {100 * values.mean():.2f}%" for name, values in zip(models, order.values, strict=True)]
        (_draw_dots if len(shown) <= _MAX_DOTS else _draw_lines)(axes, order, at, labels)
        axes.set(ylim=(0, 1.02), xlim=(at[0] - gap, at[-1] + gap), ylabel="average precision")
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        _name_queries(axes, order, at, named=bool(groups))
        _add_legend(figure, axes)
        add_title(figure, title)
    return figure


def plot_calibration(models: Mapping[str, Sequence[Mapping[str, Any]]], *, title: str = "") -> Figure:
    """A reliability diagram: the share of copies over the predicted probability of a copy, and the number of pairs.

    `models` has the bins of each model, as `ReliabilityBin.to_json` gives them. Probabilities are on the scale of their
    log odds, since most are near 0 or 1; shares of 0 and of 1 are drawn at the border. Bars are intervals of 95%.
    """
    _require_models(models)
    with figure_style():
        figure = new_figure(6.4, 6.4)
        grid = figure.add_gridspec(2, 1, height_ratios=(3, 1))
        axes = figure.add_subplot(grid[0])
        counts = figure.add_subplot(grid[1], sharex=axes)
        line = np.array([_MIN_PROBABILITY, 1 - _MIN_PROBABILITY])
        axes.plot(line, line, color=_STEP, linestyle="--", linewidth=1.2, label="as predicted")
        for number, (name, bins) in enumerate(models.items()):
            known = [one for one in bins if one["predicted"] is not None and one["observed"] is not None]
            said, seen, low, high = (
                np.clip([one[key] for one in known], _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
                for key in ("predicted", "observed", "observed_low", "observed_high")
            )
            colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
            ends = np.maximum([seen - low, high - seen], 0)
            axes.errorbar(
                said,
                seen,
                yerr=ends,
                color=colour,
                marker=marker,
                linestyle="none",
                capsize=3,
                label=name,
                clip_on=False,
            )
            for key, hollow in (("strangers", True), ("copies", False)):
                shown = [one[key] or np.nan for one in known]
                face = "none" if hollow else colour
                words = f"{name}, {key}" if len(models) > 1 else key
                counts.plot(said, shown, color=colour, marker=marker, markerfacecolor=face, linewidth=0.8, label=words)
        axes.set(xscale="logit", yscale="logit", xlim=line, ylim=line, ylabel="share of copies, at the prior")
        counts.set(yscale="log", xlabel="predicted probability of a copy", ylabel="pairs")
        for one in (axes, counts):
            one.set_xticks(_TICKS, [f"{value:g}" for value in _TICKS])
            one.xaxis.set_minor_locator(_no_ticks())
            one.grid(color="#dddddd", linewidth=0.6)
            one.set_axisbelow(True)
        axes.set_yticks(_TICKS, [f"{value:g}" for value in _TICKS])
        axes.yaxis.set_minor_locator(_no_ticks())
        axes.legend(loc="upper left")
        counts.legend(loc="upper center")
        add_title(figure, title)
    return figure


def _no_ticks() -> NullLocator:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def plot_matrices(models: Mapping[str, Match]) -> Figure:
    """The frame matrix of one pair under several models, before and after psi (the paper's Figure 6, and appendix)."""
    _require_models(models)
    rows = ["frame similarities"] + ["after psi"] * any(match.psi is not None for match in models.values())
    with figure_style():
        figure = new_figure(1.3 + 2.5 * len(models), 0.7 + 2.4 * len(rows))
        grid: NDArray[Any] = figure.subplots(len(rows), len(models), squeeze=False)
        for column, (name, match) in enumerate(models.items()):
            grid[0, column].set_title(f"{name}\nscore {match.score:.3f}")
            drawn = [draw_matrix(axes, match, psi=row == 1) for row, axes in enumerate(grid[:, column])]
            for axes, there in zip(grid[:, column], drawn, strict=True):
                if there is None:
                    axes.set(xticks=[], yticks=[])
                    axes.spines[:].set_visible(False)
                    axes.text(0.5, 0.5, "no psi", transform=axes.transAxes, ha="center", va="center", color="#666666")
                else:
                    axes.set(xlim=grid[0, column].get_xlim(), ylim=grid[0, column].get_ylim())
            lowest = [axes for axes, there in zip(grid[:, column], drawn, strict=True) if there is not None]
            lowest[-1].set_xlabel("target, s")
            for axes in lowest[:-1]:
                axes.tick_params(labelbottom=False)
        for row, words in enumerate(rows):
            grid[row, 0].set_ylabel(f"{words}\nquery, s")
            drawn_there = [axes.collections[0] for axes in grid[row] if axes.collections]
            figure.colorbar(drawn_there[0], ax=list(grid[row]), shrink=0.9, pad=0.01)
    return figure


def plot_surrogates(curves: Sequence[Surrogate]) -> Figure:
    """The step of AP, its surrogates and their slopes, from `surrogate_curves` (the paper's Figure 4)."""
    if len(curves) < 2:
        raise ConfigError("plot_surrogates takes the step and its surrogates, as surrogate_curves gives them.")
    step, *surrogates = curves
    top = 1.2 * max(float(curve.slope.max()) for curve in surrogates)
    with figure_style():
        figure = new_figure(7.2, 0.4 + 2.5 * len(surrogates))
        grid: NDArray[Any] = figure.subplots(len(surrogates), 2, sharex=True, squeeze=False)
        for row, curve in zip(grid, surrogates, strict=True):
            name = f"{curve.name}, {curve.setting}"
            high = float(curve.value.max())
            left, right = row
            _set_up_axes(left, name, curve.x, top=1.3 * high if high < 2 else 1.05 * high)
            left.plot(step.x, step.value, color=_STEP, linestyle="--", linewidth=1.2, label=step.name)
            left.plot(curve.x, curve.value, color=_INK, linewidth=1.8, label="surrogate")
            left.set_ylabel("value")
            left.legend(loc="upper left")
            # One scale for all slopes: the pull of the losses is what is compared.
            _set_up_axes(right, f"{name}: slope", curve.x, top=top)
            right.plot(curve.x, curve.slope, color=_INK, linewidth=1.8)
            right.fill_between(curve.x, 0, curve.slope, color=_INK, alpha=0.15, linewidth=0)
            right.set_ylabel("slope")
            _annotate_slope(right, curve, top)
        for axes in grid[-1]:
            axes.set_xlabel("lead of the negative over the positive, x")
        reach = float(step.x[-1])
        low, high = grid[0, 0].get_ylim()
        grid[0, 0].text(reach / 2, low + 0.14 * (high - low), "wrongly ranked", ha="center", color="#8c4a1f", size=9)
    return figure


def _set_up_axes(axes: Axes, title: str, x: NDArray[np.float64], *, top: float) -> None:
    axes.set_title(title)
    axes.set(xlim=(float(x[0]), float(x[-1])), ylim=(-0.05 * top, top))
    axes.axvspan(0, float(x[-1]), color=_WRONG, zorder=0)
    axes.axvline(0, color=_STEP, linewidth=0.6, zorder=1)


def _annotate_slope(axes: Axes, curve: Surrogate, top: float) -> None:
    """Say what pull a badly misranked pair feels."""
    reach = float(curve.x[-1])
    place = 0.6 * reach
    slope = float(np.interp(place, curve.x, curve.slope))
    gone = slope < 0.01 * float(curve.slope.max())
    even = np.allclose(curve.slope[curve.x >= 0], slope)
    text = "no pull on badly\nmisranked pairs" if gone else f"{slope:.3g} on every\nmisranked pair"
    text = text if gone or even else f"{slope:.3g} at x = {place:.2g}"
    arrow = {"arrowstyle": "-", "color": "black", "linewidth": 0.7}
    height = 0.35 * top if gone else 0.5 * slope
    axes.annotate(text, (place, slope), (place, height), ha="center", va="center", arrowprops=arrow, size=9)


def _draw_dots(axes: Axes, order: QueryOrder, at: NDArray[np.float64], labels: list[str]) -> None:
    """A dot for each query and model, those of a query joined."""
    axes.vlines(at, order.values.min(0), order.values.max(0), color="#bbbbbb", linewidth=0.8, zorder=1)
    for number, (values, label) in enumerate(zip(order.values, labels, strict=True)):
        aside = 0.22 * (number - (len(labels) - 1) / 2)  # equal figures stand side by side
        axes.scatter(
            *(at + aside, values),
            s=float(np.clip(900 / len(at), 9, 30)),
            # Hollow but for the first, so that none hides another.
            facecolors=_COLOURS[number % len(_COLOURS)] if number == 0 else "none",
            edgecolors=_COLOURS[number % len(_COLOURS)],
            linewidths=1.1,
            marker=_MARKERS[number % len(_MARKERS)],
            label=label,
            zorder=2,
            clip_on=False,
        )


def _draw_lines(axes: Axes, order: QueryOrder, at: NDArray[np.float64], labels: list[str]) -> None:
    """A line for each model and group, its queries from best to worst: dots would hide each other."""
    for number, (values, label) in enumerate(zip(order.values, labels, strict=True)):
        for part, (_, start, end) in enumerate(order.groups):
            axes.plot(
                *(at[start:end], np.sort(values[start:end])[::-1]),
                color=_COLOURS[number % len(_COLOURS)],
                linestyle=_choose_line(number),
                linewidth=1.6,
                label=label if part == 0 else None,
            )


def _name_queries(axes: Axes, order: QueryOrder, at: NDArray[np.float64], *, named: bool) -> None:
    """Below the axis the groups, if there are, else the queries, if there is room for their names."""
    shown, notes = order.queries, []
    if named:
        labels = [f"{_shorten(name)} ({end - start})" for name, start, end in order.groups]
        tilted = sum(map(len, labels)) > _MAX_GROUP_CHARACTERS
        middles = [float(at[start:end].mean()) for _, start, end in order.groups]
        axes.set_xticks(middles, labels, rotation=40 if tilted else 0, ha="right" if tilted else "center")
        axes.tick_params(axis="x", length=0)
        for _, start, _ in order.groups[1:]:
            axes.axvline(float(at[start - 1] + at[start]) / 2, color="#dddddd", linewidth=0.8, zorder=0)
    elif len(shown) <= _MAX_NAMED:
        axes.set_xticks(at, shown, rotation=90, fontsize=8)
        axes.tick_params(axis="x", length=2)
    else:
        axes.set_xticks([])
        notes += [f"{len(shown):,} queries, from best to worst"]
    if len(shown) > _MAX_DOTS:
        notes += ["each model in its own order"]
    if order.left_out:
        notes += [f"{order.left_out:,} without a positive left out"]
    axes.set_xlabel(", ".join(notes))


def _shorten(name: str) -> str:
    return name if len(name) <= 22 else f"{name[:21]}…"


def _add_legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    across = 3 if max(map(len, labels)) <= 26 else 2
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), across))


def _choose_line(number: int) -> Any:
    return _LINES[number % len(_LINES)]


def _require_models(models: Mapping[str, Any]) -> None:
    if not models:
        raise ConfigError("there is no model to draw: give at least one.")
