"""Contrastive loss."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from hapvr.errors import ConfigError
from hapvr.losses._base import ScoreLoss, check_number


class Contrastive(ScoreLoss):
    """Positives are pulled to 1, negatives pushed below a margin (Hadsell et al., "Dimensionality Reduction by Learning
    an Invariant Mapping", CVPR 2006).

        loss of a query = mean over positives of (1 - s)^2 + mean over negatives of max(0, s - margin)^2

    With the distance 1 - s this is the original, twice over, except that positives and negatives are averaged apart:
    one positive among a hundred negatives would not be felt otherwise.

    A query without negatives counts with its first term. 0 <= margin < 1.

    Example: positive .9, negatives .7 and .3, margin .5: .1^2 + (.2^2 + 0) / 2.

        >>> import torch
        >>> scores, relevance = torch.tensor([[.9, .7, .3]]), torch.tensor([[True, False, False]])
        >>> round(Contrastive(margin=.5)(scores, relevance).item(), 4)
        0.03
    """

    def __init__(self, margin: float = 0.5) -> None:
        super().__init__()
        self.margin = check_number(margin, "Contrastive: margin")
        if self.margin >= 1:
            raise ConfigError(f"Contrastive: margin must be below 1, where positives are pulled to; got {margin!r}.")

    def _compute(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        pull = ((1 - scores).square() * positive).sum(1) / positive.sum(1).clamp(min=1)  # [Q]
        push = (F.relu(scores - self.margin).square() * negative).sum(1) / negative.sum(1).clamp(min=1)
        counted = positive.any(1)
        return ((pull + push) * counted).sum() / counted.sum().clamp(min=1)
