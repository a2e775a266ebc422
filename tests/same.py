"""Whether two answers are the same up to the rounding of their numbers.

A product of matrices is rounded in another way by another number of threads, so that two commands that compute the same
may differ in the last digits.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

TOLERANCE = 1e-5


def is_same(one: Any, other: Any) -> bool:
    """Numbers within 1e-5; all else equal, to the depth of dataclasses, mappings and sequences.

    >>> is_same({"score": 0.25, "path": [(0, 1)]}, {"score": 0.2500001, "path": ((0, 1),)})
    True
    >>> is_same([0.25], [0.26]), is_same({"a": 1.0}, {"b": 1.0}), is_same([1.0], [1.0, 2.0]), is_same(True, 1.0)
    (False, False, False, False)
    """
    if dataclasses.is_dataclass(one) and dataclasses.is_dataclass(other):
        return type(one) is type(other) and is_same(vars(one), vars(other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, (str, bool)) or isinstance(other, (str, bool)):
        return type(one) is type(other) and bool(one == other)
    if isinstance(one, Sequence) and isinstance(other, Sequence):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(one == other)
