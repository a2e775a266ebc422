"""SSHN: self-similarity and the hardest negative."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from hapvr.checks import require_finite, require_tensor, shape_of
from hapvr.errors import ConfigError, ShapeError
from hapvr.losses._base import Loss, check_number, disable_autocast, prepare, to_full_precision


class SSHN(Loss):
    """Pull the score of each clip with itself to 1, push that of its hardest negative to 0 (S2VS, arXiv:2304.03378).

        loss of a query k = -log(max(s_kk, clamp)) - log(max(1 - max over negatives j of s_kj, clamp))

    HAP-VR's appendix prints the maximum of 1 - s_kj, which is the easiest negative; its text and S2VS mean the hardest.

    Every query counts, with positives or without: they have no part in this loss. A query without negatives counts with
    its first term; a batch without queries gives 0. Equally hard negatives share the gradient. A clamped term has no
    gradient. 0 < clamp < 1.

    Example: s_kk = .5, negatives .5 and .2: -log .5 - log(1 - .5) = 2 log 2.

        >>> import torch
        >>> scores, relevance = torch.tensor([[.5, .2, .9]]), torch.tensor([[False, False, True]])
        >>> round(SSHN()(scores, relevance, self_scores=torch.tensor([.5])).item(), 4)
        1.3863
    """

    def __init__(self, clamp: float = 1e-3) -> None:
        super().__init__()
        self.clamp = check_number(clamp, "SSHN: clamp", above=0)
        if self.clamp >= 1:
            raise ConfigError(f"SSHN: clamp must be below 1, where scores end; got {clamp!r}.")

    def forward(
        self, scores: Tensor, relevance: Tensor, *, self_scores: Tensor, ignore: Tensor | None = None
    ) -> Tensor:
        """The loss, a scalar. self_scores [Q]: the score s_kk of each query clip with itself; the rest: `ScoreLoss`."""
        scores, _, negative = prepare(scores, relevance, ignore)
        require_tensor(self_scores, "self_scores", dims=1, axes="[Q]")
        if len(self_scores) != len(scores):
            raise ShapeError(
                f"self_scores must hold one score for each of the {len(scores)} queries, got {shape_of(self_scores)}."
            )
        if self_scores.device != scores.device:
            raise ShapeError(f"self_scores is on {self_scores.device} and the scores are on {scores.device}.")
        require_finite(self_scores, "self_scores")
        with disable_autocast(scores):
            return self._compute(scores, to_full_precision(self_scores), negative)

    def _compute(self, scores: Tensor, self_scores: Tensor, negative: Tensor) -> Tensor:
        # The added column keeps a batch without candidates defined.
        hardest = F.pad(scores.masked_fill(~negative, float("-inf")), (0, 1), value=float("-inf")).amax(1)  # [Q]
        hardest = hardest.masked_fill(~negative.any(1), 0)  # -log(1 - 0) = 0: no term
        alike = -self_scores.clamp(min=self.clamp).log()
        unlike = -(1 - hardest).clamp(min=self.clamp).log()
        return (alike + unlike).sum() / max(1, len(scores))
