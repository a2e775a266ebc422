"""What every loss shares: the calling convention, checked inputs and settings, full precision, one row a positive.

Shapes: Q queries, N candidates, M positive entries of the whole [Q, N] matrix.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from hapvr.checks import require_finite, require_tensor, shape_of
from hapvr.errors import ConfigError, DataError, ShapeError

RANGE_TOLERANCE = 1e-3


class Loss(nn.Module):
    """A loss without weights; it prints its settings."""

    def extra_repr(self) -> str:
        """The settings, as the constructor takes them."""
        settings = {k: v for k, v in vars(self).items() if not k.startswith("_") and k != "training"}
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())


class ScoreLoss(Loss):
    """A loss of a score matrix: `loss(scores, relevance, *, ignore=None)`. Subclasses write only `_compute`."""

    def forward(self, scores: Tensor, relevance: Tensor, *, ignore: Tensor | None = None) -> Tensor:
        """The loss, a scalar that is part of the graph of `scores` also where it is 0.

        scores [Q, N]: floating point, the higher the more alike, in [0, 1].
        relevance [Q, N]: bool, True where candidate n is relevant to query q.
        ignore [Q, N]: bool, True where an entry is neither positive nor negative, such as the clip itself.
        """
        scores, positive, negative = prepare(scores, relevance, ignore)
        with disable_autocast(scores):
            return self._compute(scores, positive, negative)

    def _compute(self, scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss of checked inputs: scores in float32 or float64, no entry both positive and negative; [Q, N]."""
        raise NotImplementedError


def prepare(scores: Tensor, relevance: Tensor, ignore: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Checked scores in full precision, and which entries are positive and which negative; all [Q, N].

    An ignored entry is neither, whatever its relevance says.

    >>> scores, relevance = torch.zeros(1, 3), torch.tensor([[True, True, False]])
    >>> _, positive, negative = prepare(scores, relevance, torch.tensor([[True, False, False]]))
    >>> positive.tolist(), negative.tolist()
    ([[False, True, False]], [[False, False, True]])
    """
    require_tensor(scores, "scores", dims=2, axes="[Q, N]")
    require_flags(relevance, "relevance", like=scores, meaning="the candidate is relevant to the query")
    require_finite(scores, "scores")
    if ignore is None:
        return to_full_precision(scores), relevance, ~relevance
    require_flags(ignore, "ignore", like=scores, meaning="the entry is neither positive nor negative")
    return to_full_precision(scores), relevance & ~ignore, ~relevance & ~ignore


def to_full_precision(values: Tensor) -> Tensor:
    """The values in float32, or in float64 if they came so."""
    return values if values.dtype == torch.float64 else values.float()


def disable_autocast(values: Tensor) -> torch.autocast:
    """A context in which nothing computed on the device of `values` is rounded to half precision."""
    return torch.autocast(values.device.type, enabled=False)


def compute_leads(scores: Tensor, query: Tensor, column: Tensor) -> Tensor:
    """By how much each candidate leads a positive, s_kj - s_ki: one row per positive (query k, column i); [M, N].

    Positives are few, so this is far smaller than all triples [Q, N, N].

    >>> compute_leads(torch.tensor([[3., 1., 2.]]), torch.tensor([0]), torch.tensor([2]))
    tensor([[ 1., -1.,  0.]])
    """
    return scores.index_select(0, query) - scores[query, column].unsqueeze(1)


def weigh_queries(positive: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight of each query's positives, [Q], that turns a sum over all positives into the mean over queries of
    the mean over the positives of each. Queries without positives weigh nothing and are not counted.

    >>> weigh_queries(torch.tensor([[True, True], [True, False], [False, False]]), torch.float32)
    tensor([0.2500, 0.5000, 0.0000])
    """
    count = positive.sum(1)
    counted = (count > 0).sum().clamp(min=1)
    return (count > 0).to(dtype) / (count.clamp(min=1) * counted)


def require_flags(value: Any, name: str, *, like: Tensor, meaning: str) -> None:
    """Raise `ShapeError` unless `value` is a bool tensor with the shape and device of `like`."""
    if not isinstance(value, Tensor) or value.dtype != torch.bool:
        kind = str(value.dtype) if isinstance(value, Tensor) else shape_of(value)
        raise ShapeError(f"{name} must be a bool tensor, True where {meaning}; got {kind}.")
    if value.shape != like.shape:
        raise ShapeError(f"{name} must have the shape {shape_of(like)} of the scores, got {shape_of(value)}.")
    if value.device != like.device:
        raise ShapeError(f"{name} is on {value.device} and the scores are on {like.device}: move it there first.")


def require_floats(value: Any, name: str) -> None:
    """Raise `ShapeError` unless `value` is a floating-point tensor, of any shape."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise ShapeError(f"{name} must be a floating-point tensor, got {getattr(value, 'dtype', shape_of(value))}.")


def clamp_to_unit_range(scores: Tensor, used: Tensor) -> Tensor:
    """The scores clamped to [0, 1]; raise `DataError` if a used one is further out than rounding explains."""
    outside = used & ((scores < -RANGE_TOLERANCE) | (scores > 1 + RANGE_TOLERANCE))
    if bool(outside.any()):
        low, high = float(scores[used].min()), float(scores[used].max())
        raise DataError(
            f"scores must lie in [0, 1], got {int(outside.sum())} outside: they run from {low:.4g} to {high:.4g}. "
            "Map similarities of [-1, 1] with s / 2 + 1 / 2."
        )
    return scores.clamp(0, 1)


def check_number(value: float, name: str, *, above: float | None = None) -> float:
    """The setting as a float; raise `ConfigError` unless it is finite and at least 0, or above what is given."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (above is not None and value <= above):
        wanted = "of at least 0" if above is None else f"above {above}"
        raise ConfigError(f"{name} must be a finite number {wanted}, got {value!r}.")
    return float(value)


def check_count(value: int, name: str, *, min_value: int) -> int:
    """The setting; raise `ConfigError` unless it is a whole number of at least `min_value`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < min_value:
        raise ConfigError(f"{name} must be a whole number of at least {min_value}, got {value!r}.")
    return value
