"""Confidence bounds of counts and of shares."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_CONFIDENCE = 0.95
_Z = 1.959964  # of a two-sided interval of 95%


def bound_count(count: int) -> float:
    """The greatest mean of a Poisson count of which `count` or less is seen with a probability of at least 5%.

    >>> [round(bound_count(count), 3) for count in (0, 1, 10)]
    [2.996, 4.744, 16.962]
    """
    numbers = np.arange(count + 1)
    logs = np.array([math.lgamma(number + 1) for number in numbers])

    def chance(mean: float) -> float:
        return float(np.exp(numbers * math.log(mean) - mean - logs).sum())

    return _bisect(chance, 1 - _CONFIDENCE, count + 1e-9, count + 10 + 5 * math.sqrt(count))


def _bisect(falling: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Where a falling function has a value."""
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > wanted else (low, middle)
    return (low + high) / 2


def wilson_interval(hits: int, count: int) -> tuple[float, float]:
    """Wilson's interval of 95% of the share hits / count; it ends at 0 or 1 where none or all are hits.

    >>> [round(bound, 3) for bound in wilson_interval(5, 10)]
    [0.237, 0.763]
    """
    share, square = hits / count, _Z * _Z
    middle = share + square / (2 * count)
    reach = _Z * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    low, high = ((middle + sign * reach) / (1 + square / count) for sign in (-1, 1))
    return (0.0 if hits == 0 else low), (1.0 if hits == count else high)
