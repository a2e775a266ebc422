"""Everything hapvr raises on purpose. Catch `HapvrError` to catch them all.

    HapvrError
    ├── ShapeError    a tensor of another shape or type than the call takes
    ├── DataError     values that cannot be used: NaN, an empty video, a mask that leaves nothing
    ├── ConfigError   a setting that does not exist, or that contradicts another
    └── WeightsError  a weight file that is damaged, of another kind, or lacks tensors

A message says what was given, what was expected, and what to do.
"""

from __future__ import annotations


class HapvrError(Exception):
    """Base of every error that hapvr raises on purpose."""


class ShapeError(HapvrError, ValueError):
    """A tensor has another shape or type than the call takes."""


class DataError(HapvrError, ValueError):
    """The values cannot be used: NaN, an empty video, a mask that leaves nothing."""


class ConfigError(HapvrError, ValueError):
    """A setting does not exist or contradicts another one."""


class WeightsError(HapvrError):
    """A weight file is damaged, of another kind, or its tensors do not fit the model."""
