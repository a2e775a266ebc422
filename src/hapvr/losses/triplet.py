"""Triplet loss."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from hapvr.losses._base import ScoreLoss, check_number, compute_leads


class Triplet(ScoreLoss):
    """A positive must lead each negative by a margin (Schroff et al., arXiv:1503.03832).

        loss = mean, over the triplets (query, positive i, negative j) that violate it, of max(0, s_j - s_i + margin)

    All triplets of the batch are formed. The mean is over the violating ones, pooled over queries, so that the many
    satisfied triplets do not thin the gradient; in return the loss can rise when an easy violation is resolved. The
    default margin is FaceNet's .2 on squared distances of unit vectors, brought to this scale by s = 1 - d^2 / 4.

    Only differences of scores count. Queries without a positive, or without negatives, form no triplet; if none is
    violated the loss is 0. margin >= 0.

    Example: positive .5, negatives .48, .6, .1, margin .05: violations .03 and .15.

        >>> import torch
        >>> scores, relevance = torch.tensor([[.5, .48, .6, .1]]), torch.tensor([[True, False, False, False]])
        >>> round(Triplet(margin=.05)(scores, relevance).item(), 4)
        0.09
    """

    def __init__(self, margin: float = 0.05) -> None:
        super().__init__()
        self.margin = check_number(margin, "Triplet: margin")

    def _compute(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        query, column = positive.nonzero(as_tuple=True)  # [M]
        violation = F.relu(compute_leads(scores, query, column) + self.margin) * negative[query]  # [M, N]
        return violation.sum() / (violation > 0).sum().clamp(min=1)
