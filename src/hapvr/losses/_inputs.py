"""What every loss shares: checked inputs, full precision, one row per positive, and checked settings.

Shapes: Q queries, N candidates, M positive entries of the whole [Q, N] matrix.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from hapvr.checks import require_finite, require_tensor, shape_of
from hapvr.errors import ConfigError, DataError, ShapeError

RANGE_TOLERANCE = 1e-3


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
        return full_precision(scores), relevance, ~relevance
    require_flags(ignore, "ignore", like=scores, meaning="the entry is neither positive nor negative")
    return full_precision(scores), relevance & ~ignore, ~relevance & ~ignore


def full_precision(values: Tensor) -> Tensor:
    """The values in float32, or in float64 if they came so.

    >>> full_precision(torch.zeros(1, dtype=torch.bfloat16)).dtype, full_precision(torch.zeros(1).double()).dtype
    (torch.float32, torch.float64)
    """
    return values if values.dtype == torch.float64 else values.float()


def without_autocast(values: Tensor) -> torch.autocast:
    """A context in which nothing computed on the device of `values` is rounded to half precision."""
    return torch.autocast(values.device.type, enabled=False)


def leads(scores: Tensor, query: Tensor, column: Tensor) -> Tensor:
    """By how much each candidate leads a positive, s_kj - s_ki: one row per positive (query k, column i); [M, N].

    Positives are few, so this is far smaller than all triples [Q, N, N].

    >>> leads(torch.tensor([[3., 1., 2.]]), torch.tensor([0]), torch.tensor([2]))
    tensor([[ 1., -1.,  0.]])
    """
    return scores.index_select(0, query) - scores[query, column].unsqueeze(1)


def weight_of_positives(positive: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight of each query's positives, [Q], that turns a sum over all positives into the mean over queries of
    the mean over the positives of each. Queries without positives weigh nothing and are not counted.

    >>> weight_of_positives(torch.tensor([[True, True], [True, False], [False, False]]), torch.float32)
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


def require_unit_range(scores: Tensor, used: Tensor) -> Tensor:
    """The scores clamped to [0, 1]; raise `DataError` if a used one is further out than rounding explains."""
    outside = used & ((scores < -RANGE_TOLERANCE) | (scores > 1 + RANGE_TOLERANCE))
    if bool(outside.any()):
        low, high = float(scores[used].min()), float(scores[used].max())
        raise DataError(
            f"scores must lie in [0, 1], got {int(outside.sum())} outside: they run from {low:.4g} to {high:.4g}. "
            "Map similarities of [-1, 1] with s / 2 + 1 / 2."
        )
    return scores.clamp(0, 1)


def positive_setting(value: float, name: str) -> float:
    """The setting as a float; raise `ConfigError` unless it is a finite number above 0."""
    if not _is_number(value) or not value > 0:
        raise ConfigError(f"{name} must be a finite number above 0, got {value!r}.")
    return float(value)


def non_negative_setting(value: float, name: str) -> float:
    """The setting as a float; raise `ConfigError` unless it is a finite number of at least 0."""
    if not _is_number(value) or not value >= 0:
        raise ConfigError(f"{name} must be a finite number of at least 0, got {value!r}.")
    return float(value)


def count_setting(value: int, name: str, *, least: int) -> int:
    """The setting; raise `ConfigError` unless it is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
