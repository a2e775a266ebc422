"""Contrastive loss."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from hapvr.errors import ConfigError
from hapvr.losses._base import ScoreLoss
from hapvr.losses._inputs import non_negative_setting


class Contrastive(ScoreLoss):
    """Positives are pulled to 1, negatives pushed below a margin (Hadsell et al., "Dimensionality Reduction by Learning
    an Invariant Mapping", CVPR 2006).

        loss of a query = mean over positives of (1 - s)^2 + mean over negatives of max(0, s - margin)^2

    With the distance 1 - s this is the original, twice over, except that positives and negatives are averaged apart:
    one positive among a hundred negatives would not be felt otherwise.

    Scores in [0, 1]. Queries without a positive are left out; if none is left the loss is 0. A query without negatives
    counts with its first term. `ConfigError` unless 0 <= margin < 1.

    Example: positive .9, negatives .7 and .3, margin .5: .1^2 + (.2^2 + 0) / 2.

        >>> import torch
        >>> scores, relevance = torch.tensor([[.9, .7, .3]]), torch.tensor([[True, False, False]])
        >>> round(Contrastive(margin=.5)(scores, relevance).item(), 4)
        0.03
    """

    def __init__(self, margin: float = 0.5) -> None:
        super().__init__()
        self.margin = non_negative_setting(margin, "Contrastive: margin")
        if self.margin >= 1:
            raise ConfigError(f"Contrastive: margin must be below 1, where positives are pulled to; got {margin!r}.")

    def value(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """See `ScoreLoss.value`."""
        pull = ((1 - scores).square() * positive).sum(1) / positive.sum(1).clamp(min=1)  # [Q]
        push = (F.relu(scores - self.margin).square() * negative).sum(1) / negative.sum(1).clamp(min=1)
        counted = positive.any(1)
        return ((pull + push) * counted).sum() / counted.sum().clamp(min=1)
