"""FastAP."""

from __future__ import annotations

from torch import Tensor

from hapvr.losses._base import ScoreLoss
from hapvr.losses._histogram import binned_ap_risk
from hapvr.losses._inputs import count_setting


class FastAP(ScoreLoss):
    """One minus average precision of soft histograms (Cakir et al., "Deep Metric Learning to Rank", CVPR 2019).

    Scores are sorted into a histogram instead of a ranking: each is shared between the two nearest of bins + 1 edges.

        loss of a query = 1 - 1 / (number of positives) * sum over edges m, from 1 down to 0, of p_m P_m / A_m
        p_m: positives at edge m;   P_m, A_m: positives and all entries at edge m or above it

    The original bins squared distances d^2 in [0, 4] of unit vectors; with s = 1 - d^2 / 4 it is the same.

    Scores in [0, 1]: `DataError` if one is outside by more than .001, clamped within. Queries without a positive are
    left out; if none is left the loss is 0. A query without negatives counts with 0. A score exactly at an edge has no
    gradient. `ConfigError` unless bins is a whole number of at least 1.

    Example: bins=1, edges 1 and 0; .75(+) and .25(-). At 1: p = P = .75, A = 1. At 0: p = .25, P = 1, A = 2.
    AP = .75 * .75 + .25 * .5 = .6875.

        >>> import torch
        >>> scores, relevance = torch.tensor([[.75, .25]]), torch.tensor([[True, False]])
        >>> round(FastAP(bins=1)(scores, relevance).item(), 4)
        0.3125
    """

    def __init__(self, bins: int = 10) -> None:
        super().__init__()
        self.bins = count_setting(bins, "FastAP: bins", least=1)

    def value(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """See `ScoreLoss.value`."""
        return binned_ap_risk(scores, positive, negative, centres=self.bins + 1)
