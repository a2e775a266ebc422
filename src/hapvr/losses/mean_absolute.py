"""Mean absolute error."""

from __future__ import annotations

from torch import Tensor

from hapvr.losses._base import ScoreLoss


class MeanAbsolute(ScoreLoss):
    """The mean of |s - y|, y = 1 for positives and 0 for negatives (MAE in Table 2 of HAP-VR, arXiv:2407.15566).

    The mean is over all entries that are not ignored, of the queries that have a positive. Each entry weighs the same,
    so with one positive among a hundred negatives the negatives make the loss. A query without negatives counts with
    its positives.

    Example: .9(+) and .3(-): (.1 + .3) / 2.

        >>> import torch
        >>> scores, relevance = torch.tensor([[.9, .3]]), torch.tensor([[True, False]])
        >>> round(MeanAbsolute()(scores, relevance).item(), 4)
        0.2
    """

    def _compute(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        used = (positive | negative) & positive.any(1, keepdim=True)
        return ((scores - positive.to(scores.dtype)).abs() * used).sum() / used.sum().clamp(min=1)
