"""QuadLinear-AP, the ranking loss of HAP-VR, and its surrogate of the step function."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hapvr.losses._base import ScoreLoss, check_number, compute_leads, require_floats, to_full_precision, weigh_queries

# Differences held at once. Beyond it the rows are computed in parts, and again in the backward pass.
_CELLS = 2**22


def quad_linear(x: Tensor, delta: float) -> Tensor:
    """The surrogate R- of the step "a negative leads the positive by x": a parabola, then its tangent.

        R-(x) = 0 if x < -delta;   (1 + x/delta)^2 if -delta <= x < 0;   1 + 2x/delta if x >= 0

    It bounds the step H(x) = [x > 0] from above, is convex and continuously differentiable, never decreases, and its
    slope is 2/delta on every wrongly ranked pair, however wrong. x of any shape; computed in float32, or in float64
    if x is. delta > 0.

        >>> import torch
        >>> quad_linear(torch.tensor([-.2, -.1, -.05, 0., .1]), delta=.1)
        tensor([0.0000, 0.0000, 0.2500, 1.0000, 3.0000])
    """
    require_floats(x, "x")
    height = (to_full_precision(x) / check_number(delta, "delta", above=0) + 1).clamp(min=0)
    return torch.where(height < 1, height * height, 2 * height - 1)


class QuadLinearAP(ScoreLoss):
    """One minus a smooth average precision, averaged over queries (HAP-VR, arXiv:2407.15566).

    A positive i is ranked among positives by counting and among negatives by the surrogate R- of `quad_linear`:

        above(i) = 1 + rho * #{positives j: s_j > s_i};   wrong(i) = sum over negatives j of R-(s_j - s_i)
        loss of a query = mean over positives i of wrong(i) / (above(i) + wrong(i))

    The count passes no gradient: it only weighs. The slope of R- never vanishes on a wrongly ranked negative. For
    rho <= 1 the loss is at least 1 - AP (equal scores counted in the positive's favour); a larger rho divides wrong(i)
    by more than the positives above and the bound is lost.

    Only differences of scores count. A query without negatives counts with 0. Ignore each clip's own score. (The
    authors' code counts a clip as its own positive: `Term.include_self` does that.) delta > 0, rho >= 0.

    Example: scores .9(+) .8(-) .7(+) with delta=.1, rho=1. The first positive leads by delta: 0 wrong. The second has
    one positive above it and R-(.1) = 3: 3 / (2 + 3). The mean is .3.

        >>> import torch
        >>> scores, relevance = torch.tensor([[.9, .8, .7]]), torch.tensor([[True, False, True]])
        >>> round(QuadLinearAP(delta=.1, rho=1.)(scores, relevance).item(), 4)
        0.3
    """

    def __init__(self, delta: float = 0.05, rho: float = 0.10) -> None:
        super().__init__()
        self.delta = check_number(delta, "QuadLinearAP: delta", above=0)
        self.rho = check_number(rho, "QuadLinearAP: rho")

    def _compute(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        weight = weigh_queries(positive, scores.dtype)
        return sum_weighted_risk(scores, positive, negative, weight, delta=self.delta, rho=self.rho)


def sum_weighted_risk(
    scores: Tensor, positive: Tensor, negative: Tensor, weight: Tensor, *, delta: float, rho: float
) -> Tensor:
    """The sum over positives of wrong / (above + wrong), each times the weight of its query; weight is [Q]."""

    def part(scores: Tensor, query: Tensor, column: Tensor) -> Tensor:
        lead = compute_leads(scores, query, column)  # [m, N]
        above = 1 + rho * ((lead > 0) & positive[query]).sum(1, dtype=lead.dtype)  # [m]
        wrong = (quad_linear(lead, delta) * negative[query]).sum(1)  # [m]
        return (weight[query] * wrong / (above + wrong)).sum()

    query, column = positive.nonzero(as_tuple=True)  # [M]
    size = max(1, _CELLS // max(1, scores.shape[1]))
    if len(query) <= size:
        return part(scores, query, column)
    parts = [
        checkpoint(part, scores, q, c, use_reentrant=False, preserve_rng_state=False)
        for q, c in zip(torch.split(query, size), torch.split(column, size), strict=True)
    ]
    return torch.stack(parts).sum()
