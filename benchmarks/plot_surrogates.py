"""Draw the two surrogates of the step function, and their slopes: Smooth-AP's sigmoid, QuadLinear-AP's R-.

    python benchmarks/plot_surrogates.py [docs/img/surrogates.png]

x is by how much a negative leads a positive: right of 0 the pair is wrongly ranked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import torch
from torch import Tensor

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from hapvr.losses import QuadLinearAP, SmoothAP, quad_linear

REACH = 0.2
INK, STEP, WRONG = "#1f4e79", "#8a8a8a", "#fbeee6"


def value_and_slope(surrogate: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    value = surrogate(x)
    (slope,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), slope


def frame(axes: Axes, title: str, *, top: float) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_xlim(-REACH, REACH)
    axes.set_ylim(-0.05 * top, top)
    axes.axvspan(0, REACH, color=WRONG, zorder=0)
    axes.axvline(0, color=STEP, linewidth=0.6, zorder=1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)


def note(axes: Axes, text: str, at: tuple[float, float], to: tuple[float, float]) -> None:
    arrow = {"arrowstyle": "-", "color": "black", "linewidth": 0.7}
    axes.annotate(text, xy=at, xytext=to, fontsize=9, ha="center", va="center", arrowprops=arrow)


def draw(path: Path) -> None:
    smooth, quad = SmoothAP(), QuadLinearAP()
    flat = 2 / quad.delta
    x = torch.linspace(-REACH, REACH, 2001, dtype=torch.float64)
    step = (x > 0).double()
    curves = {
        f"Smooth-AP, τ = {smooth.temperature:g}": lambda t: torch.sigmoid(t / smooth.temperature),
        f"QuadLinear-AP, δ = {quad.delta:g}": lambda t: quad_linear(t, quad.delta),
    }
    figure, grid = plt.subplots(2, 2, figsize=(7.2, 5.4), sharex=True, layout="constrained")
    for row, (name, surrogate) in zip(grid, curves.items(), strict=True):
        value, slope = value_and_slope(surrogate, x)
        left, right = row
        frame(left, name, top=1.3 * float(value.max()) if value.max() < 2 else 1.05 * float(value.max()))
        left.plot(x, step, color=STEP, linestyle="--", linewidth=1.2, label="step, [x > 0]")
        left.plot(x, value, color=INK, linewidth=1.8, label="surrogate")
        left.set_ylabel("value", fontsize=10)
        left.legend(loc="upper left", fontsize=9, frameon=False)
        # One scale for both slopes: the pull of the two losses is what is compared.
        frame(right, f"{name}: slope", top=1.2 * flat)
        right.plot(x, slope, color=INK, linewidth=1.8)
        right.fill_between(x, 0, slope, color=INK, alpha=0.15, linewidth=0)
        right.set_ylabel("slope", fontsize=10)
    for axes in grid[1]:
        axes.set_xlabel("lead of the negative over the positive, x", fontsize=10)
    note(grid[0][1], "no pull on badly\nmisranked pairs", (0.12, 0.3), (0.12, 17))
    note(grid[1][1], f"2/δ = {flat:g} on every\nmisranked pair", (0.1, flat), (0.1, 0.55 * flat))
    grid[0][0].text(REACH / 2, 0.12, "wrongly ranked", fontsize=9, ha="center", color="#8c4a1f")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=200)
    plt.close(figure)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "img" / "surrogates.png"
    draw(target)
    print(f"wrote {target}")
