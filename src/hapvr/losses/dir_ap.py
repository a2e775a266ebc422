"""DIR: the listwise AP loss of "Deep Image Retrieval"."""

from __future__ import annotations

from torch import Tensor

from hapvr.losses._base import ScoreLoss, check_count
from hapvr.losses.fast_ap import compute_binned_ap_loss


class DirAP(ScoreLoss):
    """One minus average precision of binned scores (Revaud et al., arXiv:1906.07589).

    Each score is shared between the two nearest of `bins` centres, spread evenly from 1 down to 0 (triangular kernel).

        loss of a query = 1 - sum over centres m of precision_m * gain_m
        precision_m = P_m / A_m: positives among all entries at centre m or above
        gain_m = p_m / (number of positives): those at centre m

    On a score matrix this is the formula of `FastAP`, written as precision times gain in recall: DirAP(b + 1) equals
    FastAP(b). The papers differ in what surrounds it (here very large batches) and in the number of bins.

    Scores and queries without negatives as in `FastAP`; a score exactly at a centre has no gradient. bins >= 2.

    Example: bins=3, centres 1, .5, 0; 1(-) and .75(+). At 1: p = P = .5, A = 1.5. At .5: p = .5, P = 1, A = 2.
    AP = .5 * (1/3) + .5 * (1/2) = 5/12.

        >>> import torch
        >>> scores, relevance = torch.tensor([[1., .75]]), torch.tensor([[False, True]])
        >>> round(DirAP(bins=3)(scores, relevance).item(), 4)
        0.5833
    """

    def __init__(self, bins: int = 20) -> None:
        super().__init__()
        self.bins = check_count(bins, "DirAP: bins", min_value=2)

    def _compute(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return compute_binned_ap_loss(scores, positive, negative, centres=self.bins)
