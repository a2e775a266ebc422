"""Mean squared error."""

from __future__ import annotations

from torch import Tensor

from hapvr.losses._base import ScoreLoss


class MeanSquared(ScoreLoss):
    """The mean of (s - y)^2, y = 1 for positives and 0 for negatives (MSE in Table 2 of HAP-VR, arXiv:2407.15566).

    The mean is over all entries that are not ignored, of the queries that have a positive. Each entry weighs the same,
    so with one positive among a hundred negatives the negatives make the loss. A query without negatives counts with
    its positives.

    Example: .9(+) and .3(-): (.01 + .09) / 2.

        >>> import torch
        >>> scores, relevance = torch.tensor([[.9, .3]]), torch.tensor([[True, False]])
        >>> round(MeanSquared()(scores, relevance).item(), 4)
        0.05
    """

    def _compute(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        used = (positive | negative) & positive.any(1, keepdim=True)
        return ((scores - positive.to(scores.dtype)).square() * used).sum() / used.sum().clamp(min=1)
