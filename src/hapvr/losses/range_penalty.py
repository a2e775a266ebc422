"""The penalty on similarities that leave their range."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hapvr.checks import require_finite, shape_of
from hapvr.errors import ShapeError
from hapvr.losses._base import Loss, disable_autocast, require_floats, to_full_precision


class RangePenalty(Loss):
    """How far the raw outputs of psi leave [-1, 1], summed over all cells (ViSiL, arXiv:1908.07410).

        loss = sum over cells of max(0, x - 1) + max(0, -1 - x)

    psi's output is cut to [-1, 1] before it is scored, where a cell outside has no gradient: this brings it back. A
    sum, not a mean: as in the public code it grows with the batch. Raw outputs are on the scale [-1, 1], not [0, 1].

    Masked cells count nothing and may hold anything. No cells give 0. A cell exactly at the border has no gradient.

    Example: 1.5 leaves by .5, -1.2 by .2, .3 not.

        >>> import torch
        >>> round(RangePenalty()(torch.tensor([1.5, -1.2, .3])).item(), 4)
        0.7
    """

    def forward(self, raw: Tensor, mask: Tensor | None = None) -> Tensor:
        """The penalty, a scalar. raw: any shape; mask: bool, True = real, of raw's shape or broadcast to it."""
        require_floats(raw, "raw")
        if mask is not None:
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
                kind = getattr(mask, "dtype", shape_of(mask))
                raise ShapeError(f"mask must be a bool tensor, True = real; got {kind}.")
            try:
                raw = raw.masked_fill(~mask.expand(raw.shape), 0)
            except RuntimeError:
                raise ShapeError(f"mask {shape_of(mask)} cannot be broadcast to raw's shape {shape_of(raw)}.") from None
        require_finite(raw, "raw")
        with disable_autocast(raw):
            raw = to_full_precision(raw)
            return (F.relu(raw - 1) + F.relu(-1 - raw)).sum()
