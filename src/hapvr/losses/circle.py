"""Circle loss."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from hapvr.losses._base import ScoreLoss, check_number


class Circle(ScoreLoss):
    """Pull each score by how far it is from its optimum (Sun et al., arXiv:2002.10857).

        loss of a query = log(1 + sum over negatives j of exp(scale * a_j * (s_j - margin))
                                * sum over positives i of exp(-scale * b_i * (s_i - (1 - margin))))
        a_j = max(0, s_j + margin),  b_i = max(0, 1 + margin - s_i): weights, without gradient

    Since the weights are held constant the gradient is not the derivative of the value. Defaults are the paper's first
    setting (margin .25, scale 256).

    Positives are drawn to 1 and negatives to 0. A query without negatives counts with 0. margin >= 0, scale > 0.

    Example: with margin .25 a positive at .75 and a negative at .25 stand exactly at their borders: log(1 + 1 * 1).

        >>> import torch
        >>> scores, relevance = torch.tensor([[.75, .25]]), torch.tensor([[True, False]])
        >>> round(Circle()(scores, relevance).item(), 4)
        0.6931
    """

    def __init__(self, margin: float = 0.25, scale: float = 256.0) -> None:
        super().__init__()
        self.margin = check_number(margin, "Circle: margin")
        self.scale = check_number(scale, "Circle: scale", above=0)

    def _compute(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        counted = positive.any(1).sum().clamp(min=1)
        both = positive.any(1) & negative.any(1)
        scores, positive, negative = scores[both], positive[both], negative[both]  # [q, N]
        pull = F.relu(1 + self.margin - scores.detach()) * (1 - self.margin - scores)
        push = F.relu(self.margin + scores.detach()) * (scores - self.margin)
        pulled = (self.scale * pull).masked_fill(~positive, float("-inf")).logsumexp(1)  # [q]
        pushed = (self.scale * push).masked_fill(~negative, float("-inf")).logsumexp(1)
        return F.softplus(pulled + pushed).sum() / counted
