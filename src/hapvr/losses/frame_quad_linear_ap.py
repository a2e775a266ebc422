"""QuadLinear-AP on the frame matrices of positive video pairs."""

from __future__ import annotations

import torch
from torch import Tensor

from hapvr.checks import require_finite, require_mask, require_tensor
from hapvr.errors import DataError
from hapvr.losses._base import Loss, check_number, disable_autocast, require_flags, to_full_precision
from hapvr.losses.quad_linear_ap import sum_weighted_risk


class FrameQuadLinearAP(Loss):
    """QuadLinear-AP with each query frame as a query and the target's frames as candidates (HAP-VR, arXiv:2407.15566).

    Two videos that match as a whole do not match at every frame. A frozen teacher says which target frames are most
    and least like each query frame; this loss asks the frame similarities to rank the former above the latter:

        loss = mean over pairs of the mean over query frames of QuadLinear-AP(frame's row)

    Only the P positive pairs of a batch are passed, so no work is done for pairs that would be multiplied by 0.
    Frame similarities are taken as they are (only their differences count, on the scale of delta).

    What counts: query frames that are real and have a positive; pairs that have such a frame and at least 2 real
    target frames. What does not count contributes nothing and is not averaged over; if no pair is left the loss is 0.
    A frame without negatives counts with 0. Labels outside the masks are dropped; padded cells may hold anything.
    `DataError` if a real cell is both positive and negative. delta > 0, rho >= 0.

    Example: one pair, one query frame, the row .9(+) .8(-) .7(+) .5(neither): .3, as in `QuadLinearAP`.

        >>> import torch
        >>> matrix = torch.tensor([[[.9, .8, .7, .5]]])
        >>> positive = torch.tensor([[[True, False, True, False]]])
        >>> negative = torch.tensor([[[False, True, False, False]]])
        >>> round(FrameQuadLinearAP(delta=.1, rho=1.)(matrix, positive, negative).item(), 4)
        0.3
    """

    def __init__(self, delta: float = 0.05, rho: float = 5.0) -> None:
        super().__init__()
        self.delta = check_number(delta, "FrameQuadLinearAP: delta", above=0)
        self.rho = check_number(rho, "FrameQuadLinearAP: rho")

    def forward(
        self,
        frame_matrices: Tensor,
        positive: Tensor,
        negative: Tensor,
        *,
        query_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
    ) -> Tensor:
        """The loss, a scalar that is part of the graph of `frame_matrices` also where it is 0.

        frame_matrices [P, Tq, Tt]: frame similarities of the P positive pairs.
        positive, negative [P, Tq, Tt]: bool, the labels; a cell may be neither.
        query_mask [P, Tq], target_mask [P, Tt]: bool, True for the real frames; None if all are.
        """
        require_tensor(frame_matrices, "frame_matrices", dims=3, axes="[P, Tq, Tt]", hint="Stack the pairs first.")
        require_flags(positive, "positive", like=frame_matrices, meaning="the target frame should rank high")
        require_flags(negative, "negative", like=frame_matrices, meaning="the target frame should rank low")
        pairs, query_frames, target_frames = frame_matrices.shape
        real = torch.ones_like(positive)
        if query_mask is not None:
            require_mask(query_mask, "query_mask", (pairs, query_frames))
            real = real & query_mask.unsqueeze(2)
        if target_mask is not None:
            require_mask(target_mask, "target_mask", (pairs, target_frames))
            real = real & target_mask.unsqueeze(1)
        both = int((positive & negative & real).sum())
        if both:
            raise DataError(f"{both} cells are both positive and negative. A frame is one of them, or neither.")
        matrices = frame_matrices.masked_fill(~real, 0)
        require_finite(matrices, "frame_matrices")
        # Ranking a single target frame says nothing.
        real = real & (real.any(1).sum(1) >= 2).view(-1, 1, 1)
        with disable_autocast(matrices):
            return self._compute(to_full_precision(matrices), positive & real, negative & real)

    def _compute(self, matrices: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        count = positive.sum(2)  # [P, Tq]
        frames = (count > 0).sum(1, keepdim=True)  # [P, 1]
        pairs = (frames > 0).sum()
        weight = (count > 0).to(matrices.dtype) / (count * frames * pairs).clamp(min=1)
        return sum_weighted_risk(
            matrices.flatten(0, 1),
            positive.flatten(0, 1),
            negative.flatten(0, 1),
            weight.flatten(),
            delta=self.delta,
            rho=self.rho,
        )
