"""FastAP."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.losses._base import ScoreLoss, check_count, clamp_to_unit_range


class FastAP(ScoreLoss):
    """One minus average precision of soft histograms (Cakir et al., "Deep Metric Learning to Rank", CVPR 2019).

    Scores are sorted into a histogram instead of a ranking: each is shared between the two nearest of bins + 1 edges.

        loss of a query = 1 - 1 / (number of positives) * sum over edges m, from 1 down to 0, of p_m P_m / A_m
        p_m: positives at edge m;   P_m, A_m: positives and all entries at edge m or above it

    The original bins squared distances d^2 in [0, 4] of unit vectors; with s = 1 - d^2 / 4 it is the same.

    `DataError` for a score outside [0, 1] by more than .001; a lesser excess is clamped. A query without negatives
    counts with 0. A score exactly at an edge has no gradient. bins >= 1.

    Example: bins=1, edges 1 and 0; .75(+) and .25(-). At 1: p = P = .75, A = 1. At 0: p = .25, P = 1, A = 2.
    AP = .75 * .75 + .25 * .5 = .6875.

        >>> import torch
        >>> scores, relevance = torch.tensor([[.75, .25]]), torch.tensor([[True, False]])
        >>> round(FastAP(bins=1)(scores, relevance).item(), 4)
        0.3125
    """

    def __init__(self, bins: int = 10) -> None:
        super().__init__()
        self.bins = check_count(bins, "FastAP: bins", min_value=1)

    def _compute(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return compute_binned_ap_loss(scores, positive, negative, centres=self.bins + 1)


def compute_binned_ap_loss(scores: Tensor, positive: Tensor, negative: Tensor, *, centres: int) -> Tensor:
    """1 - AP of the ranking by bins, averaged over the queries that have a positive; for `FastAP` and `DirAP`.

    Every score is shared between the two nearest of `centres` points from 1 down to 0, in proportion to nearness. With
    p_m, a_m the weight of positives and of all entries at centre m and P_m, A_m their running sums from the top,
    AP = sum_m p_m P_m / A_m / (number of positives).
    """
    used = positive | negative
    place = (1 - clamp_to_unit_range(scores, used)) * (centres - 1)  # [Q, N], 0 at the top centre
    points = torch.arange(centres, dtype=scores.dtype, device=scores.device)
    share = F.relu(1 - (place.unsqueeze(2) - points).abs())  # [Q, N, centres]
    relevant = (share * positive.unsqueeze(2)).sum(1)  # [Q, centres]
    everything = (share * used.unsqueeze(2)).sum(1)
    # Where nothing has been met yet both sums are 0, and so is the term.
    precision = relevant.cumsum(1) / everything.cumsum(1).clamp(min=torch.finfo(scores.dtype).tiny)
    count = positive.sum(1)  # [Q]
    ap = (relevant * precision).sum(1) / count.clamp(min=1)
    return ((1 - ap) * (count > 0)).sum() / (count > 0).sum().clamp(min=1)
