"""InfoNCE."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from hapvr.losses._base import ScoreLoss, check_number, compute_leads, weigh_queries


class InfoNCE(ScoreLoss):
    """Pick each positive out of the negatives by softmax (van den Oord et al., arXiv:1807.03748; HAP-VR's appendix).

        loss of a query = mean over positives i of -log( e(s_i) / (e(s_i) + sum over negatives j of e(s_j)) )
        e(s) = exp(s / temperature)

    Each positive meets the negatives alone: other positives are not in its denominator.

    Only differences of scores count. A query without negatives counts with 0. temperature > 0.

    Example: a positive and a negative of equal score: log 2.

        >>> import torch
        >>> scores, relevance = torch.tensor([[.5, .5]]), torch.tensor([[True, False]])
        >>> round(InfoNCE()(scores, relevance).item(), 4)
        0.6931
    """

    def __init__(self, temperature: float = 0.03) -> None:
        super().__init__()
        self.temperature = check_number(temperature, "InfoNCE: temperature", above=0)

    def _compute(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        query, column = positive.nonzero(as_tuple=True)  # [M]
        lead = compute_leads(scores, query, column) / self.temperature  # [M, N]
        lead = lead.masked_fill(~negative[query], float("-inf"))
        # The added column is the positive itself, log e(s_i) / e(s_i) = 0: no row is ever empty.
        surprise = F.pad(lead, (0, 1)).logsumexp(1)  # [M]
        return (weigh_queries(positive, scores.dtype)[query] * surprise).sum()
