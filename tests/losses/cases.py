"""Batches for hypothesis, and the table of losses that share one calling convention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from hapvr.losses import (
    SSHN,
    BlackBoxAP,
    Circle,
    Contrastive,
    DirAP,
    FastAP,
    InfoNCE,
    MeanAbsolute,
    MeanSquared,
    QuadLinearAP,
    SmoothAP,
    Triplet,
)
from tests.losses import reference
from tests.losses.reference import Flags, Numbers


@dataclass(frozen=True)
class Batch:
    scores: Tensor
    relevance: Tensor
    ignore: Tensor

    def lists(self) -> tuple[Numbers, Flags, Flags]:
        return self.scores.tolist(), self.relevance.tolist(), self.ignore.tolist()


# Multiples of 1/64 make ties and hit borders exactly; the other numbers do not.
SCORES = st.one_of(
    st.integers(0, 64).map(lambda k: k / 64),
    st.floats(0, 1, allow_subnormal=False),
)


@st.composite
def batches(draw: st.DrawFn, *, queries: st.SearchStrategy[int] | None = None, ignoring: bool = True) -> Batch:
    q = draw(queries if queries is not None else st.integers(1, 4))
    n = draw(st.integers(1, 7))

    def matrix(of: st.SearchStrategy[float] | st.SearchStrategy[bool]) -> list[list[float | bool]]:
        return draw(st.lists(st.lists(of, min_size=n, max_size=n), min_size=q, max_size=q))

    return Batch(
        scores=torch.tensor(matrix(SCORES), dtype=torch.float64),
        relevance=torch.tensor(matrix(st.booleans())),
        ignore=torch.tensor(matrix(st.integers(0, 3).map(lambda k: ignoring and k == 0))),
    )


def some_batch(queries: int = 4, candidates: int = 9) -> Batch:
    """A batch without ties or entries at borders, with 0 to several positives a query."""
    generator = torch.Generator().manual_seed(queries * 100 + candidates)
    draw = torch.rand(3, queries, candidates, generator=generator, dtype=torch.float64)
    relevance = draw[1] < 0.35
    relevance[0, :2] = torch.tensor([True, False])
    ignore = draw[2] < 0.15
    ignore[0, :2] = False
    return Batch(0.02 + 0.96 * draw[0], relevance, ignore)


class SSHNWithFixedSelf(nn.Module):
    """SSHN in the shape of the others: every clip is .75 like itself."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = SSHN()

    def forward(self, scores: Tensor, relevance: Tensor, *, ignore: Tensor | None = None) -> Tensor:
        value: Tensor = self.loss(scores, relevance, self_scores=scores.new_full((len(scores),), 0.75), ignore=ignore)
        return value


LOSSES: dict[str, nn.Module] = {
    "quad_linear_ap": QuadLinearAP(),
    "infonce": InfoNCE(),
    "sshn": SSHNWithFixedSelf(),
    "smooth_ap": SmoothAP(temperature=0.05),
    "fast_ap": FastAP(bins=7),
    "dir_ap": DirAP(bins=6),
    "black_box_ap": BlackBoxAP(margin=0.02),
    "triplet": Triplet(margin=0.1),
    "circle": Circle(scale=16),
    "contrastive": Contrastive(margin=0.4),
    "mean_absolute": MeanAbsolute(),
    "mean_squared": MeanSquared(),
}

LOOPS: dict[str, Callable[[Numbers, Flags, Flags], float]] = {
    "quad_linear_ap": lambda s, r, i: reference.quad_linear_ap(s, r, i, 0.05, 0.1),
    "infonce": lambda s, r, i: reference.infonce(s, r, i, 0.03),
    "sshn": lambda s, r, i: reference.sshn(s, r, i, [0.75] * len(s), 1e-3),
    "smooth_ap": lambda s, r, i: reference.smooth_ap(s, r, i, 0.05),
    "fast_ap": lambda s, r, i: reference.binned_ap(s, r, i, 8),
    "dir_ap": lambda s, r, i: reference.binned_ap(s, r, i, 6),
    "black_box_ap": lambda s, r, i: reference.black_box_ap(s, r, i, 4.0, 0.02)[0],
    "triplet": lambda s, r, i: reference.triplet(s, r, i, 0.1),
    "circle": lambda s, r, i: reference.circle(s, r, i, 0.25, 16),
    "contrastive": lambda s, r, i: reference.contrastive(s, r, i, 0.4),
    "mean_absolute": lambda s, r, i: reference.mean_error(s, r, i, 1),
    "mean_squared": lambda s, r, i: reference.mean_error(s, r, i, 2),
}


def value_and_gradient(loss: nn.Module, batch: Batch) -> tuple[float, Tensor]:
    scores = batch.scores.clone().requires_grad_()
    value = loss(scores, batch.relevance, ignore=batch.ignore)
    (gradient,) = torch.autograd.grad(value, scores)
    return value.item(), gradient
