"""Smooth-AP."""

from __future__ import annotations

import torch
from torch import Tensor

from hapvr.losses._base import ScoreLoss, check_number, compute_leads, weigh_queries


class SmoothAP(ScoreLoss):
    """One minus average precision with every step replaced by a sigmoid (Brown et al., arXiv:2007.12163).

        G(x) = 1 / (1 + exp(-x / temperature))
        above(i) = 1 + sum over other positives j of G(s_j - s_i);   wrong(i) = sum over negatives j of G(s_j - s_i)
        loss of a query = 1 - mean over positives i of above(i) / (above(i) + wrong(i))

    The slope of G vanishes on both sides, so also on badly misranked pairs: `QuadLinearAP` avoids this.

    Only differences of scores count. A query without negatives counts with 0. temperature > 0.

    Example: a positive and a negative of equal score: G(0) = .5, so 1 - 1 / 1.5.

        >>> import torch
        >>> scores, relevance = torch.tensor([[.5, .5]]), torch.tensor([[True, False]])
        >>> round(SmoothAP()(scores, relevance).item(), 4)
        0.3333
    """

    def __init__(self, temperature: float = 0.01) -> None:
        super().__init__()
        self.temperature = check_number(temperature, "SmoothAP: temperature", above=0)

    def _compute(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        query, column = positive.nonzero(as_tuple=True)  # [M]
        step = torch.sigmoid(compute_leads(scores, query, column) / self.temperature)  # [M, N]
        others = positive[query].scatter(1, column.unsqueeze(1), False)
        above = 1 + (step * others).sum(1)  # [M]
        wrong = (step * negative[query]).sum(1)  # [M]
        return (weigh_queries(positive, scores.dtype)[query] * wrong / (above + wrong)).sum()
