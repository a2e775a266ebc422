"""BlackBox AP: average precision with a gradient taken through the sorting itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hapvr.losses._base import ScoreLoss, check_number


class BlackBoxAP(ScoreLoss):
    """One minus the exact average precision, with a gradient from ranking twice (Rolinek et al., arXiv:1912.03500).

        y_j = s_j + margin/2 for negatives, s_j - margin/2 for positives
        loss of a query = 1 - mean over positives i of rank+(i) / rank(i)
        gradient = -(rank(y) - rank(y + strength * g)) / strength,   g = d loss / d rank(y)

    rank counts from 1 among all entries, rank+ among the positives; rank+ is held constant in g, as the authors' code
    does. The margin asks for more than the right order, where the gradient would end. A small strength sees only near
    swaps, a large one gives a flat gradient. g is that of the query's own loss, so the weight of the term, the size of
    the batch and a gradient scaler scale the gradient and nothing else; with as many queries as candidates it equals
    the authors' (who divide ranks by N and the loss by Q).

    Equal y: negatives before positives, then by column; so the order of clips does not change the loss, and can change
    the gradient only among equal entries of one kind.

    Only differences of scores count. A query without negatives counts with 0. strength > 0, margin >= 0.

    Example: .6(-) .5(+): the positive is second of two, AP = 1/2. g = 1/4 lifts it to .5 + 4/4, the first rank: its
    gradient is -(2 - 1) / 4, the negative's the opposite.

        >>> import torch
        >>> scores = torch.tensor([[.6, .5]], requires_grad=True)
        >>> loss = BlackBoxAP(strength=4., margin=0.)(scores, torch.tensor([[False, True]]))
        >>> loss.backward()
        >>> loss.item(), scores.grad.tolist()
        (0.5, [[0.25, -0.25]])
    """

    def __init__(self, strength: float = 4.0, margin: float = 0.0) -> None:
        super().__init__()
        self.strength = check_number(strength, "BlackBoxAP: strength", above=0)
        self.margin = check_number(margin, "BlackBoxAP: margin")

    def _compute(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        shifted = scores + self.margin / 2 * (negative.to(scores.dtype) - positive.to(scores.dtype))
        risk: Tensor = _RankingRisk.apply(shifted, positive, negative, self.strength)  # type: ignore[no-untyped-call]  # [Q]
        return risk.sum() / positive.any(1).sum().clamp(min=1)


class _RankingRisk(torch.autograd.Function):
    """1 - AP of each query, [Q]; 0 for a query without positives."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, positive: Tensor, negative: Tensor, strength: float) -> Tensor:
        rank, rank_of_positive = _ranks(scores, positive, negative)
        count = positive.sum(1, keepdim=True).clamp(min=1)  # [Q, 1]
        precision = positive * rank_of_positive / rank / count  # [Q, N], summing to AP
        moved, _ = _ranks(scores + strength * precision / rank, positive, negative)
        ctx.save_for_backward((moved - rank) / strength)
        return positive.any(1).to(scores.dtype) - precision.sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return upstream.unsqueeze(1) * gradient, None, None, None


def _ranks(scores: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """The rank of each entry among all, and the number of positives down to it, from 1; [Q, N] each.

    Ignored entries come last, in the order of their columns.
    """
    keyed = scores.masked_fill(~(positive | negative), float("-inf"))
    order = positive.to(torch.uint8).argsort(dim=1, stable=True)
    order = order.gather(1, keyed.gather(1, order).argsort(dim=1, descending=True, stable=True))
    places = torch.arange(1, scores.shape[1] + 1, dtype=scores.dtype, device=scores.device).expand_as(scores)
    met = positive.gather(1, order).cumsum(1).to(scores.dtype)
    rank, rank_of_positive = torch.empty_like(scores), torch.empty_like(scores)
    return rank.scatter(1, order, places), rank_of_positive.scatter(1, order, met)
