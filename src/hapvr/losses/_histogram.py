"""Average precision of binned scores, shared by FastAP and DIR."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.losses._inputs import require_unit_range


def binned_ap_risk(scores: Tensor, positive: Tensor, negative: Tensor, *, centres: int) -> Tensor:
    """1 - AP of the ranking by bins, averaged over the queries that have a positive.

    Every score is shared between the two nearest of `centres` points from 1 down to 0, in proportion to nearness. With
    p_m, a_m the weight of positives and of all entries at centre m and P_m, A_m their running sums from the top,
    AP = sum_m p_m P_m / A_m / (number of positives).
    """
    used = positive | negative
    place = (1 - require_unit_range(scores, used)) * (centres - 1)  # [Q, N], 0 at the top centre
    points = torch.arange(centres, dtype=scores.dtype, device=scores.device)
    share = F.relu(1 - (place.unsqueeze(2) - points).abs())  # [Q, N, centres]
    relevant = (share * positive.unsqueeze(2)).sum(1)  # [Q, centres]
    everything = (share * used.unsqueeze(2)).sum(1)
    # Where nothing has been met yet both sums are 0, and so is the term.
    precision = relevant.cumsum(1) / everything.cumsum(1).clamp(min=torch.finfo(scores.dtype).tiny)
    count = positive.sum(1)  # [Q]
    ap = (relevant * precision).sum(1) / count.clamp(min=1)
    return ((1 - ap) * (count > 0)).sum() / (count > 0).sum().clamp(min=1)
